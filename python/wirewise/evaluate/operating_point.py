# SPDX-License-Identifier: Apache-2.0
"""How far ahead of benign an attack's score must be, and how often in a row, so that few benign flows lose a
packet.

A model says the class with the largest score. Here `benign` is favoured: another class must be ahead of it by
more than a margin, chosen on captures that were kept apart. The margin goes into the model's own numbers (its
first score starts higher), so every target and every plane has it, at no cost. How many verdicts in a row a
flow needs is the policy's `after`: with more of them, less of a margin is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from wirewise.abi import MAX_AFTER
from wirewise.errors import InputError
from wirewise.evaluate.classes import BENIGN, matrix, numbers
from wirewise.evaluate.held_out import Parts
from wirewise.models import Model, TreeEnsemble
from wirewise.models.scores import of_classes

NEVER = int(np.iinfo(np.int64).min)
"""The margin of a flow that has no such verdicts."""

COMPARED = (1, 2, 3)
"""Verdicts in a row that are compared."""


@dataclass(frozen=True)
class InARow:
    """What it takes and gives if a flow needs `after` verdicts in a row for one class; as OperatingPoint."""

    after: int
    by: int
    loss: float
    elsewhere: float | None
    recall: float


@dataclass(frozen=True)
class LateMargin:
    """The margin of the second of two `phases`: of rows whose feature is `start` or more."""

    feature: int
    start: int
    by: int


@dataclass(frozen=True)
class OperatingPoint:
    """Where a model was set to work. Shares are of 0 to 1, of flows that have such a verdict on any packet.

    wish : the share of benign flows that may lose a packet. by : how far another class must be ahead of
    benign, in units of the model's scores. benign, attack : flows it was chosen by. loss : share of the
    benign ones that lose a packet. elsewhere : the same, each capture judged with the margin that the others
    ask for, which is what to expect of new captures; None with a single capture. recall : share of attack
    flows that are flagged. loss_before, recall_before : without a margin, by single verdicts. after :
    verdicts in a row that a flow needs, which the policy must ask for. compared : the same for other numbers.
    late : another margin from some packet of a flow on; None: `by` holds there, too.
    """

    wish: float
    by: int
    benign: int
    attack: int
    loss: float
    elsewhere: float | None
    recall: float
    loss_before: float
    recall_before: float
    how: str = ""
    after: int = 1
    compared: tuple[InARow, ...] = ()
    late: LateMargin | None = None

    def set(self, model: Model) -> Model:
        """The model with these margins. Raises InputError for one without scores, or room for them."""
        made = model.favour(self.by)
        if self.late is None or self.late.by == self.by:
            return made
        if not isinstance(made, TreeEnsemble):
            raise InputError("the model", "has no second phase", "train it again")
        return made.favour_from(self.late.feature, self.late.start, self.late.by - self.by)


def choose(
    model: Model,
    frame: pl.DataFrame,
    rows: NDArray[np.int64],
    truth: NDArray[np.int64],
    wish: float,
    how: str = "",
    after: int | None = 1,
) -> OperatingPoint:
    """The least margin with which no more than the wished share of benign flows loses a packet.

    frame : n rows of a table that the model has not seen, with the columns `capture` and `flow`, in the order
    of each flow's packets. rows : their features, shape (n, n_features). truth : class numbers, shape (n,);
    rows with -1 are left out. wish : 0 to 1. after : verdicts in a row that a flow needs, 1 to MAX_AFTER;
    None: of COMPARED the one with which most attacks are seen, the fewest where that is equal.

    Raises InputError for a model without scores, a wish that is no share, such a number that is out of range,
    and where no flow is benign.
    """
    if after is not None and not 1 <= after <= MAX_AFTER:
        raise InputError(f"{after} verdicts in a row", f"must be from 1 to {MAX_AFTER}")
    if not 0 <= wish < 1:
        raise InputError(f"benign loss {wish}", "must be a share of flows from 0 to below 1, such as 0.1%")
    model.favour(0)  # says so, if it has no scores
    known = truth >= 0
    lengths = sorted({*COMPARED, *([after] if after else [])})
    scores = of_classes(model, model.predict(rows[known])[1])
    flows = by_flow(frame.filter(pl.Series(known)), truth[known], scores, lengths)
    benign, attack = flows.filter(~pl.col("attack")), flows.filter(pl.col("attack"))
    if not len(benign):
        raise InputError("the table", "has no benign flow left to set the margin by", "give more captures")
    captures = benign["capture"].to_list()

    def needing(number: int) -> InARow:
        margin, caught = benign[str(number)].to_numpy(), attack[str(number)].to_numpy()
        by = least_margin(margin, wish)
        return InARow(
            number, by, _share(margin > by), _elsewhere(captures, margin, wish), _share(caught > by)
        )

    found = [needing(number) for number in lengths]
    chosen = max(found, key=lambda it: (it.recall, -it.after) if after is None else it.after == after)
    return OperatingPoint(
        wish,
        chosen.by,
        len(benign),
        len(attack),
        chosen.loss,
        chosen.elsewhere,
        chosen.recall,
        _share(benign["1"].to_numpy() > 0),
        _share(attack["1"].to_numpy() > 0),
        how,
        chosen.after,
        tuple(it for it in found if it is not chosen),
    )


def by_flow(
    frame: pl.DataFrame, truth: NDArray[np.int64], scores: NDArray[np.int64], lengths: Sequence[int]
) -> pl.DataFrame:
    """A row for each flow: whether it is an attack, and for each of `lengths` the margin below which the flow
    has so many verdicts in a row for one class.
    """
    flow, order = _flows_together(frame)
    margin = lead(scores)[order]
    ahead = np.zeros_like(margin) if scores.shape[1] == 1 else scores[order, 1:].argmax(axis=1)
    columns: dict[str, NDArray[np.int64]] = {}
    for length in lengths:
        least = margin.copy()
        for back in range(1, length):
            least[back:] = np.minimum(least[back:], margin[:-back])
        columns[str(length)] = np.where(_repeated(flow, ahead, length), least, NEVER)
    return (
        frame[order]
        .select("capture", "flow")
        .with_columns(attack=pl.Series(truth[order] > 0), **{k: pl.Series(v) for k, v in columns.items()})
        .group_by("capture", "flow", maintain_order=True)
        .agg(pl.col("attack").first(), pl.col(*columns).max())
    )


def in_a_row(frame: pl.DataFrame, said: NDArray[np.int64], after: int) -> NDArray[np.int64]:
    """What verdicts count as under a policy that asks for `after` in a row: class 0 before that, (n,).

    frame : n rows with the columns `capture` and `flow`, in the order of each flow's packets. said : class
    numbers, (n,).
    """
    flow, order = _flows_together(frame)
    verdict = said[order]
    counted = np.zeros_like(said)
    counted[order] = np.where(_repeated(flow, verdict, after), verdict, 0)
    return counted


def _repeated(flow: NDArray[np.int64], said: NDArray[np.int64], length: int) -> NDArray[np.bool_]:
    """Whether each row ends so many rows of its flow that say the same, (n,). flow, said : with each flow's
    rows behind each other, as `_flows_together` has them.
    """
    same = np.ones(len(said), bool)
    for back in range(1, length):
        same[:back] = False
        same[back:] &= (flow[back:] == flow[:-back]) & (said[back:] == said[:-back])
    return same


def _flows_together(frame: pl.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The number of each row's flow, and the rows' places, with each flow's rows behind each other."""
    number = frame.select(pl.struct("capture", "flow").rank("dense")).to_series().to_numpy()
    order = np.argsort(number, kind="stable")
    return number[order].astype(np.int64), order


