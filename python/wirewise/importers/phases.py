# SPDX-License-Identifier: Apache-2.0
"""Two classifiers that share each flow, one for its first packets and one for later ones, as one ensemble.

Every tree gets a test of the flow's packets above its root, and adds nothing where the other classifier
decides. So it is an ordinary ensemble, and no target and no data path knows that it is anything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from wirewise.importers.apart import added_together, kind_of
from wirewise.importers.lowering import Cuts, SourceTree, class_names, only_sum
from wirewise.importers.request import Imported, Request
from wirewise.importers.sklearn import Added, built_of, imported_from
from wirewise.models.tree import LEAF

_NO_NODE = -1
"""The library's number of a node that it does not have."""


def import_phases(estimator: Any, request: Request) -> Imported:
    """What `wirewise.evaluate.phases.Phases` is fitted to."""
    only_sum(request)
    names = class_names(request, estimator.classes_.tolist())
    feature, start = estimator.feature, estimator.start
    parts = [
        added_together(part, replace(request, subject=f"{request.subject}, {which}"), len(names))
        for which, part in (("first", estimator.first), ("late", estimator.late))
    ]
    trees = [gated(tree, feature, start, late=late) for late, part in enumerate(parts) for tree in part.trees]
    bases = np.array([part.base for part in parts])
    for output, base in enumerate(bases.T):
        if base.any():
            trees.append(_constants(base, feature, start, output if len(bases.T) > 1 else None))
    added = Added(trees, [0.0] * bases.shape[1], fractions=all(part.fractions for part in parts))
    built = built_of(estimator, added, request, len(names))
    kinds = [kind_of(part) for part in (estimator.first, estimator.late)]
    what = f"{kinds[0]}, from packet {start} on {kinds[1]}"
    return imported_from(estimator, request.outer, built, names, [built.note], what)


def gated(tree: SourceTree, feature: int, start: int, *, late: bool | int) -> SourceTree:
    """The tree where a feature is below `start`, or (late) where it is not; 0 elsewhere."""
    nodes = len(tree.feature)
    nothing, inside = nodes + 1, 1
    ends = (nothing, inside) if late else (inside, nothing)
    ids = np.arange(nodes) if tree.ids is None else tree.ids
    return SourceTree(
        feature=np.concatenate([[feature], tree.feature, [LEAF]]),
        cuts=Cuts(
            np.concatenate([[start - 1], tree.cuts.threshold, [0]]),
            np.concatenate([[False], tree.cuts.never, [False]]),
        ),
        left=np.concatenate([[ends[0]], tree.left.astype(np.int64) + 1, [LEAF]]),
        right=np.concatenate([[ends[1]], tree.right.astype(np.int64) + 1, [LEAF]]),
        scores=np.pad(tree.scores, ((1, 1), (0, 0))),
        output=tree.output,
        ids=np.concatenate([[_NO_NODE], ids, [_NO_NODE]]),
    )


def _constants(base: Sequence[float], feature: int, start: int, output: int | None) -> SourceTree:
    """One number below `start`, the other from there on."""
    leaves = np.array([LEAF, LEAF])
    return SourceTree(
        feature=np.array([feature, *leaves]),
        cuts=Cuts(np.array([start - 1, 0, 0]), np.zeros(3, np.bool_)),
        left=np.array([1, *leaves]),
        right=np.array([2, *leaves]),
        scores=np.array([[0.0], *([number] for number in base)]),
        output=output,
        ids=np.full(3, _NO_NODE),
    )
