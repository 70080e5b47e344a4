# SPDX-License-Identifier: Apache-2.0
"""How sure a number is: captures drawn again, with replacement, as if others of their kind were recorded;
and a model of how sources differ, for rare losses, which few of them have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from wirewise.evaluate.report import counts, ratios

DRAWS = 1000
"""Of the bootstrap over captures."""
_CELLS = 4_000_000  # numbers at once, of a part of the draws

Interval = tuple[float, float]
"""95 % of the bootstrap's draws lie between."""

_MEANS = np.geomspace(1e-5, 0.5, 120)
_ALIKE = np.geomspace(3, 1e4, 40)
"""Of `elsewhere`: shares of all sources together; how alike sources are (a + b of the beta distribution)."""


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
    there = matrices.sum(axis=2) > 0
    found = ratios(*counts(matrices, names))
    return {
        name: {ratio: interval(values[there[:, at], at]) for ratio, values in found.items()}
        for at, name in enumerate(names)
        if there[:, at].any()
    }


def interval(values: NDArray[np.float64]) -> Interval:
    """Between which 95 % of the values lie."""
    low, high = np.quantile(values, (0.025, 0.975))
    return float(low), float(high)


def elsewhere(sources: Sequence[str], lost: NDArray[np.bool_]) -> float:
    """The share of flows lost on other sources at worst, 0 to 1: with 95 % it is no more.

    sources : of each flow, n. lost : whether it is, (n,). What a source loses is taken to be binomial, and
    the shares of sources to be of a beta distribution (Griffiths, "Maximum likelihood estimation for the
    beta-binomial distribution", Biometrics 29, 1973), whose mean has Jeffreys' prior. A bootstrap over few
    sources is too sure of a loss that only some of them have: if none of these is among the few, it says 0.
    """
    from scipy.special import betaln

    _, number = np.unique(np.array(sources), return_inverse=True)
    flows, losses = np.bincount(number), np.bincount(number, weights=lost)
    mean = _MEANS[:, None]
    a, b = mean * _ALIKE, (1 - mean) * _ALIKE
    likelihood = np.zeros(a.shape)
    for (count, loss), times in Counter(zip(flows.tolist(), losses.tolist(), strict=True)).items():
        likelihood += times * (betaln(loss + a, count - loss + b) - betaln(a, b))
    weight = (np.exp(likelihood - likelihood.max()) * np.sqrt(mean)).sum(axis=1)
    return float(_MEANS[np.searchsorted(np.cumsum(weight) / weight.sum(), 0.95)])
