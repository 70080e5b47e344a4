# SPDX-License-Identifier: Apache-2.0
"""How far the judged flows are from those that the model learned from: what `wirewised stats --drift` says of
live flows (crates/wirewised/src/reading/drift.rs, whose numbers these are), said of rows.

Each feature is compared with what training saw in flows of the same classes, by the population stability
index (PSI): the sum over bins of (here - training) ln(here / training). What chance alone may give follows
from the numbers of flows (Yurdakul and Naranjo, "Statistical properties of the population stability index",
2020).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from wirewise.datasets.table import Table
from wirewise.evaluate.reference import last_of_flows
from wirewise.formats.manifest import Histogram, Reference

Level = Literal["like-training", "watch", "out-of-depth"]
LEVELS: tuple[Level, ...] = ("like-training", "watch", "out-of-depth")

FEWEST_FLOWS = 100
"""Fewer give no verdict."""
WATCH, OUT_OF_DEPTH = 0.1, 0.25
"""Of PSI, and of the share of flows outside the range that training saw."""
FLOOR = 1e-4
"""Least share of a bin in PSI, which an empty one would make endless."""
DEVIATIONS = 3.0
"""Standard deviations above its mean that PSI may have by chance."""


@dataclass(frozen=True)
class FeatureDrift:
    """One feature. psi up to `chance` may be chance. outside : share of flows (0 to 1) outside `low` to
    `high`, the range that training saw, in the feature's integers.
    """

    name: str
    level: Level
    psi: float
    chance: float
    outside: float
    low: int
    high: int


@dataclass(frozen=True)
class Drift:
    """level : None for fewer than FEWEST_FLOWS flows. features : the highest PSI first."""

    level: Level | None
    flows: int
    training_flows: int
    features: list[FeatureDrift]

    @property
    def sentence(self) -> str:
        """What it means, for people."""
        if self.level is None:
            return f"{self.flows:,} flows are too few to say whether they look like training's."
        far = [feature for feature in self.features if feature.level != "like-training"]
        what = {
            "like-training": "look like those that the model learned from",
            "watch": "differ from those that the model learned from",
            "out-of-depth": "are unlike those that the model learned from: it is out of its depth",
        }[self.level]
        most = f"; {far[0].name} differs most (PSI {far[0].psi:.2f})" if far else ""
        return f"The {self.flows:,} flows judged here {what}{most}."


def drift(reference: Reference, rows: Table, said: NDArray[np.int64], key: str) -> Drift | None:
    """The flows of rows against those of a bundle's reference, each at its last row.

    said : the model's class numbers, (n,). key : the flow key of the bundle's program. None where rows do not
    tell flows apart as the program does.
    """
    last = last_of_flows(rows, key)
    if last is None or not len(last) or not reference.features:
        return None
    classes = said[last]
    features = [
        _feature(one, reference, rows.frame[one.name].to_numpy()[last], classes)
        for one in reference.features
        if one.name in rows.frame.columns
    ]
    features.sort(key=lambda one: -one.psi)
    return Drift(_verdict(features, len(last)), len(last), sum(reference.flows), features)


def _feature(
    histogram: Histogram, reference: Reference, values: NDArray[np.int64], classes: NDArray[np.int64]
) -> FeatureDrift:
    bins = len(histogram.edges) + 1
    here = np.bincount(np.searchsorted(histogram.edges, values, side="right"), minlength=bins)
    outside = float(((values < histogram.low) | (values > histogram.high)).mean())
    training, spread = _expected(histogram, np.bincount(classes, minlength=len(reference.flows)))
    psi = _psi(training, here / len(values))
    chance = (bins - 1 + DEVIATIONS * (2 * (bins - 1)) ** 0.5) * (1 / len(values) + spread)
    level = LEVELS[max(_level(psi, chance), _level(outside, 0.0))]
    return FeatureDrift(histogram.name, level, psi, chance, outside, histogram.low, histogram.high)


def _expected(histogram: Histogram, flows: NDArray[np.int64]) -> tuple[NDArray[np.float64], float]:
    """The shares of bins in training's flows, weighted to have the classes that the flows have here; how much
    they vary by chance, as one over a number of flows. A class that training has no flow of is expected to
    look like all.
    """
    counts = np.array(histogram.counts, np.float64)
    expected, spread = np.zeros(counts.shape[1]), 0.0
    for weight, own in zip(flows / flows.sum(), counts, strict=True):
        of_class = own if own.any() else counts.sum(axis=0)
        expected += weight * of_class / of_class.sum()
        spread += weight**2 / of_class.sum()
    return expected, float(spread)


def _psi(training: NDArray[np.float64], here: NDArray[np.float64]) -> float:
    training, here = np.maximum(training, FLOOR), np.maximum(here, FLOOR)
    return float(((here - training) * np.log(here / training)).sum())


def _level(found: float, chance: float) -> int:
    return int(found > max(WATCH, chance)) + int(found > max(OUT_OF_DEPTH, chance))


def _verdict(features: list[FeatureDrift], flows: int) -> Level | None:
    """One feature whose shares differ is to be watched. The model is out of its depth where it never saw such
    values, or where half of the features differ much.
    """
    if flows < FEWEST_FLOWS or not features:
        return None
    differ = sum(feature.level == "out-of-depth" for feature in features)
    if any(feature.outside > OUT_OF_DEPTH for feature in features) or 2 * differ >= len(features):
        return "out-of-depth"
    return LEVELS[min(1, max(LEVELS.index(feature.level) for feature in features))]
