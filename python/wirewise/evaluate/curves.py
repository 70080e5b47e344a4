# SPDX-License-Identifier: Apache-2.0
"""Attack against benign by score: what any threshold would give, as ROC and precision-recall curves."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_POINTS = 200
"""Of a curve, as it is kept: more are not seen in a plot."""

Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Curves:
    """Curves over every threshold. All numbers are of 0 to 1.

    roc : (share of benign flagged, share of attacks flagged), from (0, 0) to (1, 1). auc : the area below it,
    0.5 if scores say nothing. precision_recall : (recall, precision), by rising recall. average_precision :
    the mean precision over recall, the share of attacks if scores say nothing. at : (benign flagged, recall,
    precision) of the model's own threshold. thresholds : how many different ones the scores allow; a few mean
    that the curve is straight lines between them.
    """

    roc: Points
    auc: float
    precision_recall: Points
    average_precision: float
    at: tuple[float, float, float]
    thresholds: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def curves(attack: NDArray[np.bool_], score: NDArray[np.int64], said: NDArray[np.bool_]) -> Curves | None:
    """The curves of n flows or packets, by scikit-learn.

    attack : what each is, (n,). score : how far the best other class is ahead of benign, (n,), see
    `operating_point.margins`. said : whether the model, as it is, says attack, (n,). Gives None unless there
    are both kinds.
    """
    if not attack.any() or attack.all():
        return None
    from sklearn.metrics import auc, average_precision_score, precision_recall_curve, roc_curve

    flagged, caught, _ = roc_curve(attack, score)
    precision, recall, _ = precision_recall_curve(attack, score)
    hits = int((said & attack).sum())
    return Curves(
        _thinned(flagged, caught),
        float(auc(flagged, caught)),
        _thinned(recall[::-1], precision[::-1]),
        float(average_precision_score(attack, score)),
        (float(said[~attack].mean()), hits / int(attack.sum()), hits / max(1, int(said.sum()))),
        len(np.unique(score)),
    )


def _thinned(x: NDArray[np.float64], y: NDArray[np.float64]) -> Points:
    """At most MOST_POINTS of the points, at even distances along the curve, with both ends."""
    if len(x) > MOST_POINTS:
        length = np.concatenate([[0.0], np.cumsum(np.hypot(np.diff(x), np.diff(y)))])
        kept = np.unique(np.searchsorted(length, np.linspace(0, length[-1], MOST_POINTS)).clip(0, len(x) - 1))
        x, y = x[kept], y[kept]
    return list(zip(x.tolist(), y.tolist(), strict=True))
