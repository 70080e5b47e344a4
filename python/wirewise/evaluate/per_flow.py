# SPDX-License-Identifier: Apache-2.0
"""How good a classifier is on flows, when it has to decide, and how sure that is.

A flow's verdict at packet n is the one on its n-th packet, or on its last if it is shorter; the one after a
time t is that on its last packet until then. All packets of a flow count, in both directions. Accuracy
against the observation period t is hara2026's Figure 3.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from wirewise.evaluate import intervals, moments
from wirewise.evaluate.curves import Curves, curves
from wirewise.evaluate.families import FlowVerdicts
from wirewise.evaluate.intervals import Interval
from wirewise.evaluate.moments import At
from wirewise.evaluate.report import Report

DECISIONS = (1, 2, 3, 5, 8, 16, 32, 64, 128)
"""Packets of a flow at which it is judged."""
PERIODS = (0.0, 0.001, 0.01, 0.1, 1.0, 10.0, 60.0)
"""Seconds from a flow's first packet after which it is judged."""
FIFTH = At((5,))
"""When flows are judged by default."""


def usual(late: int | None) -> At:
    """When flows are judged by default. late : also at the first packet of a late model, see `phases`."""
    return FIFTH if late is None else At(tuple(sorted({*FIFTH.packets, late})))


NS_PER_MINUTE = 60_000_000_000
UNNAMED = "(not named)"


@dataclass(frozen=True)
class Decision:
    """Attacks against benign traffic if flows are judged at one point of their lives; ratios of 0 to 1."""

    accuracy: float
    precision: float
    recall: float
    f1: float
    benign_flagged: float

    @classmethod
    def of(cls, report: Report) -> Decision:
        """Report : of the two classes benign and attack."""
        benign, attack = report.classes
        flagged = 1 - benign.recall if benign.packets else 0.0
        return cls(report.accuracy, attack.precision, attack.recall, attack.f1, flagged)


@dataclass(frozen=True)
class Detection:
    """Flows of attacks that were flagged: packets and microseconds from a flow's first packet to the first
    verdict against it; the median and the 90th percentile.
    """

    share: float
    packets: tuple[float, float]
    microseconds: tuple[float, float]


@dataclass(frozen=True)
class Loss:
    """Benign flows of one capture with a verdict against them on any packet."""

    capture: str
    flows: int
    flagged: int


@dataclass(frozen=True)
class ApplicationLoss:
    """Benign flows of one application with a verdict against them on any packet. per_hour : the same, in an
    hour of its packets.
    """

    application: str
    flows: int
    flagged: int
    per_hour: float

    @property
    def share(self) -> float:
        return self.flagged / self.flows


@dataclass(frozen=True)
class FlowReport:
    """Flows judged at some moment of their lives.

    at : when. verdicts : on each flow. classes : of each flow's label. attack : classes other than the first
    against it. by_packet, by_period : attacks against benign traffic, by the packet, or the seconds, of
    decision. intervals : of `attack`'s numbers over captures drawn again; empty with fewer than two captures.
    class_intervals : the same of each class. curves : over all thresholds; None without scores, or without
    both kinds of flows. losses : captures with benign flows that lost a packet, the most flagged first.
    applications : all of them, the largest share first; empty if the table names none. flagged : share of
    each class's flows that are flagged as any attack. benign_losing : share of benign flows that lose
    a packet. flagged_per_hour : how many, in an hour of benign packets.
    """

    at: At
    verdicts: FlowVerdicts
    classes: Report
    attack: Report
    by_packet: dict[int, Decision]
    by_period: dict[float, Decision]
    intervals: dict[str, Interval]
    class_intervals: dict[str, dict[str, Interval]]
    curves: Curves | None
    detection: Detection | None
    losses: list[Loss]
    applications: list[ApplicationLoss]
    flagged: dict[str, float]
    benign_losing: float
    flagged_per_hour: float | None

    def to_dict(self) -> dict[str, Any]:
        parts = {part.name: getattr(self, part.name) for part in fields(self) if part.name != "verdicts"}
        plain = {name: _plain(value) for name, value in parts.items()}
        return plain | {
            "at": str(self.at), "classes": self.classes.to_dict(), "attack": self.attack.to_dict()
        }  # fmt: skip


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def per_flow(
    frame: pl.DataFrame,
    truth: NDArray[np.int64],
    predicted: NDArray[np.int64],
    classes: list[str],
    *,
    scores: NDArray[np.int64] | None = None,
    at: At = FIFTH,
    late: int | None = None,
    seed: int = 0,
) -> FlowReport:
    """Judge flows by the verdicts on their packets.

    frame : n rows of a table, in the order of each capture's packets. truth, predicted : class numbers, shape
    (n,); class 0 is benign. scores : how far an attack is ahead of benign, (n,), see
    `operating_point.margins`. at : when a flow is judged. late : the packet from which on a late model
    does, see `phases`. A flow's label is that of its first labelled packet. Flows of two captures are two
    flows.
    """
    rows = _rows(frame, truth, predicted, scores)
    also = At(DECISIONS, tuple(round(period * 1e9) for period in PERIODS))
    flows, verdicts = _judged(rows, at, len(classes), also, late)
    label = verdicts.truth
    said = flows["said"].to_numpy()
    at_packet = {n: _two(label, verdicts.by_packet[n]) for n in DECISIONS}
    in_period = {t: _two(label, flows[moments.time(round(t * 1e9))].to_numpy()) for t in PERIODS}
    captures = flows["capture"].to_list()
    benign = flows.filter(pl.col("truth") == 0)
    losing = float(benign["flagged"].mean() or 0)  # type: ignore[arg-type]
    return FlowReport(
        at,
        verdicts,
        Report.of(label, said, classes),
        _two(label, said),
        {n: Decision.of(report) for n, report in at_packet.items()},
        {t: Decision.of(report) for t, report in in_period.items()},
        _intervals(captures, label, said, flows["flagged"].to_numpy(), seed),
        intervals.of_classes(intervals.confusions(captures, label, said, len(classes), seed), classes),
        curves(label > 0, flows["score"].to_numpy(), said > 0) if scores is not None else None,
        _detection(flows.filter((pl.col("truth") > 0) & pl.col("flagged")), int((label > 0).sum())),
        _losses(benign),
        _by_application(rows, benign),
        {
            name: float((said[label == number] > 0).mean())
            for number, name in enumerate(classes)
            if (label == number).any()
        },
        losing,
        _per_hour(rows.filter(pl.col("truth") == 0), int(benign["flagged"].sum())),
    )


