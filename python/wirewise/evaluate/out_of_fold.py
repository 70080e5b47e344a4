# SPDX-License-Identifier: Apache-2.0
"""The margin for a wished loss, by cross-validation: each flow is scored by a model that has not seen its
source.

Scores of rows that a model learned from are no guide to others, and a single split keeps few captures apart.
So the training keeps, for some losses, the margin that the flows of all captures call for. The loss is a mean
over captures: otherwise one capture with many flows, as of a hub of cameras, spends all that may be lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import ConfigDict, TypeAdapter

from wirewise.abi import MAX_FEATURES
from wirewise.datasets.table import SOURCE
from wirewise.errors import InputError
from wirewise.evaluate.held_out import Parts
from wirewise.evaluate.operating_point import (
    COMPARED,
    NEVER,
    InARow,
    LateMargin,
    OperatingPoint,
    by_flow,
    lead,
)
from wirewise.models import Model

KEY = "out_of_fold"
"""In the facts of a training."""
WISHES = (0.0, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 1.0)
"""Shares of benign flows that may lose a packet, for which the margin is kept; 1 is without a margin."""
LATE_SHARE = 0.1
"""The second of two `phases` may cause this part of the benign loss: few benign flows last so long."""
FINE = 1e6
"""Floating-point scores are compared in millionths: margins of `flows` are `Point.by` times this."""
_UNSEEN = -1e6  # score of a class that a fold had no row of
_LINEAR = 1e-3  # how far integer margins may be from a multiple of the estimator's, against the largest
_SAMPLE = 20_000  # rows


@dataclass(frozen=True)
class Point:
    """What it takes to keep a loss, and what is found then. Shares are of 0 to 1.

    wish : the share of benign flows that may lose a packet, as a mean over captures. after : verdicts in a
    row that a flow needs. by : the margin. loss : the share that loses one. elsewhere : the same, each source
    judged with the margin that the others call for. recall : share of attack flows found on any packet.
    families : the mean over kinds of attacks of the mean over their sources. late : the margin of the
    second of two `phases`, which may cause LATE_SHARE of the loss.
    """

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    wish: float
    after: int
    by: float
    loss: float
    elsewhere: float | None
    recall: float
    families: float
    late: float | None = None


def scores(fitted: Any, rows: NDArray[np.int64], classes: int) -> NDArray[np.float64] | None:
    """An estimator's score for each class, (n, classes), in numbers that its integer model adds up too; None
    if there are none. fitted : to class numbers, of which it may have met some only.
    """
    known = np.asarray(getattr(fitted, "classes_", ()))
    if not np.issubdtype(known.dtype, np.integer) or not len(known):
        return None
    if hasattr(fitted, "decision_function"):
        said = np.asarray(fitted.decision_function(rows), np.float64)
        if said.ndim == 1:
            said = np.stack([np.zeros(len(rows)), said], axis=1)
        missing = _UNSEEN
    elif hasattr(fitted, "predict_proba"):
        said, missing = np.asarray(fitted.predict_proba(rows), np.float64), 0.0
    else:
        return None
    found = np.full((len(rows), classes), missing)
    found[:, known] = said if len(known) > 1 else 1.0
    return found


def flows(
    frame: pl.DataFrame,
    truth: NDArray[np.int64],
    said: NDArray[np.float64],
    late: NDArray[np.bool_] | None = None,
) -> pl.DataFrame:
    """A row for each flow: its capture, unit (source, or else capture), label, whether it is an attack, and
    its margin for each of COMPARED; with `late`, which rows (n,) the second of two phases judges, also those
    margins (`late 1`, ...). frame, truth : n rows and their classes. said : their scores, (n, classes).
    """
    fine = np.rint(said * FINE).astype(np.int64)
    if late is None:
        found = by_flow(frame, truth, fine, COMPARED)
    else:
        first, second = (
            by_flow(frame.filter(pl.Series(mine)), truth[mine], fine[mine], COMPARED)
            for mine in (~late, late)
        )
        own = [pl.col(str(after)).alias(_late(after)) for after in COMPARED]
        joined = first.join(
            second.select("capture", "flow", pl.col("attack").alias("too"), *own),
            on=["capture", "flow"], how="full", coalesce=True, maintain_order="left_right",
        )  # fmt: skip
        found = joined.with_columns(
            pl.coalesce("attack", "too"), pl.col(r"^(late )?\d+$").fill_null(NEVER)
        ).drop("too")
    source = pl.col(SOURCE) if frame.schema.get(SOURCE) == pl.String else pl.lit("")
    about = frame.group_by("capture", "flow", maintain_order=True).agg(
        pl.col("label").first(), unit=pl.when(source != "").then(source).otherwise("capture").first()
    )
    return found.join(about, on=["capture", "flow"], maintain_order="left")


def of_kinds(seen: pl.DataFrame) -> pl.DataFrame:
    """The mean over the sources of each kind of attack: label and flagged. seen : flows, with label, unit and
    whether they are flagged.
    """
    of_units = seen.group_by("label", "unit", maintain_order=True).agg(pl.col("flagged").mean())
    return of_units.group_by("label", maintain_order=True).agg(pl.col("flagged").mean())


def points(found: pl.DataFrame) -> list[Point]:
    """For each of COMPARED and WISHES, by `flows`; none without benign flows, or attacks."""
    benign, attack = found.filter(~pl.col("attack")), found.filter("attack")
    if not len(benign) or not len(attack):
        return []
    weight, unit = _weights(benign["capture"]), benign["unit"].to_numpy()
    units = np.unique(unit).tolist() if benign["unit"].n_unique() > 1 else []
    shares = {"": 1.0} if _late(1) not in found.columns else {"": 1 - LATE_SHARE, "late ": LATE_SHARE}
    made = []
    for after in COMPARED:
        ordered = [_Ordered.of(benign[f"{of}{after}"].to_numpy(), weight, unit, shares[of]) for of in shares]
        caught = np.stack([attack[f"{of}{after}"].to_numpy() for of in shares], axis=1)
        margin = np.stack([benign[f"{of}{after}"].to_numpy() for of in shares], axis=1)
        # For each wish: what the flows of each source lose by the margins of the others.
        lost = np.zeros(len(WISHES))
        for one in units:
            own = unit == one
            mine, weighing = margin[own], weight[own]
            others = zip(*(part.without(one) for part in ordered), strict=True)
            for number, by in enumerate(others):
                lost[number] += weighing[_over(mine, by)].sum()
        least = zip(*(part.least() for part in ordered), strict=True)
        for number, (wish, by) in enumerate(zip(WISHES, least, strict=True)):
            flagged = _over(caught, by)
            seen = attack.select("label", "unit", flagged=pl.Series(flagged))
            families = of_kinds(seen)["flagged"]
            made.append(
                Point(
                    wish, after, by[0] / FINE, float(weight[_over(margin, by)].sum()),
                    float(lost[number]) if units else None, float(flagged.mean()),
                    float(families.mean() or 0),  # type: ignore[arg-type]
                    by[1] / FINE if len(by) > 1 else None,
                )
            )  # fmt: skip
    return made


def above(point: Point) -> pl.Expr:
    """Of `flows`: whether they have what the point takes to be flagged."""
    over = pl.col(str(point.after)) > round(point.by * FINE)
    return over if point.late is None else over | (pl.col(_late(point.after)) > round(point.late * FINE))


def _late(after: int) -> str:
    """The column of margins of the second phase."""
    return f"late {after}"


def _over(margin: NDArray[np.int64], by: Sequence[int]) -> NDArray[np.bool_]:
    """Which flows have any of their margins, (n, phases), above the phase's."""
    return np.asarray((margin > np.array(by)).any(axis=1), np.bool_)


