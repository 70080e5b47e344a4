# SPDX-License-Identifier: Apache-2.0
"""Files of skops: which types may be in them, and which versions saved them."""

from __future__ import annotations

import json
from importlib import import_module
from types import FunctionType
from typing import Any
from zipfile import BadZipFile, ZipFile

from wirewise.importers.lowering import library
from wirewise.importers.request import Request

LARGEST_SCHEMA = 256 << 20

# Types that skops asks about, which hold numbers and settings only. (Not scipy's distributions: when one is
# loaded, it runs text that it holds.)
TRUSTED = {
    "numpy.ma.core.MaskedArray",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.metrics._scorer._passthrough_scorer",
    "sklearn.tree._tree.Tree",
    "sklearn.utils._metadata_requests.MetadataRequest",
    "sklearn.utils._metadata_requests.MethodMetadataRequest",
}
# What searches and networks keep of their training: the classes and public functions of these modules.
# Loading one runs nothing.
TRUSTED_MODULES = {
    "sklearn.metrics._classification",
    "sklearn.metrics._ranking",
    "sklearn.metrics._regression",
    "sklearn.metrics._scorer",
    "sklearn.model_selection._search_successive_halving",
    "sklearn.model_selection._split",
    "sklearn.neural_network._stochastic_optimizers",
}


def load(path: str, request: Request) -> Any:
    """The object in a file. Raises InputError for types that are not trusted, and files of other versions."""
    skops = library("skops.io")
    saved = _versions(path, request)
    try:
        asks = skops.get_untrusted_types(file=path)
        if unknown := [kind for kind in asks if not _is_trusted(kind)]:
            if saved and all(kind.startswith(("sklearn.", "_loss.")) for kind in unknown):
                raise _of_other_versions(saved, f"it holds {', '.join(unknown)}", request)
            raise request.refuse(
                f"holds types that are not trusted, as they may run code: {', '.join(unknown)}",
                "save the bare estimator (of a search: its best_estimator_), or use its library's own format",
            )
        return skops.load(path, trusted=asks)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ImportError, BadZipFile) as error:
        reason = f"{type(error).__name__}: {error}"
        if saved:
            raise _of_other_versions(saved, reason, request) from None
        raise request.refuse(
            f"is a skops file that cannot be loaded ({reason})", "it is damaged: save it with skops.io.dump"
        ) from None


def _is_trusted(kind: str) -> bool:
    module, _, name = kind.rpartition(".")
    if kind in TRUSTED or module not in TRUSTED_MODULES:
        return kind in TRUSTED
    found = getattr(import_module(module), name, None)
    public = isinstance(found, FunctionType) and not name.startswith("_")
    return (isinstance(found, type) or public) and found.__module__ == module


def _of_other_versions(saved: str, reason: str, request: Request) -> Exception:
    here = f"scikit-learn {library('sklearn').__version__} and skops {library('skops').__version__}"
    return request.refuse(
        f"was saved with {saved}, which {here} cannot load ({reason})",
        "train it again with the versions here, or export it to ONNX where it can be loaded",
    )


def _versions(path: str, request: Request) -> str:
    """The versions that saved a file, "" if they are those here. Raises InputError for no skops file."""
    try:
        with ZipFile(path) as archive, archive.open("schema.json") as member:
            text = member.read(LARGEST_SCHEMA + 1)
            schema = json.loads(text)
    except (OSError, KeyError, ValueError, RecursionError, NotImplementedError, BadZipFile) as error:
        raise request.refuse(f"is not a skops file ({error})", "save it with skops.io.dump") from None
    if not isinstance(schema, dict):
        raise request.refuse("is not a skops file (schema.json is no object)", "save it with skops.io.dump")
    saved = {"scikit-learn": _sklearn_version(schema), "skops": schema.get("_skops_version")}
    here = {"scikit-learn": library("sklearn").__version__, "skops": library("skops").__version__}
    known = {name: version for name, version in saved.items() if isinstance(version, str)}
    if all(here[name] == version for name, version in known.items()):
        return ""
    return " and ".join(f"{name} {version[:20]}" for name, version in known.items())


def _sklearn_version(schema: Any) -> str | None:
    """The scikit-learn version that the schema's first estimator records."""
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            version = node.get("_sklearn_version")
            if isinstance(version, dict) and isinstance(version.get("content"), str):
                return str(version["content"]).strip('"')
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node
    return None
