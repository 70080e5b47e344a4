# SPDX-License-Identifier: Apache-2.0
"""Rows that try a model: the benches of targets compare what they give with the reference."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wirewise.models import BinaryMlp, Bounded, Model, TreeEnsemble
from wirewise.models.binary_mlp import BitsInput
from wirewise.models.rules import INT64_MAX, INT64_MIN


def trying_rows(model: Model, count: int) -> NDArray[np.int64]:
    """(count, n_features): around thresholds, at the ends of int64, and between."""
    rng = np.random.default_rng(int(model.digest[:16], 16))
    near = _thresholds(model)
    made = np.zeros((count, model.n_features), np.int64)
    for feature in range(model.n_features):
        marks = np.array(sorted({*near.get(feature, ()), 0, 1 << 16}), dtype=np.int64)
        offset = rng.integers(-1, 1, count, endpoint=True)
        chosen = rng.choice(marks, count)
        inside = np.where(
            (chosen == INT64_MAX) & (offset > 0) | (chosen == INT64_MIN) & (offset < 0), 0, offset
        )
        low, high = int(marks.min()), int(marks.max())
        between = rng.integers(low, high, count, endpoint=True)
        anything = rng.integers(INT64_MIN, INT64_MAX, count, endpoint=True)
        kind = rng.random(count)
        made[:, feature] = np.where(kind < 0.5, chosen + inside, np.where(kind < 0.95, between, anything))
    return made


def _thresholds(model: Model) -> dict[int, set[int]]:
    """What a model compares each feature with."""
    inside = model.model if isinstance(model, Bounded) else model
    found: dict[int, set[int]] = {}
    if isinstance(model, Bounded):
        for bound in model.bounds:
            found.setdefault(bound.feature, set()).update((bound.low, bound.high))
    if isinstance(inside, TreeEnsemble):
        for tree in inside.trees:
            for feature, threshold in zip(tree.feature, tree.threshold, strict=True):
                found.setdefault(feature, set()).add(threshold)
    elif isinstance(inside, BinaryMlp):
        for source in inside.inputs:
            if isinstance(source, BitsInput):
                found.setdefault(source.feature, set()).add((1 << source.shift + source.bits) - 1)
            else:
                found.setdefault(source.feature, set()).update(source.thresholds)
    return found
