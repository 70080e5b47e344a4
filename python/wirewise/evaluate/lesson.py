# SPDX-License-Identifier: Apache-2.0
"""What an estimator learns from: rows, their variants, rows of another table, their weights, and perhaps a
teacher's scores.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from wirewise.augment import Augmentation, chosen_for_rows, vary
from wirewise.datasets.table import SOURCE, VARIANT, Table
from wirewise.errors import InputError, choose
from wirewise.evaluate.classes import BENIGN, matrix, numbers
from wirewise.evaluate.networks import Progress, silent, watched, weigh
from wirewise.evaluate.phases import Phase
from wirewise.frames import integers

Weights = Callable[[NDArray[np.int64], "NDArray[np.float64] | None"], "NDArray[np.float64] | None"]
MOST_COPIES = 20
"""Variants of each row."""
SHARE = 0.5
"""Of a teacher's scores in what is learned; the rest are the labels."""
LEAST_SCORE = 1e-3
"""A teacher's score below which a class is not learned for a row."""
WEIGH_ALIKE = ("packet", "capture", "source", "kind")
"""What can weigh the same: each row, or each capture or source of a class, however many rows it has; `kind`:
each capture of a class, and each kind of attack, however many captures it has.
"""


@dataclass(frozen=True)
class Recipe:
    """Which rows are learned from, and what they weigh. What is tested is not changed by it.

    first : packets of each flow, from its first on; None: all. flows : of each class of a capture, drawn;
    None: all. alike : one of WEIGH_ALIKE. phase : that of flows which is learned from; None: all of it.

    A capture of a flood has as many rows as a hundred others. What it is to be told from is learned from a
    few hundred of its flows; with all of them, a model learns that capture. Raises InputError for numbers
    below 1, and what is not in WEIGH_ALIKE.
    """

    first: int | None = None
    flows: int | None = None
    alike: str = "packet"
    phase: Phase | None = None

    def __post_init__(self) -> None:
        for name, number in (("packets to learn from", self.first), ("flows of a capture", self.flows)):
            if number is not None and number < 1:
                raise InputError(f"{number} {name}", "must be 1 or more")
        if self.alike not in WEIGH_ALIKE:
            raise InputError(f"weights by {self.alike!r}", "are not known", choose(self.alike, WEIGH_ALIKE))

    def kept(self, frame: pl.DataFrame, seed: int) -> NDArray[np.bool_]:
        """Which rows of a frame are learned from, (n,)."""
        flow = [name for name in ("capture", "flow", VARIANT) if name in frame.columns]
        kept = np.ones(len(frame), np.bool_)
        if self.first is not None:
            kept &= frame.select(pl.int_range(pl.len()).over(flow) < self.first).to_series().to_numpy()
        if self.flows is not None:
            flows = frame.group_by("capture", "flow", maintain_order=True).agg(pl.col("label").first())
            drawn = flows.filter(
                pl.int_range(pl.len()).shuffle(seed=seed).over("capture", "label") < self.flows
            )
            which = frame.select("capture", "flow").with_row_index("row")
            mine = which.join(drawn, on=["capture", "flow"], how="semi")["row"].to_numpy()
            kept &= np.isin(np.arange(len(frame)), mine)
        return kept if self.phase is None else kept & self.phase.learned(frame)

    def of_phases(self, late: Phase) -> tuple[Recipe, Recipe]:
        """The same for the two classifiers of `phases`. late : the phase of the second."""
        first = replace(self, phase=replace(late, late=False))
        return first, replace(self, first=None, phase=late)

    def weights(self, frame: pl.DataFrame) -> NDArray[np.float64] | None:
        """What the rows that are learned from weigh, (n,), 1 as a mean; None if all weigh the same."""
        if self.alike == "packet":
            return None
        source = pl.col(SOURCE) if self.alike == "source" and SOURCE in frame.columns else pl.lit("")
        unit = pl.when(source != "").then(source).otherwise(pl.col("capture").cast(pl.String))
        weight = 1 / pl.len().over("label", "unit")
        if self.alike == "kind":  # attacks weigh as many captures as they have, whichever kinds these are of
            attack = pl.col("label") != BENIGN
            captures = weight.filter(attack).sum() / pl.col("label").filter(attack).n_unique()
            weight *= pl.when(attack).then(captures / weight.sum().over("label")).otherwise(1)
        weights = frame.select("label", unit.alias("unit")).select(weight).to_series().to_numpy()
        return np.asarray(weights / weights.mean(), np.float64)

    def facts(self) -> dict[str, Any]:
        """For the record of a training: what is not by default."""
        facts = {"learn_first": self.first, "flows_per_capture": self.flows}
        said: dict[str, Any] = {name: number for name, number in facts.items() if number is not None}
        return said | ({"weights": self.alike} if self.alike != "packet" else {})


