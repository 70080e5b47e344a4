# SPDX-License-Identifier: Apache-2.0
"""scikit-learn's searches over parameters, GridSearchCV and its kin: they keep an estimator, which counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from wirewise.importers.dispatch import import_estimator
from wirewise.importers.request import Imported, Request


def is_search(estimator: Any) -> bool:
    return any(base.__name__ == "BaseSearchCV" for base in type(estimator).__mro__)


def best(search: Any, request: Request) -> Any:
    """The estimator that a search fitted to all rows with the best parameters. Raises InputError without."""
    if hasattr(search, "best_estimator_"):
        return search.best_estimator_
    if hasattr(search, "cv_results_"):
        raise request.refuse(
            "kept no best_estimator_, as it searched with refit=False",
            "search with refit=True, or give an estimator fitted with its best parameters",
        )
    raise request.refuse("is not fitted", "call fit first")


def note(search: Any) -> str:
    """What is said of an estimator that came out of a search."""
    chosen = ", ".join(f"{name}={value!r}" for name, value in getattr(search, "best_params_", {}).items())
    return f"the best_estimator_ of {type(search).__name__} was taken" + (f": {chosen}" if chosen else "")


def import_search(search: Any, request: Request) -> Imported:
    """The best estimator of a search, of any class that can be imported; a note says so."""
    found = best(search, request)
    inner = replace(request, subject=f"{request.subject}, best_estimator_", outer=request.outer or search)
    imported = import_estimator(found, inner)
    return replace(imported, notes=[note(search), *imported.notes])