def flow_verdicts(
    frame: pl.DataFrame,
    truth: NDArray[np.int64],
    predicted: NDArray[np.int64],
    classes: int,
    at: At = FIFTH,
    late: int | None = None,
) -> FlowVerdicts:
    """The verdicts alone, see `per_flow`. frame : needs `time_ns` only if it is judged by time."""
    return _judged(_rows(frame, truth, predicted, None), at, classes, At(DECISIONS), late)[1]


def _rows(
    frame: pl.DataFrame,
    truth: NDArray[np.int64],
    predicted: NDArray[np.int64],
    scores: NDArray[np.int64] | None,
) -> pl.DataFrame:
    def named(name: str) -> pl.Expr:
        return pl.col(name) if frame.schema.get(name) == pl.String else pl.lit("").alias(name)

    timed = [name for name in ("time_ns",) if name in frame.columns]
    names = [named(name) for name in ("application", "source", "label")]
    return frame.select("capture", "flow", *timed, *names).with_columns(
        truth=pl.Series(truth),
        said=pl.Series(predicted),
        score=pl.Series(truth if scores is None else scores),
    )


def _judged(
    rows: pl.DataFrame, at: At, classes: int, also: At, late: int | None
) -> tuple[pl.DataFrame, FlowVerdicts]:
    """A row for each flow: its label, its verdict and score when it is judged, its verdicts at the moments
    `also`, and the first against it; and the same as arrays.
    """
    flagged = pl.col("said") != 0
    wanted = {**also.rows, **at.rows}
    since = [
        (pl.col("time_ns").filter(flagged).first() - pl.col("time_ns").first()).alias("waited"),
    ] if "time_ns" in rows.columns else []  # fmt: skip
    rows = rows.with_columns(number=pl.struct("capture", "flow").rank("dense"))
    flows = rows.group_by("capture", "flow", maintain_order=True).agg(
        pl.col("number").first(),
        pl.col("truth").first(),
        pl.col("application", "source", "label").first(),
        *(pl.col("said").gather(row).first().alias(name) for name, row in wanted.items()),
        *(pl.col("score").gather(row).first().alias(f"score {name}") for name, row in at.rows.items()),
        pl.col("said").filter(flagged).first().fill_null(0).alias("any"),
        pl.col("score").max().alias("score any"),
        flagged.any().alias("flagged"),
        (flagged.arg_max() + 1).alias("after"),
        *since,
    )
    own = ["any"] if at.every else list(at.rows)
    against = pl.coalesce(pl.when(pl.col(name) != 0).then(pl.col(name)) for name in own)
    flows = flows.with_columns(
        said=against.fill_null(0), score=pl.max_horizontal(f"score {name}" for name in own)
    )
    place = np.empty(len(flows) + 1, np.int64)
    place[flows["number"].to_numpy()] = np.arange(len(flows))

    def said_in(some: pl.DataFrame) -> NDArray[np.bool_]:
        found = np.zeros((len(flows), classes), np.bool_)
        found[place[some["number"].to_numpy()], some["said"].to_numpy()] = True
        return found

    ever = said_in(rows)
    later = (
        None if late is None else said_in(rows.filter(pl.int_range(1, pl.len() + 1).over("number") >= late))
    )
    if at.every:
        then = ever
    else:
        then = np.zeros_like(ever)
        for name in own:
            then[np.arange(len(flows)), flows[name].to_numpy()] = True
    capture, source, application, kind = (
        flows[name].fill_null("").to_numpy().astype(object)
        for name in ("capture", "source", "application", "label")
    )
    packets = sorted({*also.packets, *at.packets})
    by_packet = {n: flows[moments.packet(n)].to_numpy() for n in packets}
    truth = flows["truth"].to_numpy()
    return flows, FlowVerdicts(capture, source, application, kind, truth, then, ever, by_packet, later)


