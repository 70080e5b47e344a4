# SPDX-License-Identifier: Apache-2.0
"""Leaving out features one by one, first those least worth what they cost in the kernel.

In each step a forest is cross-validated over captures, and asked what it loses without each feature. What
that is worth is counted per instruction that the feature adds to a program with the features that are left:
of two features over the same state, the second is cheap as long as the first is there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from wirewise.datasets.table import Table
from wirewise.evaluate.classes import check_classes
from wirewise.evaluate.importance import chi_squared
from wirewise.evaluate.split import alone
from wirewise.feature_sets import FeatureSet
from wirewise.tuning import costs
from wirewise.tuning.jobs import Jobs
from wirewise.tuning.ranking import ASKED, Worth, worths
from wirewise.tuning.space import Settings
from wirewise.tuning.trial import Data, Score, score

LAYOUT = 0.01
"""Share of a program's instructions by which the compiler's ways to lay out the same work differ."""


@dataclass(frozen=True)
class Step:
    """A feature set on the way: how a forest over it did, and the program that computes it.

    dropped : the feature that is left out next; "" in the last step.
    """

    feature_set: FeatureSet
    score: Score
    instructions: int
    dropped: str

    def to_dict(self) -> dict[str, Any]:
        return {
            "features": self.feature_set.feature_names,
            "score": asdict(self.score),
            "instructions": self.instructions,
            "dropped": self.dropped,
        }


@dataclass(frozen=True)
class Worths:
    """features : as they are worth it beside all others, the most first. chi_squared : of each by name, see
    there. steps : of the elimination, all features first; only the first without elimination.
    """

    features: list[Worth]
    chi_squared: dict[str, float]
    steps: list[Step]

    def chosen(self, tolerance: float) -> Step:
        """The cheapest step whose F1 is at most `tolerance` (0 to 1) below the best; of steps that cost the
        same but for what the compiler made of them, that with the fewest features.
        """
        best = max(step.score.even_f1 for step in self.steps)
        near = [step for step in self.steps if step.score.even_f1 >= best - tolerance]
        least = min(step.instructions for step in near)
        cheapest = (step for step in near if step.instructions <= (1 + LAYOUT) * least)
        return min(cheapest, key=lambda step: len(step.feature_set.features))

    def to_dict(self) -> dict[str, Any]:
        return {
            "features": [
                {
                    "name": each.name,
                    "accuracy_points_lost": each.lost,
                    "chi_squared_v": self.chi_squared[each.name],
                    **asdict(each.cost),
                }
                for each in self.features
            ],
            "steps": [step.to_dict() for step in self.steps],
        }


def features_worth(
    table: Table,
    *,
    settings: Settings = ASKED,
    eliminate: bool = False,
    benign_loss: float | None = 0.01,
    measure: bool = False,
    folds: int = 5,
    seed: int = 0,
    jobs: int | None = 1,
    ray: str | None = None,
    journal: Path | None = None,
    digest: str = "",
    progress: Callable[[int, int, Any], None] = lambda done, total, best: None,
) -> Worths:
    """What each feature of a table says of captures that were not learned from, and what it costs.

    settings : the model that is asked. eliminate : go on without the feature least worth its cost, until one
    is left. benign_loss, folds, jobs, ray, journal, digest : as of `search`. measure : ns as well, in this
    kernel. Raises InputError for a table that cannot be split, MissingFeatureError without clang.
    """
    usable = table.labelled
    classes = check_classes(usable)
    by = "capture" if len(alone(usable.frame)) < len(classes) else "flow"
    data = Data.of(usable, classes, by, folds, seed)
    names = usable.feature_set.feature_names
    asked = {"settings": settings.to_dict(), "folds": folds, "seed": seed, "table": digest, "split": by}
    left = list(range(len(names)))
    first: list[Worth] = []
    steps: list[Step] = []
    with Jobs(data, journal, asked, progress, jobs=jobs, ray=ray) as work:
        while left:
            order = (*left, *(index for index in range(len(names)) if index not in left))
            now = replace(data, order=order)
            reading = replace(settings, features=len(left))
            listed, judged = worths(now, usable.feature_set, work, reading, measure=measure and not steps)
            first = first or listed
            worst = min(range(len(left)), key=lambda index: listed[index].rank)
            own = costs.narrowed(usable.feature_set, left)
            last = not eliminate or len(left) == 1
            dropped = "" if last else listed[worst].name
            steps.append(Step(own, score(judged, benign_loss), costs.instructions(own), dropped))
            if last:
                break
            left.pop(worst)
    return Worths(
        sorted(first, key=lambda each: each.rank, reverse=True),
        dict(zip(names, chi_squared(data.rows, data.labels), strict=True)),
        steps,
    )