def choose_from(
    model: Model,
    classes: Sequence[str],
    table: Parts,
    wish: float,
    *,
    quantised: bool,
    after: int | None = 1,
) -> OperatingPoint:
    """As `choose`, by the rows of a table that are best known not to have made the model what it is.

    quantised : the model is a network that was quantised with a part of the table. Raises InputError where a
    class other than the first is called benign.
    """
    model.favour(0)  # trees that vote keep their classes' order, and have no scores
    if BENIGN in classes[1:]:
        raise InputError(
            "the model",
            f"has benign as class {list(classes).index(BENIGN)}, and a margin is that of class 0",
            "import the estimator again, which makes benign class 0",
        )
    judged, how = table.judged(quantised)
    return choose(model, judged.frame, matrix(judged), numbers(judged, list(classes)), wish, how, after)


def margins(model: Model, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """How far the best other class is ahead of class 0, shape (n,): it is said if that is above 0."""
    return lead(of_classes(model, model.predict(rows)[1]))


def lead(scores: NDArray[np.int64]) -> NDArray[np.int64]:
    """As `margins`, of scores of shape (n, 1) or (n, n_classes)."""
    if scores.shape[1] == 1:
        return scores[:, 0]
    return np.asarray(scores[:, 1:].max(axis=1) - scores[:, 0])


def least_margin(benign: NDArray[np.int64], wish: float) -> int:
    """The least margin, 0 or more, that no more than this share of benign flows is above.

    benign : the largest margin of each flow, shape (n,).
    """
    allowed = int(wish * len(benign))
    return max(0, int(np.sort(benign)[::-1][allowed]))


def _elsewhere(captures: list[str], benign: NDArray[np.int64], wish: float) -> float | None:
    names, number = np.unique(np.array(captures), return_inverse=True)
    if len(names) < 2:
        return None
    lost = sum(
        int((benign[number == one] > least_margin(benign[number != one], wish)).sum())
        for one in range(len(names))
    )
    return lost / len(benign)


def _share(flagged: NDArray[np.bool_]) -> float:
    return float(flagged.mean()) if len(flagged) else 0.0