def _two(label: NDArray[np.int64], said: NDArray[np.int64]) -> Report:
    return Report.of((label > 0).astype(np.int64), (said > 0).astype(np.int64), ["benign", "attack"])


def _detection(flagged: pl.DataFrame, attacks: int) -> Detection | None:
    if not len(flagged):
        return None

    def quantiles(column: str, scale: float) -> tuple[float, float]:
        values = flagged[column].to_numpy() / scale
        return float(np.quantile(values, 0.5)), float(np.quantile(values, 0.9))

    return Detection(len(flagged) / attacks, quantiles("after", 1), quantiles("waited", 1000))


def _losses(benign: pl.DataFrame) -> list[Loss]:
    by_capture = benign.group_by("capture", maintain_order=True).agg(
        pl.len().alias("flows"), pl.col("flagged").sum()
    )
    losing = by_capture.filter(pl.col("flagged") > 0).sort("flagged", descending=True, maintain_order=True)
    return [Loss(*row) for row in losing.iter_rows()]


def _by_application(rows: pl.DataFrame, benign: pl.DataFrame) -> list[ApplicationLoss]:
    """Empty if none is named."""
    if not (benign["application"] != "").any():
        return []
    counted = benign.group_by("application", maintain_order=True).agg(
        pl.len().alias("flows"), pl.col("flagged").sum()
    )
    minutes = dict(_minutes(rows.filter(pl.col("truth") == 0), "application").iter_rows())
    found = [
        ApplicationLoss(name or UNNAMED, flows, flagged, 60 * flagged / max(1, minutes.get(name, 0)))
        for name, flows, flagged in counted.iter_rows()
    ]
    return sorted(found, key=lambda loss: (-loss.share, -loss.flows, loss.application))


def _minutes(rows: pl.DataFrame, by: str) -> pl.DataFrame:
    """In how many minutes of a capture there is a packet: some captures jump over months."""
    minutes = rows.select(by, "capture", pl.col("time_ns") // NS_PER_MINUTE).unique()
    return minutes.group_by(by).agg(pl.len())


def _per_hour(benign: pl.DataFrame, flagged: int) -> float | None:
    minutes = int(_minutes(benign.with_columns(all=1), "all")["len"].sum())
    return 60 * flagged / minutes if minutes else None


def _intervals(
    captures: list[str],
    label: NDArray[np.int64],
    said: NDArray[np.int64],
    flagged: NDArray[np.bool_],
    seed: int,
) -> dict[str, Interval]:
    """Of attacks against benign traffic; `benign_losing` is about any packet of a flow."""
    attack = (label > 0).astype(np.int64)
    found: dict[str, Interval] = {}
    for verdicts, wanted in (
        ((said > 0).astype(np.int64), ("f1", "precision", "recall", "benign_flagged")),
        (flagged.astype(np.int64), ("benign_losing",)),
    ):
        matrices = intervals.confusions(captures, attack, verdicts, 2, seed)
        (passed, false), (missed, caught) = np.moveaxis(matrices, 0, -1)
        values = {
            "f1": 2 * caught / np.maximum(2 * caught + false + missed, 1),
            "precision": caught / np.maximum(caught + false, 1),
            "recall": caught / np.maximum(caught + missed, 1),
            "benign_flagged": false / np.maximum(false + passed, 1),
            "benign_losing": false / np.maximum(false + passed, 1),
        }
        found |= {name: intervals.interval(values[name]) for name in wanted if len(matrices)}
    return found
