# SPDX-License-Identifier: Apache-2.0
"""How sure a number is: captures drawn again, with replacement, as if others of their kind were recorded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

DRAWS = 1000
"""Of the bootstrap over captures."""
_CELLS = 4_000_000  # numbers at once, of a part of the draws

Interval = tuple[float, float]
"""95 % of the bootstrap's draws lie between."""


def confusions(
    captures: Sequence[str], truth: NDArray[np.int64], said: NDArray[np.int64], classes: int, seed: int = 0
) -> NDArray[np.float64]:
    """The confusion matrix of each draw, shape (DRAWS, classes, classes), rows the truth; of no draw with
    fewer than two captures, which say nothing of others.

    captures : of each flow, n. truth, said : class numbers, (n,).
    """
    from scipy.sparse import coo_array

    names, number = np.unique(np.array(captures), return_inverse=True)
    if len(names) < 2:
        return np.zeros((0, classes, classes))
    cells = coo_array(
        (np.ones(len(truth)), (truth * classes + said, number)), shape=(classes * classes, len(names))
    ).tocsr()
    rng = np.random.default_rng(seed)
    found = np.empty((DRAWS, classes * classes))
    step = max(1, _CELLS // len(names))
    for start in range(0, DRAWS, step):
        count = min(step, DRAWS - start)
        drawn = rng.multinomial(len(names), [1 / len(names)] * len(names), count)
        found[start : start + count] = (cells @ drawn.T).T
    return found.reshape(DRAWS, classes, classes)


def of_classes(matrices: NDArray[np.float64], names: Sequence[str]) -> dict[str, dict[str, Interval]]:
    """Intervals of each class's precision, recall and F1, by class name; of `confusions`.

    A draw in which a class does not occur says nothing of it. Classes of no draw are left out.
    """
    if not len(matrices):
        return {}
    right = np.diagonal(matrices, axis1=1, axis2=2)
    true, said = matrices.sum(axis=2), matrices.sum(axis=1)
    ratios = {
        "precision": right / np.maximum(said, 1),
        "recall": right / np.maximum(true, 1),
        "f1": 2 * right / np.maximum(true + said, 1),
    }
    there = true > 0
    return {
        name: {ratio: interval(values[there[:, at], at]) for ratio, values in ratios.items()}
        for at, name in enumerate(names)
        if there[:, at].any()
    }


def interval(values: NDArray[np.float64]) -> Interval:
    """Between which 95 % of the values lie."""
    low, high = np.quantile(values, (0.025, 0.975))
    return float(low), float(high)
