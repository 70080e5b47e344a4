# SPDX-License-Identifier: Apache-2.0
"""scikit-learn's pipelines: trees behind nothing, networks behind scalers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from wirewise.importers.dispatch import import_estimator
from wirewise.importers.request import Imported, Request
from wirewise.importers.sklearn_networks import import_scaled, is_network
from wirewise.importers.sklearn_search import best, is_search, note


def import_pipeline(pipeline: Any, request: Request) -> Imported:
    """A pipeline in which only the last step does something, or of scalers before a network."""
    request = replace(request, outer=request.outer or pipeline)
    *before, (_, last) = pipeline.steps
    before = [(name, step) for name, step in before if step not in (None, "passthrough")]
    chosen = best(last, request) if is_search(last) else last
    if is_network(chosen):
        imported = import_scaled(before, chosen, request)
        return replace(imported, notes=[note(last), *imported.notes]) if chosen is not last else imported
    for name, step in before:
        raise request.refuse(
            f"is a pipeline whose step {name!r} ({type(step).__name__}) changes the features",
            "trees need no scaling: train the classifier alone on the integer features",
        )
    return import_estimator(last, request)
