# SPDX-License-Identifier: Apache-2.0
"""Estimators saved with pickle, joblib or skops.

Loading a pickle (and joblib files are pickles) runs whatever code it holds: load only what you, or people you
trust, made. skops loads types it knows to be safe, and we refuse the rest.
"""

from __future__ import annotations

import pickle
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

from wirewise.importers.dispatch import import_estimator
from wirewise.importers.lowering import library
from wirewise.importers.request import Imported, Request

# Types that skops asks about but that hold numbers only.
TRUSTED = {"sklearn.tree._tree.Tree", "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor"}

UNSAFE = (
    "a pickle can run any code when it is loaded: import only files from people you trust, or save with skops"
)


def import_file(path: str, request: Request) -> Imported:
    """A .pkl, .pickle, .joblib or .skops file that holds one fitted estimator."""
    estimator, notes = _load_skops(path, request) if path.endswith(".skops") else _load_pickle(path, request)
    imported = import_estimator(estimator, request)
    return replace(imported, notes=[*notes, *imported.notes])


def load(path: Path) -> Any:
    """The fitted estimator in a file, as it is; loading a pickle runs code in it. Raises InputError."""
    request = Request(subject=str(path))
    if path.suffix not in (".pkl", ".pickle", ".joblib", ".skops"):
        raise request.refuse("is no saved estimator", "give a .pkl, .pickle, .joblib or .skops file")
    found, _ = (
        _load_skops(str(path), request) if path.suffix == ".skops" else _load_pickle(str(path), request)
    )
    return found


def _load_pickle(path: str, request: Request) -> tuple[Any, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            if path.endswith(".joblib"):
                estimator = library("joblib").load(path)
            else:
                estimator = pickle.loads(Path(path).read_bytes())
        except MemoryError:
            raise
        except Exception as error:  # a pickle may raise anything
            raise request.refuse(
                f"cannot be loaded ({type(error).__name__}: {error})",
                "save the estimator again with the library versions installed here",
            ) from None
    versions = [str(item.message).split(".")[0] for item in caught if "version" in str(item.message)]
    return estimator, [UNSAFE, *dict.fromkeys(versions)]


def _load_skops(path: str, request: Request) -> tuple[Any, list[str]]:
    skops = library("skops.io")
    try:
        asks = skops.get_untrusted_types(file=path)
        if unknown := [kind for kind in asks if kind not in TRUSTED]:
            raise request.refuse(
                f"holds types that skops does not trust: {', '.join(unknown)}",
                "save the bare estimator, or use its library's own format",
            )
        return skops.load(path, trusted=asks), []
    except (OSError, ValueError, KeyError, TypeError, BadZipFile) as error:
        raise request.refuse(f"is no skops file ({error})", "save it with skops.io.dump") from None