@dataclass(frozen=True)
class _Ordered:
    """Margins of benign flows in one phase, the largest first, with their weights and units. share : of what
    may be lost, which this phase may cause.
    """

    margin: NDArray[np.int64]
    weight: NDArray[np.float64]
    unit: NDArray[np.object_]
    share: float

    @classmethod
    def of(
        cls,
        margin: NDArray[np.int64],
        weight: NDArray[np.float64],
        unit: NDArray[np.object_],
        share: float,
    ) -> _Ordered:
        order = np.argsort(margin, kind="stable")[::-1]
        return cls(margin[order], weight[order], unit[order], share)

    def least(self) -> list[int]:
        """See `_least`."""
        return _least(self.margin, self.weight, self.share)

    def without(self, unit: str) -> list[int]:
        """The same by the flows of the other units."""
        others = self.unit != unit
        return _least(self.margin[others], self.weight[others], self.share)


def _weights(capture: pl.Series) -> NDArray[np.float64]:
    """The weights of flows: each capture weighs the same, and all together 1."""
    count = capture.to_frame("capture").select(pl.len().over("capture")).to_series().to_numpy()
    return np.asarray(1 / count / capture.n_unique(), np.float64)


def _least(margin: NDArray[np.int64], weight: NDArray[np.float64], share: float = 1.0) -> list[int]:
    """For each of WISHES, times `share`, the least margin, 0 or more, above which are flows of no more than
    that share of the weight; for 1 that is 0. margin : the largest first.
    """
    above = np.cumsum(weight)
    wishes = [wish * share if wish < 1 else 1.0 for wish in WISHES]
    allowed = np.searchsorted(above, (np.array(wishes) + 1e-12) * above[-1], side="right")
    return [max(0, int(margin[at])) if at < len(margin) else 0 for at in allowed]


