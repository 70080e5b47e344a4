# SPDX-License-Identifier: Apache-2.0
"""Estimators to integer models, one module a library. No library is imported before a model needs it."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike, fspath
from typing import Any

from wirewise.advice import in_python_terms
from wirewise.importers import dispatch
from wirewise.importers.benign import benign_first
from wirewise.importers.registry import FORMATS, Format, supported, supported_table
from wirewise.importers.request import Imported, ImportOptions, Request, Rows
from wirewise.models.tree import Votes
from wirewise.quantize import Options

__all__ = [
    "FORMATS",
    "Format",
    "ImportOptions",
    "Imported",
    "Request",
    "import_model",
    "import_with",
    "supported",
    "supported_table",
]


@in_python_terms
def import_model(
    estimator_or_path: Any,
    *,
    n_features: int | None = None,
    classes: Sequence[str] | None = None,
    benign: str | None = None,
    votes: Votes | None = None,
    margin: bool = False,
    rows: Rows | None = None,
    labels: Sequence[str] | None = None,
    options: Options | None = None,
) -> Imported:
    """The integer model of a fitted estimator, or of the model file at a path.

    What can be asked is said at `ImportOptions`; `import_with` takes them as one.

    A tree's integer model takes exactly the original's path in every tree for every int64 input; what a
    network's loses can be measured with `predict` of both. Loading a pickle or joblib file runs code in it.
    Raises InputError for what is not supported, naming the rule and the way out, and MissingFeatureError if a
    library is needed that is not installed.
    """
    asked = ImportOptions(
        n_features=n_features,
        classes=classes,
        benign=benign,
        votes=votes,
        margin=margin,
        rows=rows,
        labels=labels,
        options=options,
    )
    return import_with(estimator_or_path, asked)


def import_with(estimator_or_path: Any, asked: ImportOptions) -> Imported:
    """As `import_model`."""
    if isinstance(estimator_or_path, str | PathLike):
        path = str(fspath(estimator_or_path))
        request = Request.of(path, asked)
        imported = dispatch.import_file(path, request)
    else:
        request = Request.of(type(estimator_or_path).__name__, asked)
        imported = dispatch.import_estimator(estimator_or_path, request)
    if asked.options is not None and imported.network is None:
        raise request.refuse(
            "holds no neural network in floating point, so nothing is to be quantised",
            "leave out its options",
        )
    return benign_first(imported, request)
