# SPDX-License-Identifier: Apache-2.0
"""A model of its own for flows that last: what tells a tunnel or a slow flood shows after dozens of packets.

A second classifier judges every packet of a flow from a given number on. It learns from such packets only,
and has a margin of its own. A model that learned from first packets gains nothing by judging later ones
(docs/training.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from wirewise.errors import InputError
from wirewise.evaluate.out_of_fold import scores
from wirewise.feature_sets import FeatureSet
from wirewise.feature_sets.accumulators import COUNT_MAX

START = 30
"""The packet of a flow from which on the second classifier usually decides."""
EVERY, ROWS = 10, 20
"""The late model learns from every tenth packet of a flow, 20 of them at most."""
_COUNT = "count"


KEY = "late"
"""In the facts of a training: what there is of `Late`."""


@dataclass(frozen=True)
class Late:
    """The second classifier: trees, as of `train`. start : the first packet that it judges, from 2 on. Raises
    InputError for another.
    """

    start: int = START
    trees: int = 20
    depth: int = 12
    leaf: int | None = None

    def __post_init__(self) -> None:
        if not 2 <= self.start <= COUNT_MAX:
            raise InputError(
                f"a late model from packet {self.start}", f"must start at packet 2 to {COUNT_MAX:,}"
            )


def start_of(training: Mapping[str, Any] | None) -> int | None:
    """The packet from which on a late model judges, by the facts of a training; None without one."""
    late = (training or {}).get(KEY)
    start = late.get("start") if isinstance(late, dict) else None
    return start if type(start) is int and 2 <= start <= COUNT_MAX else None


@dataclass(frozen=True)
class Phase:
    """The rows of a flow that one of the two judges. feature : the column that counts the flow's packets."""

    feature: str
    start: int
    late: bool

    def judged(self, frame: pl.DataFrame) -> NDArray[np.bool_]:
        """Which rows it judges, (n,)."""
        later = frame[self.feature].to_numpy() >= self.start
        return later if self.late else ~later

    def learned(self, frame: pl.DataFrame) -> NDArray[np.bool_]:
        """Which rows it may learn from, (n,)."""
        if not self.late:
            return self.judged(frame)
        since = frame[self.feature].to_numpy() - self.start
        return np.asarray((since >= 0) & (since % EVERY == 0) & (since < EVERY * ROWS), np.bool_)


def packets_feature(feature_set: FeatureSet) -> int:
    """The index of the feature that counts the packets of a flow. Raises InputError if there is none."""
    for index, feature in enumerate(feature_set.features):
        if feature.spec == _COUNT:
            return index
    raise InputError(
        f"feature set {feature_set.name!r}",
        "has no feature that counts the packets of a flow, so nothing tells when it is late",
        "add one: packets: count",
    )


class Phases:
    """Two fitted classifiers of trees, to class numbers; `classes_` may be set to their names.

    feature : index of the one that counts a flow's packets. start : the least value at which `late` decides.
    """

    def __init__(self, first: Any, late: Any, feature: int, start: int, classes: int) -> None:
        self.first, self.late, self.feature, self.start = first, late, feature, start
        self.classes_: NDArray[Any] = np.arange(classes)
        self.n_features_in_ = int(first.n_features_in_)

    def decision_function(self, rows: Any) -> NDArray[np.float64]:
        """What the trees add up for each class, (n, n_classes)."""
        x = np.asarray(rows)
        later = x[:, self.feature] >= self.start
        found = np.zeros((len(x), len(self.classes_)))
        for part, mine in ((self.first, ~later), (self.late, later)):
            if mine.any():
                found[mine] = sums(part, x[mine], len(self.classes_))
        return found

    def predict(self, rows: Any) -> NDArray[Any]:
        """One of `classes_` for each row, (n,); of equal scores the first."""
        return np.asarray(self.classes_[self.decision_function(rows).argmax(axis=1)])


def sums(part: Any, rows: NDArray[np.int64], classes: int) -> NDArray[np.float64]:
    """What fitted trees add up for each class, (n, classes), as integers do; forests give a mean."""
    said = scores(part, rows, classes)
    assert said is not None
    return said * (1 if hasattr(part, "decision_function") else len(getattr(part, "estimators_", [part])))
