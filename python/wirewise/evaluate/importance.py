# SPDX-License-Identifier: Apache-2.0
"""Which features a model leans on: how much accuracy is lost where the values of one are shuffled.

Breiman, "Random Forests" (2001), section 10. It asks nothing but predictions, so it means the same for every
estimator and for its integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wirewise import html

MOST_ROWS = 10_000
REPEATS = 3


@dataclass(frozen=True)
class Importance:
    """names : of the features. lost : points of accuracy (0 to 100) lost without each, which noise can make
    negative. packets : how many were asked about.
    """

    names: list[str]
    lost: list[float]
    packets: int

    @classmethod
    def of(
        cls,
        predict: Callable[[NDArray[np.int64]], NDArray[Any]],
        rows: NDArray[np.int64],
        truth: NDArray[np.int64],
        names: Sequence[str],
        *,
        seed: int = 0,
    ) -> Importance:
        """Predict : class numbers (n,) of rows (n, n_features). truth : the right ones (n,). names : of the
        features. Of more than MOST_ROWS rows that many are drawn; each feature is shuffled REPEATS times.
        """
        rng = np.random.default_rng(seed)
        if len(rows) > MOST_ROWS:
            drawn = rng.permutation(len(rows))[:MOST_ROWS]
            rows, truth = rows[drawn], truth[drawn]
        whole = float((predict(rows) == truth).mean())
        lost = []
        for feature in range(rows.shape[1]):
            kept = []
            for _ in range(REPEATS):
                shuffled = rows.copy()
                shuffled[:, feature] = rng.permutation(rows[:, feature])
                kept.append(float((predict(shuffled) == truth).mean()))
            lost.append(100 * (whole - sum(kept) / REPEATS))
        return cls(list(names), lost, len(rows))

    @property
    def ranked(self) -> list[tuple[str, float]]:
        """Features and what is lost without them, the most important first."""
        return sorted(zip(self.names, self.lost, strict=True), key=lambda pair: -pair[1])

    def __repr__(self) -> str:
        first = ", ".join(f"{name} {lost:.1f}" for name, lost in self.ranked[:3])
        return f"<Importance over {self.packets:,} packets: {first}>"

    def to_html(self) -> str:
        """Bars, the most important first."""
        return html.bars((name, lost, f"{lost:.2f}") for name, lost in self.ranked)

    def _repr_html_(self) -> str:
        return html.fragment(html.heading(IMPORTANCE_TITLE), self.to_html())


IMPORTANCE_TITLE = "Points of accuracy lost where a feature is shuffled"


BINS = 16
"""Of a feature's values, each with about as many rows."""


def chi_squared(rows: NDArray[np.int64], labels: NDArray[np.int64]) -> list[float]:
    """How far each feature alone goes with the classes: Cramér's V of its values in BINS and the classes, 0
    (not at all) to 1.

    rows : (n, n_features). labels : class numbers, (n,). It is the chi-squared statistic, divided by the
    largest that so many rows could have: packets of a flow resemble each other, so its probability would mean
    nothing.
    """
    from scipy.stats.contingency import association

    found = []
    for column in rows.T:
        cuts = np.unique(np.quantile(column, np.linspace(0, 1, BINS + 1)[1:-1], method="lower"))
        counts = np.zeros((len(cuts) + 1, int(labels.max()) + 1), np.int64)
        np.add.at(counts, (np.searchsorted(cuts, column, side="left"), labels), 1)
        counts = counts[counts.any(axis=1)][:, counts.any(axis=0)]
        found.append(float(association(counts, method="cramer")) if min(counts.shape) > 1 else 0.0)
    return found
