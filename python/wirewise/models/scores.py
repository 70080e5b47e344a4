# SPDX-License-Identifier: Apache-2.0
"""The one number that says how sure a model is of a class."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from wirewise.models.binary_bank import BinaryBank
from wirewise.models.bounded import Bounded
from wirewise.models.families import Family
from wirewise.models.tree import TreeEnsemble


def n_scores(model: Family | Bounded) -> int:
    """How many scores a model gives: 1, positive for class 1; or one for each class. 0: none that would tell
    more than the class does, as of a lone decision tree, or one for each network of a bank.
    """
    if isinstance(model, Bounded):
        return n_scores(model.model)
    if isinstance(model, BinaryBank):
        return 0
    if isinstance(model, TreeEnsemble) and model.votes == "majority":
        return 0 if len(model.trees) == 1 else model.n_classes
    return model.n_outputs


def score_of(model: Family | Bounded, scores: Sequence[int] | None, class_id: int) -> int | None:
    """The score of a class, from what `predict_one` gives; None without one, as for the unknown class.

    A model with one output gives that one for either class.
    """
    count = n_scores(model)
    if scores is None or count == 0:
        return None
    if count == 1:
        return scores[0]
    return scores[class_id] if class_id < count else None


def of_classes(model: Family | Bounded, scores: NDArray[np.int64]) -> NDArray[np.int64]:
    """Scores as `predict` gives them, one for each class, (n, n_classes), or one, positive for class 1,
    (n, 1): what a bank says is the most that any of its networks says.
    """
    inside = model.model if isinstance(model, Bounded) else model
    return scores.max(axis=1, keepdims=True) if isinstance(inside, BinaryBank) else scores
