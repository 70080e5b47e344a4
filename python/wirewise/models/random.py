# SPDX-License-Identifier: Apache-2.0
"""Random ensembles for parity tests and benchmarks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from wirewise.models.tree import LEAF, Tree, TreeEnsemble, Votes


def random_tree_ensemble(
    rng: np.random.Generator,
    *,
    n_features: int = 12,
    n_classes: int = 2,
    n_trees: int = 10,
    depth: int = 5,
    votes: Votes = "sum",
    n_outputs: int | None = None,
    full: bool = False,
    one_output_trees: bool | None = None,
    thresholds: Sequence[tuple[int, int]] | tuple[int, int] = (0, 1500),
    tested: Sequence[int] | None = None,
) -> TreeEnsemble:
    """An ensemble drawn from `rng`; equal generators give equal ensembles.

    full: every leaf at `depth`; otherwise a node above it is a leaf with probability 1/4, the root never.
    n_outputs: for sum votes, 1 (two classes only) or n_classes; default n_classes.
    one_output_trees: each tree adds to one output, as in multi-class boosting; default: a coin toss a tree.
    thresholds: inclusive range drawn from, one for all features or one per feature.
    tested: features that tests are drawn from; default: all.
    """
    ranges = np.array(thresholds, dtype=np.int64)
    ranges = np.tile(ranges, (n_features, 1)) if ranges.ndim == 1 else ranges
    choices = np.arange(n_features) if tested is None else np.array(tested)
    outputs = n_classes if votes == "majority" or n_outputs is None else n_outputs
    largest = (2**31 - 1) // (n_trees + 1)  # of a leaf or a base, so that scores fit int32

    def tree(index: int) -> Tree:
        feature, left, right = _structure(rng, depth, full)
        inner = feature != LEAF
        feature[inner] = choices[rng.integers(0, len(choices), inner.sum())]
        low, high = ranges[feature, 0], ranges[feature, 1]
        threshold = np.where(inner, rng.integers(low, high, endpoint=True), 0)
        single = bool(rng.integers(2)) if one_output_trees is None else one_output_trees
        output = index % outputs if votes == "sum" and single and outputs > 1 else None
        if votes == "majority":
            value = rng.integers(0, n_classes, (len(feature), 1))
        else:
            value = rng.integers(
                -largest, largest, (len(feature), 1 if output is not None else outputs), endpoint=True
            )
        return Tree(
            tuple(feature.tolist()),
            tuple(threshold.tolist()),
            tuple(left.tolist()),
            tuple(right.tolist()),
            tuple(
                () if is_inner else tuple(row)
                for is_inner, row in zip(inner.tolist(), value.tolist(), strict=True)
            ),
            output,
        )

    trees = tuple(tree(index) for index in range(n_trees))
    base = (
        [0] * outputs
        if votes == "majority"
        else rng.integers(-largest, largest, outputs, endpoint=True).tolist()
    )
    return TreeEnsemble(n_features, n_classes, votes, trees, outputs, tuple(base))


def _structure(
    rng: np.random.Generator, depth: int, full: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Level by level: feature (0 at inner nodes, -1 at leaves), left, right."""
    feature, left, right = [], [], []
    width, start = 1, 0
    for level in range(depth + 1):
        inner = np.full(width, level < depth)
        if not full and 0 < level < depth:
            inner &= rng.random(width) < 0.75
        child = start + width + 2 * (np.cumsum(inner) - 1)
        feature.append(np.where(inner, 0, LEAF))
        left.append(np.where(inner, child, LEAF))
        right.append(np.where(inner, child + 1, LEAF))
        start, width = start + width, 2 * int(inner.sum())
        if width == 0:
            break
    return np.concatenate(feature), np.concatenate(left), np.concatenate(right)
