# SPDX-License-Identifier: Apache-2.0
"""Estimators saved with pickle, joblib or skops.

Loading a pickle (and joblib files are pickles) runs whatever code it holds: load only what you, or people you
trust, made. skops loads types it knows to be safe, and those that `skops_file` adds.
"""

from __future__ import annotations

import contextlib
import pickle
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from wirewise.importers import isolated, skops_file
from wirewise.importers.dispatch import import_estimator
from wirewise.importers.lowering import library
from wirewise.importers.request import Imported, Request

_SKLEARN_VERSION = re.compile(rb"_sklearn_version[^0-9]{1,12}([0-9]+\.[0-9][0-9.a-z]{0,12})")

UNSAFE = (
    "a pickle can run any code when it is loaded: import only files from people you trust, or save with skops"
)


def import_file(path: str, request: Request) -> Imported:
    """A .pkl, .pickle, .joblib or .skops file that holds one fitted estimator."""
    estimator, notes = loaded(path, request)
    imported = import_estimator(estimator, request)
    return replace(imported, notes=[*notes, *imported.notes])


def load(path: Path) -> Any:
    """The fitted estimator in a file, as it is; loading a pickle runs code in it. Raises InputError."""
    request = Request(subject=str(path))
    if path.suffix not in (".pkl", ".pickle", ".joblib", ".skops"):
        raise request.refuse("is no saved estimator", "give a .pkl, .pickle, .joblib or .skops file")
    isolated.try_out(str(path), request)
    found, _ = loaded(str(path), request)
    return found


def try_out(path: str, request: Request) -> None:
    """Loads an estimator and has it predict; what it then says, or raises, does not matter."""
    found, _ = loaded(path, request)
    rows = np.random.default_rng(0).integers(-100_000, 100_000, (1000, getattr(found, "n_features_in_", 1)))
    with contextlib.suppress(Exception):
        found.predict(rows)


def loaded(path: str, request: Request) -> tuple[Any, list[str]]:
    """The object in a file, and notes about it; in the process that reads it."""
    if path.lower().endswith(".skops"):
        return skops_file.load(path, request), []
    return _load_pickle(path, request)


def _load_pickle(path: str, request: Request) -> tuple[Any, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            if path.lower().endswith(".joblib"):
                estimator = library("joblib").load(path)
            else:
                estimator = pickle.loads(Path(path).read_bytes())
        except MemoryError:
            raise
        except Exception as error:  # a pickle may raise anything
            saved = _SKLEARN_VERSION.search(Path(path).read_bytes())
            version = f", it was saved with scikit-learn {saved[1].decode()}" if saved else ""
            raise request.refuse(
                f"cannot be loaded ({type(error).__name__}: {error}){version}",
                "save the estimator again with the library versions installed here, or load it yourself and "
                "import it from Python",
            ) from None
    versions = [str(item.message).split(".")[0] for item in caught if "version" in str(item.message)]
    return estimator, [UNSAFE, *dict.fromkeys(versions)]
