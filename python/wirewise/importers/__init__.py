# SPDX-License-Identifier: Apache-2.0
"""Estimators to integer models, one module a library. No library is imported before a model needs it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from wirewise.importers.lowering import Imported, Request, Rows
from wirewise.importers.registry import BY_KEY, FORMATS, Format, supported, supported_table
from wirewise.models.tree import Votes
from wirewise.quantize import Options

__all__ = ["Imported", "import_estimator", "import_model", "supported", "supported_table"]


def import_model(
    estimator_or_path: Any,
    *,
    n_features: int | None = None,
    classes: Sequence[str] | None = None,
    votes: Votes | None = None,
    rows: Rows | None = None,
    labels: Sequence[str] | None = None,
    options: Options | None = None,
) -> Imported:
    """The integer model of a fitted estimator, or of the model file at a path.

    n_features: what the model must read, if known. classes: names that replace the model's own, in order.
    votes: `majority` to let the trees of a forest vote instead of adding up their class fractions.
    rows: int64 (n, n_features), what a neural network will meet (not what it is tested with): it is quantised
    with them, and with their labels, class names (n,), if it needs fine-tuning. options: how, see
    `wirewise.quantize.Options`; only for networks.

    A tree's integer model takes exactly the original's path in every tree for every int64 input; what a
    network's loses can be measured with `predict` of both. Loading a pickle or joblib file runs code in it.
    Raises InputError for what is not supported, naming the rule and the way out, and MissingFeatureError if a
    library is needed that is not installed.
    """
    is_path = isinstance(estimator_or_path, str | PathLike)
    subject = str(fspath(estimator_or_path)) if is_path else type(estimator_or_path).__name__
    request = Request(subject, n_features, classes, votes, rows, labels, options)
    imported = (_import_file if is_path else import_estimator)(estimator_or_path, request)
    if options is not None and imported.network is None:
        raise request.refuse(
            "holds no neural network in floating point, so nothing is to be quantised",
            "leave out its options",
        )
    return imported


def _import_file(given: str | PathLike[str], request: Request) -> Imported:
    path = fspath(given)
    suffixes = [entry.key for entry in FORMATS if entry.key.startswith(".")]
    suffix = Path(path).suffix.lower()
    if suffix not in suffixes:
        raise request.refuse(
            f"has no known model file suffix ({', '.join(suffixes)})", "rename it, or save it anew"
        )
    if not Path(path).is_file():
        raise request.refuse("is not a file", "give the path of a saved model")
    return _read(BY_KEY[suffix], str(path), request)


def import_estimator(estimator: Any, request: Request) -> Imported:
    """As `import_model`, for an estimator object."""
    for base in type(estimator).__mro__:
        entry = BY_KEY.get(f"{base.__module__.partition('.')[0]}.{base.__name__}")
        if entry is not None:
            return _read(entry, estimator, request)
    known = ", ".join(dict.fromkeys(entry.what for entry in FORMATS if not entry.key.startswith(".")))
    rule = f"{type(estimator).__module__}.{type(estimator).__name__} cannot be imported"
    if type(estimator).__name__.endswith("Regressor"):
        raise request.refuse(f"{rule}, it is a regressor", f"train a classifier: {known}")
    raise request.refuse(rule, f"known are {known}")


def _read(entry: Format, source: Any, request: Request) -> Imported:
    module, function = entry.reader.split(":")
    imported: Imported = getattr(import_module(f"wirewise.importers.{module}"), function)(source, request)
    return imported
