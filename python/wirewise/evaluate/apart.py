# SPDX-License-Identifier: Apache-2.0
"""Trees that learn the attacks of a table beside alone, such as made floods, and find a class of their own.

Learned together, made traffic and captures take trees from each other: whoever knows the floods finds fewer
guessed logins (docs/training.md). Apart, whichever is surer decides, by the same margin. A tree adds at most
one to a sum, so fewer trees must agree more to be ahead by as much. Captures beside that have no attacks are
for all trees.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from wirewise.datasets.table import Table
from wirewise.errors import InputError
from wirewise.evaluate.classes import ATTACK, BENIGN
from wirewise.evaluate.phases import sums

KEY = "apart"
"""In the facts of a training: what there is of `Apart`."""


@dataclass(frozen=True)
class Apart:
    """The class of what is beside, and how many trees find it; None: four for five of the others. Raises
    InputError for a name that another class has.
    """

    name: str
    trees: int | None = None

    def __post_init__(self) -> None:
        if self.name in ("", BENIGN, ATTACK):
            raise InputError(
                f"a class {self.name!r} of what is beside", "must have a name of its own", "call it flood"
            )

    def sized(self, others: int) -> Apart:
        """With the number of its trees beside `others`. With fewer than these they must agree more to be
        ahead by as much, but they must be able to: a margin for 40 is out of reach of 16.
        """
        return self if self.trees is not None else replace(self, trees=max(1, others * 4 // 5))


def quiet_of(beside: Table | None) -> Table | None:
    """What all trees learn of a table beside: its captures without attacks; None if there are none."""
    if beside is None:
        return None
    labelled = beside.labelled
    quiet = labelled.frame.filter((pl.col("label") == BENIGN).all().over("capture"))
    return Table(quiet, labelled.feature_set) if len(quiet) else None


class Together:
    """Two fitted classifiers of trees, of benign traffic (0) and attacks (1), as one of three classes:
    benign, what `usual` finds, and what `own` finds. `classes_` may be set to their names.
    """

    def __init__(self, usual: Any, own: Any) -> None:
        self.usual, self.own = usual, own
        self.classes_: NDArray[Any] = np.arange(3)
        self.n_features_in_ = int(usual.n_features_in_)

    def decision_function(self, rows: Any) -> NDArray[np.float64]:
        """What the trees add up for each class, (n, 3): 0 for benign, and how far each is ahead of it."""
        x = np.asarray(rows)
        said = [sums(part, x, 2) for part in (self.usual, self.own)]
        return np.stack([np.zeros(len(x)), *(of[:, 1] - of[:, 0] for of in said)], axis=1)

    def predict(self, rows: Any) -> NDArray[Any]:
        """One of `classes_` for each row, (n,); of equal scores the first."""
        return np.asarray(self.classes_[self.decision_function(rows).argmax(axis=1)])
