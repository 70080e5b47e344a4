# SPDX-License-Identifier: Apache-2.0
"""scikit-learn's pipelines: scalers before trees, networks and linear classifiers; before others nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from wirewise.importers import sklearn, sklearn_networks
from wirewise.importers.dispatch import import_estimator
from wirewise.importers.registry import format_of
from wirewise.importers.request import Imported, Request
from wirewise.importers.sklearn_estimators import check_fitted
from wirewise.importers.sklearn_networks import SCALERS, import_scaled
from wirewise.importers.sklearn_search import best, is_search, note

_REASONS = {
    "QuantileTransformer": "interpolates, and rounds so that the order of integers may change",
    "PowerTransformer": "computes powers, and rounds so that the order of integers may change",
    "Normalizer": "divides by the length of the row, so that a feature depends on all others",
    "PCA": "mixes features, and a tree tests one at a time",
    "PolynomialFeatures": "multiplies features with each other",
}
"""What other steps do that thresholds and weights of integer features cannot say."""


def import_pipeline(pipeline: Any, request: Request) -> Imported:
    """A pipeline of scalers and a classifier, or in which only the last step does something."""
    request = replace(request, outer=request.outer or pipeline)
    *before, (_, last) = pipeline.steps
    before = [(name, step) for name, step in before if step not in (None, "passthrough")]
    chosen = best(last, request) if is_search(last) else last
    entry = format_of(chosen)
    reader = entry.module if entry else ""
    if reader == sklearn_networks.__name__:
        imported = import_scaled(before, chosen, request)
        return replace(imported, notes=[note(last), *imported.notes]) if chosen is not last else imported
    if not before:
        return import_estimator(last, request)
    if reader != sklearn.__name__:  # whose functions go by the scalers of the request
        name, step = before[0]
        raise request.refuse(
            f"is a pipeline whose step {name!r} ({type(step).__name__}) changes the features of a "
            f"{type(chosen).__name__}",
            "trees need no scaling: train the classifier alone on the integer features",
        )
    for name, step in before:
        if type(step).__name__ not in SCALERS:
            kind = type(step).__name__
            raise request.refuse(
                f"is a pipeline whose step {name!r} ({kind}) "
                + _REASONS.get(kind, "changes the features in a way that no threshold of them can say"),
                "trees need no scaling: train the classifier alone on the integer features",
            )
        check_fitted(step, request)
    scalers = [step for _, step in before]
    imported = import_estimator(last, replace(request, scalers=scalers))
    trained_on = getattr(scalers[0], "feature_names_in_", None)
    return replace(imported, feature_names=None if trained_on is None else list(map(str, trained_on)))
