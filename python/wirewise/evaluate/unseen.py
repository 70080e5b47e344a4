# SPDX-License-Identifier: Apache-2.0
"""What an evaluation says nothing about, as neither training nor test has met it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from wirewise.evaluate.per_flow import NS_PER_MINUTE

PROTOCOLS = {1: "ICMP", 6: "TCP", 17: "UDP", 58: "ICMPv6"}
"""Those whose absence is worth a word."""
MOST_NAMES = 12
"""Of a list in a sentence."""


@dataclass(frozen=True)
class Range:
    """A feature's values, in its own integers: as learned and as tested. outside : share of tested packets
    (0 to 1) whose value is below or above all that was learned from; of_captures : the mean of that share
    over captures.
    """

    feature: str
    learned: tuple[int, int]
    tested: tuple[int, int]
    outside: float
    of_captures: float


@dataclass(frozen=True)
class Unseen:
    """classes : those that no tested flow is of. one_capture : labels of one capture only, in all that is
    known. families : protocols and IP versions that no tested flow is of. applications : benign ones that are
    tested but were not learned from; other_applications : the reverse. ranges : of features, the most outside
    first; None if what was learned from is not known. benign_minutes : with a benign packet in them.
    """

    classes: list[str]
    one_capture: list[str]
    families: list[str]
    applications: list[str]
    other_applications: list[str]
    ranges: list[Range] | None
    benign_flows: int
    benign_minutes: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def sentences(self) -> list[str]:
        """One for each thing that it has not seen."""
        said = []
        if self.classes:
            said.append(f"No tested flow is of the classes {_named(self.classes)}.")
        if self.one_capture:
            said.append(
                f"Of one capture only, so what is said of them may be true of that capture alone: "
                f"{_named(self.one_capture)}."
            )
        if self.families:
            said.append(f"No tested flow is {_named(self.families, ' or ')}.")
        if self.applications:
            said.append(f"Benign applications it has not learned from: {_named(self.applications)}.")
        if self.other_applications:
            said.append(f"Benign applications that were not tested: {_named(self.other_applications)}.")
        said.append(
            f"{self.benign_flows:,} benign flows in {self.benign_minutes:,} minutes of captures are all the "
            "ordinary traffic that it was tested on; applications that are not among them may fare worse."
        )
        if self.ranges is None:
            said.append("Which values its features had in training is not known here.")
        elif beyond := [found for found in self.ranges if found.outside]:
            first = beyond[0]
            said.append(
                f"{len(beyond)} of {len(self.ranges)} features have values that training did not have, most "
                f"of all {first.feature}: {_share(first.outside)} of the packets are outside "
                f"{first.learned[0]:,} to {first.learned[1]:,}."
            )
        else:
            said.append("All features are within what training had.")
        return said


def unseen(
    tested: pl.DataFrame,
    truth: NDArray[np.int64],
    classes: Sequence[str],
    learned: pl.DataFrame | None,
    features: Sequence[str],
) -> Unseen:
    """What is in none of the rows.

    tested : n labelled rows of a table. truth : class numbers, (n,). learned : the rows that the model
    learned from, None if these are not known. features : columns of both.
    """
    there = set(truth.tolist())
    known = tested if learned is None else pl.concat([tested, learned], how="diagonal")
    captures = known.group_by("label").agg(pl.col("capture").n_unique())
    benign = tested.filter(pl.Series(truth == 0))
    mine, theirs = (_applications(rows) for rows in (tested, learned))
    return Unseen(
        [name for number, name in enumerate(classes) if number not in there],
        sorted(captures.filter(pl.col("capture") < 2)["label"].to_list()),
        _families(tested),
        sorted(mine - theirs) if learned is not None and theirs else [],
        sorted(theirs - mine),
        None if learned is None else _ranges(tested, learned, features),
        benign.select("capture", "flow").n_unique(),
        benign.select("capture", pl.col("time_ns") // NS_PER_MINUTE).n_unique(),
    )


def _applications(rows: pl.DataFrame | None) -> set[str]:
    if rows is None or "application" not in rows.columns:
        return set()
    return set(rows["application"].unique().to_list()) - {"", None}


def _families(rows: pl.DataFrame) -> list[str]:
    """By the text of `flow`: protocol, then both ends; the frames of others may say anything there."""
    flows = rows["flow"].unique()
    protocols = set(flows.str.extract(r"^(\d+) ").drop_nulls().cast(pl.Int64, strict=False).to_list())
    if not protocols:
        return []
    found = [name for number, name in PROTOCOLS.items() if number not in protocols]
    versions = {"IPv4": r"^\d+ [\d.]+\|", "IPv6": r"^\d+ [\da-f.]*:"}
    return found + [name for name, like in versions.items() if not flows.str.contains(like).any()]


def _ranges(tested: pl.DataFrame, learned: pl.DataFrame, features: Sequence[str]) -> list[Range]:
    _, capture = np.unique(tested["capture"].to_numpy().astype(str), return_inverse=True)
    counts = np.bincount(capture)
    found = []
    for name in features:
        values = tested[name].to_numpy()
        low, high = (int(value) for value in (learned[name].min(), learned[name].max()))  # type: ignore[arg-type]
        beyond = (values < low) | (values > high)
        of_captures = np.bincount(capture, weights=beyond) / counts
        seen = (int(values.min()), int(values.max()))
        found.append(Range(name, (low, high), seen, float(beyond.mean()), float(of_captures.mean())))
    return sorted(found, key=lambda one: -one.outside)


def _share(share: float) -> str:
    return f"{100 * share:.2f} %" if share >= 0.0001 else "fewer than 0.01 %"


def _named(names: Sequence[str], last: str = ", ") -> str:
    if len(names) > MOST_NAMES:
        return f"{', '.join(names[:MOST_NAMES])} and {len(names) - MOST_NAMES} more"
    return ", ".join(names[:-1]) + (last if len(names) > 1 else "") + names[-1]