@dataclass(frozen=True)
class Lesson:
    """All that there is to learn from. table : n labelled rows. rows, labels : of them, see `matrix` and
    `numbers`. variants : rows of variants of captures, their labels, and the number of the row (of the first
    of its flow) whose side of a split they are on; varied : which variants these are. beside : rows, labels
    and the frame of another table, learned from whatever is kept apart. kept : which rows are learned from,
    (n,). weights : of labels and what their rows weigh, with each class's. what, copies : the
    augmentation of rows.
    """

    table: Table
    rows: NDArray[np.int64]
    labels: NDArray[np.int64]
    variants: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
    varied: list[str]
    beside: tuple[NDArray[np.int64], NDArray[np.int64], pl.DataFrame] | None
    recipe: Recipe
    kept: NDArray[np.bool_]
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
        recipe: Recipe,
        beside: Table | None = None,
    ) -> Lesson:
        """From a table, which may have variants of captures, and another one that is never tested. Raises
        InputError for what cannot be augmented, and a table that has other features.
        """
        if not 1 <= copies <= MOST_COPIES:
            raise InputError(f"{copies} copies", f"must be 1 to {MOST_COPIES}")
        usable = table.labelled
        first = (
            usable.frame.select("capture", "flow")
            .with_row_index("row")
            .unique(["capture", "flow"], keep="first", maintain_order=True)
        )
        found = table.variants.frame.join(first, on=["capture", "flow"], how="inner", maintain_order="left")
        found = found.filter(pl.Series(recipe.kept(found, seed), dtype=pl.Boolean))
        variants = (
            integers(found, table.feature_set.feature_names),
            numbers(Table(found, table.feature_set), classes),
            found["row"].to_numpy().astype(np.int64),
        )
        what = chosen_for_rows(augment)
        if what:
            vary(Table(usable.frame.head(1), usable.feature_set), what, 1, seed)  # says so, if it cannot be
        varied = sorted(found[VARIANT].unique().to_list()) if len(found) else []
        kept = recipe.kept(usable.frame, seed)
        extra = None
        if beside is not None:
            check_beside(beside, table)
            frame = beside.labelled.frame
            part = Table(
                frame.filter(pl.Series(recipe.kept(frame, seed), dtype=pl.Boolean)), beside.feature_set
            )
            extra = matrix(part), numbers(part, classes), part.frame
        return cls(
            usable, rows, labels, variants, varied, extra, recipe, kept, class_weights, what, copies, seed
        )

    def facts(self) -> dict[str, Any]:
        """For the record of a training."""
        facts = self.recipe.facts()
        if self.what:
            facts["augmented"] = {"rows": [each.name for each in self.what], "copies": self.copies}
        if self.varied:
            facts["variants"] = self.varied
        if self.beside:
            facts["packets_beside"] = len(self.beside[1])
        return facts

    def material(
        self, on: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64] | None]:
        """Rows, labels and weights to learn from where these of the table's rows may be: those that the
        recipe keeps of them, their variants, and those of the table beside.
        """
        varied, of, first = self.variants
        mine = np.isin(first, on)
        on = on[self.kept[on]]
        rows, labels, places = [self.rows[on]], [self.labels[on]], [on]
        if len(varied):
            rows.append(varied[mine])
            labels.append(of[mine])
            places.append(first[mine])
        if self.what:
            part = Table(self.table.frame[on], self.table.feature_set)
            made = vary(part, self.what, self.copies, self.seed)
            rows.append(integers(made, part.feature_set.feature_names))
            labels += [self.labels[on]] * self.copies
            places += [on] * self.copies
        frame = self.table.frame[np.concatenate(places)]
        if self.beside:
            more, of, where = self.beside
            rows.append(more)
            labels.append(of)
            frame = pl.concat([frame, where], how="diagonal_relaxed")
        weights = self.recipe.weights(frame)
        return np.concatenate(rows), np.concatenate(labels), weights

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

        rows, labels, weights = self.material(on)
        if not len(rows):
            late = self.recipe.phase
            rule = f"has no flow that lasts to packet {late.start}" if late else "has no row to learn from"
            raise InputError("the table", rule, "leave out the late model" if late else "give more captures")
        weights = self.weights(labels, weights)
        if teacher is not None:
            scores = teacher.scores(rows)
            scores = SHARE * scores + (1 - SHARE) * np.eye(scores.shape[1])[labels]
            rows, labels, weights = softened(rows, weights, scores)
        with warnings.catch_warnings(), watched(estimator, progress):  # the report says how good it is
            warnings.simplefilter("ignore", ConvergenceWarning)
            return estimator.fit(rows, labels, **weigh(estimator, weights))


def check_beside(
    beside: Table, table: Table, *, name: str = "the table beside", other: str = "the table"
) -> None:
    """Raises InputError for a table to learn from as well that has other features; name, other : of both."""
    if beside.feature_set.feature_names != table.feature_set.feature_names:
        raise InputError(name, f"has other features than {other}", "make both with the same set")


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
    labels: NDArray[np.int64],
    classes: list[str],
    class_weight: str | Mapping[str, float] | None,
    weights: NDArray[np.float64] | None = None,
) -> NDArray[np.float64] | None:
    """The weight of every row; None if all weigh the same. weights : what rows weigh without those of their
    classes, (n,).
    """
    if class_weight is None:
        return weights
    if isinstance(class_weight, str):
        if class_weight != "balanced":
            raise InputError(f"class weight {class_weight!r}", "is not known; write balanced or CLASS=WEIGHT")
        totals = np.bincount(labels, weights=weights, minlength=len(classes))
        by_class = totals.sum() / (len(classes) * np.maximum(totals, 1e-9))
    else:
        unknown = sorted(set(class_weight) - set(classes))
        if unknown:
            raise InputError(f"class weight {unknown[0]!r}", "names no class", choose(unknown[0], classes))
        by_class = np.array([float(class_weight.get(name, 1)) for name in classes])
        if (by_class <= 0).any():
            raise InputError("class weights", "must be positive")
    return np.asarray(by_class[labels] if weights is None else by_class[labels] * weights, np.float64)
