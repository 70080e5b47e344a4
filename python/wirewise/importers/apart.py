# SPDX-License-Identifier: Apache-2.0
"""Two classifiers of which the surer decides, as one ensemble: the trees of each add to an output of their
own. So it is an ordinary ensemble of three classes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from wirewise.importers.lowering import class_names, only_sum
from wirewise.importers.request import Imported, Request
from wirewise.importers.sklearn import Added, added_by, built_of, imported_from


def import_together(estimator: Any, request: Request) -> Imported:
    """What `wirewise.evaluate.apart.Together` is fitted to."""
    only_sum(request)
    names = class_names(request, estimator.classes_.tolist())
    built = built_of(estimator, added_together(estimator, request, len(names)), request, len(names))
    return imported_from(estimator, request.outer, built, names, [built.note], kind_of(estimator))


def added_together(estimator: Any, request: Request, classes: int) -> Added:
    """As `added_by`; of a `Together`, how far each of its two is ahead of benign."""
    if not _is_together(estimator):
        return added_by(estimator, request, classes)
    parts = [
        added_by(part, replace(request, subject=f"{request.subject}, {which}"), 2)
        for which, part in (("usual", estimator.usual), ("own", estimator.own))
    ]
    trees = [replace(tree, output=output) for output, part in enumerate(parts, 1) for tree in part.trees]
    base = [0.0, *(part.base[0] for part in parts)]
    return Added(trees, base, fractions=all(part.fractions for part in parts))


def kind_of(estimator: Any) -> str:
    """What it is made of, for people."""
    if not _is_together(estimator):
        return type(estimator).__name__
    return f"{type(estimator.usual).__name__} and {type(estimator.own).__name__} of its own"


def _is_together(estimator: Any) -> bool:
    """By what it has: importers know nothing of training."""
    return hasattr(estimator, "usual") and hasattr(estimator, "own")