def units(model: Model, rows: NDArray[np.int64], said: NDArray[np.float64]) -> float | None:
    """How many of a model's integers make one of the estimator's scores; None if neither is a multiple of
    the other, as where the one adds up what the other puts through a function. said : of these rows, see
    `scores`.
    """
    ours = lead(model.predict(rows)[1]).astype(np.float64)
    theirs = said[:, 1:].max(axis=1) - said[:, 0]
    reach = float(np.abs(theirs).max(initial=0))
    if reach == 0:
        return None
    factor = float((ours @ theirs) / (theirs @ theirs))
    off = np.abs(ours - factor * theirs).max()
    return factor if factor > 0 and off <= _LINEAR * factor * reach + 1 else None


@dataclass(frozen=True)
class OutOfFold:
    """What the record of a training keeps. by : what no two folds share. model : digest of the integers that
    margins are of. captures, benign, attack : how many of them there were, flows counted once. phases : of
    two `phases` the feature that tells them apart and the least value of the second.
    """

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    by: str
    model: str
    captures: int
    benign: int
    attack: int
    points: list[Point]
    phases: tuple[int, int] | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(
        cls,
        dealings: Sequence[pl.DataFrame],
        by: str,
        model: Model,
        rows: NDArray[np.int64],
        said: NDArray[np.float64],
        phases: tuple[int, int] | None = None,
    ) -> OutOfFold | None:
        """Dealings : `flows` of each. model, rows, said : the final one, see `units`."""
        sample = np.linspace(0, len(rows) - 1, min(len(rows), _SAMPLE)).astype(np.int64)
        factor = units(model, rows[sample], said[sample])
        found = points(pl.concat(dealings))
        if factor is None or not found:
            return None
        first = dealings[0]
        attack = int(first["attack"].sum())
        scaled = [
            replace(
                one,
                by=float(round(one.by * factor)),
                late=None if one.late is None else float(round(one.late * factor)),
            )
            for one in found
        ]
        captures = first["capture"].n_unique()
        return cls(by, model.digest, captures, len(first) - attack, attack, scaled, phases)


def _read(recorded: Any) -> OutOfFold:
    """The inverse of `to_dict`. Raises InputError for anything else."""
    try:
        record = TypeAdapter(OutOfFold).validate_python(recorded)
        if record.phases and not (0 <= record.phases[0] < MAX_FEATURES and record.phases[1] > 0):
            raise ValueError("phases")
    except ValueError as error:  # pydantic's errors are such
        raise InputError("the model", "its training record has damaged margins", "train it again") from error
    return record


def chosen(
    training: Mapping[str, Any], model: Model, table: Parts | None, wish: float, after: int | None
) -> OperatingPoint | None:
    """The operating point by what a training recorded; None if it recorded none of this very model, or for
    such a number of verdicts in a row, and where the table is another one, which says more of where it comes
    from.

    training : the facts of its record. table : what `operating_point.choose_from` would choose by. wish,
    after : see `operating_point.choose`; of several, the one that finds most families. Between two of WISHES
    the lower one is taken. Raises InputError for a wish below 0 or above 1, and a record that cannot be read.
    """
    if not 0 <= wish < 1:
        raise InputError(f"benign loss {wish}", "must be a share of flows from 0 to below 1, such as 0.1%")
    recorded = training.get(KEY)
    if recorded is None or (table is not None and table.origin not in ("kept apart", "trained on")):
        return None
    record = _read(recorded)
    if record.model != model.digest or (after is not None and after not in COMPARED):
        return None
    step = max(each for each in WISHES if each <= wish + 1e-12)
    found = {point.after: point for point in record.points if point.wish == step}
    plain = [point for point in record.points if (point.after, point.wish) == (1, WISHES[-1])]
    if not found or not plain:
        return None
    best = max(found.values(), key=lambda point: (point.families, -point.after))
    point = best if after is None else found[after]
    late = None
    if record.phases and point.late is not None:
        late = LateMargin(*record.phases, int(point.late))
    in_a_row = [InARow(p.after, int(p.by), p.loss, p.elsewhere, p.recall) for p in found.values()]
    return OperatingPoint(
        wish,
        int(point.by),
        record.benign,
        record.attack,
        point.loss,
        point.elsewhere,
        point.recall,
        plain[0].loss,
        plain[0].recall,
        f"each {record.by} by a model that has not seen it; a mean over {record.captures:,} captures",
        point.after,
        tuple(each for each in in_a_row if each.after != point.after),
        late,
    )
