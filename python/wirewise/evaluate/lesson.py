# SPDX-License-Identifier: Apache-2.0
"""What an estimator learns from: rows, their variants, their weights, and perhaps a teacher's scores."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from wirewise.augment import Augmentation, chosen_for_rows, vary
from wirewise.datasets.table import VARIANT, Table
from wirewise.errors import InputError, choose
from wirewise.evaluate.networks import Progress, silent, watched, weigh
from wirewise.frames import integers

Weights = Callable[[NDArray[np.int64]], "NDArray[np.float64] | None"]
MOST_COPIES = 20
"""Variants of each row."""
SHARE = 0.5
"""Of a teacher's scores in what is learned; the rest are the labels."""
LEAST_SCORE = 1e-3
"""A teacher's score below which a class is not learned for a row."""


@dataclass(frozen=True)
class Lesson:
    """All that there is to learn from. table : n labelled rows. rows, labels : of them, see `matrix` and
    `numbers`. variants : rows of variants of captures, their labels, and the number of the row (of the first
    of its flow) whose side of a split they are on; varied : which variants these are. weights : of labels,
    each class's. what, copies : the augmentation of rows.
    """

    table: Table
    rows: NDArray[np.int64]
    labels: NDArray[np.int64]
    variants: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
    varied: list[str]
    weights: Weights
    what: list[Augmentation]
    copies: int
    seed: int

    @classmethod
    def of(
        cls,
        table: Table,
        rows: NDArray[np.int64],
        labels: NDArray[np.int64],
        classes: list[str],
        *,
        class_weights: Weights,
        augment: Sequence[str],
        copies: int,
        seed: int,
    ) -> Lesson:
        """Of a table, which may have variants of captures. Raises InputError for what cannot be augmented."""
        if not 1 <= copies <= MOST_COPIES:
            raise InputError(f"{copies} copies", f"must be 1 to {MOST_COPIES}")
        usable = table.labelled
        first = (
            usable.frame.select("capture", "flow")
            .with_row_index("row")
            .unique(["capture", "flow"], keep="first", maintain_order=True)
        )
        found = table.variants.frame.filter(pl.col("label").is_in(classes)).join(
            first, on=["capture", "flow"], how="inner", maintain_order="left"
        )
        number = {name: index for index, name in enumerate(classes)}
        variants = (
            integers(found, table.feature_set.feature_names),
            np.array([number[label] for label in found["label"].to_list()], np.int64),
            found["row"].to_numpy().astype(np.int64),
        )
        what = chosen_for_rows(augment)
        if what:
            vary(Table(usable.frame.head(1), usable.feature_set), what, 1, seed)  # says so, if it cannot be
        varied = sorted(found[VARIANT].unique().to_list()) if len(found) else []
        return cls(usable, rows, labels, variants, varied, class_weights, what, copies, seed)

    def facts(self) -> dict[str, Any]:
        """For the record of a training."""
        facts: dict[str, Any] = {}
        if self.what:
            facts["augmented"] = {"rows": [each.name for each in self.what], "copies": self.copies}
        if self.varied:
            facts["variants"] = self.varied
        return facts

    def material(self, on: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows and labels to learn from where these of the table's rows may be: they, and their variants."""
        rows, labels = [self.rows[on]], [self.labels[on]]
        varied, of, first = self.variants
        if len(varied):
            mine = np.isin(first, on)
            rows.append(varied[mine])
            labels.append(of[mine])
        if self.what:
            part = Table(self.table.frame[on], self.table.feature_set)
            made = vary(part, self.what, self.copies, self.seed)
            rows.append(integers(made, part.feature_set.feature_names))
            labels += [self.labels[on]] * self.copies
        return np.concatenate(rows), np.concatenate(labels)

    def teach(
        self,
        estimator: Any,
        on: NDArray[np.int64],
        teacher: Any = None,
        progress: Progress = silent,
    ) -> Any:
        """The estimator, fitted to what may be learned from; teacher : a `teaching.Teacher`, whose
        scores are mixed with the labels. progress : is told the share that is done, 0 to 1.
        """
        from sklearn.exceptions import ConvergenceWarning

        rows, labels = self.material(on)
        weights = self.weights(labels)
        if teacher is not None:
            scores = teacher.scores(rows)
            scores = SHARE * scores + (1 - SHARE) * np.eye(scores.shape[1])[labels]
            rows, labels, weights = softened(rows, weights, scores)
        with warnings.catch_warnings(), watched(estimator, progress):  # the report says how good it is
            warnings.simplefilter("ignore", ConvergenceWarning)
            estimator.fit(rows, labels, **weigh(estimator, weights))
        return estimator


def softened(
    rows: NDArray[np.int64], weights: NDArray[np.float64] | None, scores: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Rows, labels and weights that say what the scores say: each row once for each class, weighed by its
    score. A tree fitted to them has the mean score of its rows in each leaf, and stays a classifier.

    rows : (n, n_features). weights : (n,). scores : (n, n_classes), of 0 to 1; those below LEAST_SCORE are
    left out.
    """
    kept = np.where(scores < LEAST_SCORE, 0, scores)
    kept /= kept.sum(axis=1, keepdims=True)
    row, label = np.nonzero(kept)
    given = kept[row, label] * (1.0 if weights is None else weights[row])
    return rows[row], label.astype(np.int64), given


def class_weights(
    labels: NDArray[np.int64], classes: list[str], class_weight: str | Mapping[str, float] | None
) -> NDArray[np.float64] | None:
    """The weight of every row; None if all weigh the same."""
    if class_weight is None:
        return None
    if isinstance(class_weight, str):
        if class_weight != "balanced":
            raise InputError(f"class weight {class_weight!r}", "is not known; write balanced or CLASS=WEIGHT")
        counts = np.bincount(labels, minlength=len(classes))
        by_class = len(labels) / (len(classes) * np.maximum(counts, 1))
    else:
        unknown = sorted(set(class_weight) - set(classes))
        if unknown:
            raise InputError(f"class weight {unknown[0]!r}", "names no class", choose(unknown[0], classes))
        by_class = np.array([float(class_weight.get(name, 1)) for name in classes])
        if (by_class <= 0).any():
            raise InputError("class weights", "must be positive")
    return np.asarray(by_class[labels], np.float64)
