# SPDX-License-Identifier: Apache-2.0
"""Features in the order of what they are worth: importance on captures not seen, for what they cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wirewise.feature_sets import FeatureSet
from wirewise.tuning import costs
from wirewise.tuning.jobs import Jobs
from wirewise.tuning.space import Settings
from wirewise.tuning.trial import Data, Histograms

LEAST_COST = 10
"""Instructions that every feature counts as, so that one for nothing is not worth infinitely much."""
ASKED = Settings("extra-trees", 12, 20, 5, (), "1", 1_000_000, 5, "first", "captures")
"""The forest that is asked: drawn at random, so that it leans on every feature that says something."""


@dataclass(frozen=True)
class Worth:
    """A feature: points of accuracy (0 to 100) lost where it is shuffled, on captures not seen, and its cost
    beside the other features.
    """

    name: str
    lost: float
    cost: costs.FeatureCost

    @property
    def rank(self) -> tuple[float, float]:
        """Larger is worth more: what is lost for each instruction. Where nothing is lost, the dearest feature
        is worth least.
        """
        count = max(LEAST_COST, self.cost.instructions)
        return (self.lost / count, 0.0) if self.lost > 0 else (0.0, -float(count))


def worths(
    data: Data, feature_set: FeatureSet, work: Jobs, settings: Settings = ASKED, *, measure: bool = False
) -> tuple[list[Worth], list[Histograms]]:
    """What each feature that some settings read is worth, in the table's order; and how each fold did."""
    tasks = [(settings, fold, data.order) for fold in range(len(data.folds))]
    found = [each for _, each in sorted(work.over("lean", tasks), key=lambda pair: pair[0])]
    lost = np.mean([each[0] for each in found], axis=0)
    reads = costs.narrowed(feature_set, data.columns(settings))
    price = costs.feature_costs(reads, measure=measure)
    listed = [
        Worth(name, float(points), price[name])
        for name, points in zip(reads.feature_names, lost, strict=True)
    ]
    return listed, [each[1] for each in found]


def rank(data: Data, feature_set: FeatureSet, work: Jobs) -> tuple[int, ...]:
    """Numbers of the features, the one most worth its cost first."""
    listed, _ = worths(data, feature_set, work)
    return tuple(sorted(range(len(listed)), key=lambda index: listed[index].rank, reverse=True))
