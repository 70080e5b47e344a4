# SPDX-License-Identifier: Apache-2.0
"""The band of a model, chosen by half of the flows that neither model has seen, and tried on the others."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from wirewise.datasets import Table
from wirewise.errors import InputError
from wirewise.evaluate.classes import matrix, numbers
from wirewise.evaluate.held_out import WHAT, parts
from wirewise.evaluate.judging import Subject
from wirewise.evaluate.moments import At
from wirewise.evaluate.operating_point import margins
from wirewise.evaluate.split import split
from wirewise.evaluate.subject import choose_rows
from wirewise.formats import training_file
from wirewise.second.band import Band, choose
from wirewise.second.models import Pair


@dataclass(frozen=True)
class Figures:
    """Shares of 0 to 1, of flows: judged rightly as attack or benign; of attacks, found; of benign ones,
    flagged. None where there are no such flows.
    """

    accuracy: float
    found: float | None
    flagged: float | None

    @classmethod
    def of(cls, attack: NDArray[np.bool_], said: NDArray[np.bool_]) -> Figures:
        def share(of: NDArray[np.bool_]) -> float | None:
            return float(of.mean()) if len(of) else None

        return cls(float((attack == said).mean()), share(said[attack]), share(said[~attack]))


@dataclass(frozen=True)
class Calibration:
    """What came of it. Shares are of 0 to 1.

    chosen_by, tried_on : flows of either half. unsure : share of the latter whose score is in the band.
    caught : share of the small model's errors there that are unsure; None without errors. small, big, both :
    how good each is on them; big by `at_least`, both: big where small is unsure. at_least : how probable an
    attack must be for the big model to say so. how : what is known of the rows. apart : what no half shares.
    warnings : to be said with it.
    """

    band: Band
    share: float
    at: str
    at_least: float
    chosen_by: int
    tried_on: int
    unsure: float
    caught: float | None
    small: Figures
    big: Figures
    both: Figures
    how: str
    apart: str
    warnings: list[str]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"band": str(self.band)}


def calibrate(pair: Pair, table: Table, path: Path, *, share: float, at: At, at_least: float) -> Calibration:
    """Choose the band of a pair of models, and try it.

    table, path : labelled, of the bundle's features; its file. share : of flows that may be unsure, above 0
    and below 1. at : the one moment at which a flow is judged. at_least : see Calibration. Raises InputError
    for a table without flows that neither model has learned from, or too few, and as `band.choose`.
    """
    if at.every or len(at.rows) != 1:
        raise InputError(
            "--at",
            "judges a flow more than once, and the larger model judges it once",
            "give one moment, such as 5",
        )
    subject = Subject.of_bundle(pair.name, pair.bundle)
    table = table.reading(pair.bundle.feature_set)
    subject.check_reads(table, str(path))
    digest = training_file.file_digest(path)
    own = parts(table, subject.training, digest=digest, name=path.name)
    chosen = choose_rows(table, own, quantised=False, all_rows=False)
    other = parts(table, pair.training, digest=digest, name=path.name)
    learned = choose_rows(table, other, quantised=False, all_rows=False).learned
    rows, warnings = chosen.rows.labelled, []
    if learned is not None:
        rows = _without(rows, learned)
    elif other.origin == "unknown":
        warnings.append(
            f"wirewise cannot know whether {pair.big_name} was trained on these flows; if it was, "
            "its results are optimistic"
        )
    if not len(rows.frame):
        raise InputError(
            str(path), f"has no flow that neither {pair.name} nor {pair.big_name} has learned from",
            "give another table",
        )  # fmt: skip
    flows, attack = _judged(rows, pair.bundle.classes, at, str(path))
    halves = split(flows.frame, test_share=0.5)
    if halves.by == "flow":
        warnings.append("the halves share captures, so other captures will give worse results")
    values = matrix(flows)
    ahead = margins(pair.bundle.model, values)
    flagged = ahead > 0
    band = choose(ahead[halves.learn], (flagged != attack)[halves.learn], share)
    tried = halves.test
    unsure, attack, flagged = band.holds(ahead[tried]), attack[tried], flagged[tried]
    big = pair.attack(values[tried]) >= at_least
    errors = flagged != attack
    return Calibration(
        band,
        share,
        str(at),
        at_least,
        len(halves.learn),
        len(tried),
        float(unsure.mean()),
        float(unsure[errors].mean()) if errors.any() else None,
        Figures.of(attack, flagged),
        Figures.of(attack, big),
        Figures.of(attack, np.where(unsure, big, flagged)),
        chosen.how,
        WHAT[halves.by],
        warnings,
    )


def _without(rows: Table, learned: pl.DataFrame) -> Table:
    """The rows of flows that are not among those learned from, of the same table."""
    flow = ["capture", "flow"]
    kept = rows.frame.join(learned.select(flow).unique(), on=flow, how="anti", maintain_order="left")
    return Table(kept, rows.feature_set)


def _judged(rows: Table, classes: list[str], at: At, name: str) -> tuple[Table, NDArray[np.bool_]]:
    """The row of each flow at which it is judged, and whether the flow is an attack."""
    truth = numbers(rows, classes)
    (row,) = at.rows.values()
    frame = rows.frame.with_columns(truth=pl.Series(truth), row=pl.int_range(pl.len()))
    if at.times_ns and "time_ns" not in frame.columns:
        raise InputError(name, "has no column 'time_ns'", "judge flows at a packet, such as --at 5")
    frame = frame.filter(pl.col("truth") >= 0)
    flows = frame.group_by("capture", "flow", maintain_order=True).agg(
        pl.col("truth").first(), pl.col("row").gather(row).first()
    )
    if not len(flows):
        raise InputError(
            name, f"no packet has a label of the model's classes ({', '.join(classes)})", "label it"
        )
    judged = rows.frame[flows["row"]]
    return Table(judged, rows.feature_set), flows["truth"].to_numpy() > 0
