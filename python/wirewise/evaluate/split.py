# SPDX-License-Identifier: Apache-2.0
"""Splitting a table so that what is tested was not seen in training.

Packets of one flow are near copies of each other, and flows of one capture resemble each other: the same
hosts, the same tool, the same pace. A model is to meet other captures, so the table is split by capture
wherever it has two of a class; what a split by flow reports then is better than what other captures will
give.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from wirewise.datasets.table import SOURCE
from wirewise.errors import InputError

Sides = tuple[NDArray[np.int64], NDArray[np.int64]]


def grouped_split(
    frame: pl.DataFrame, *, test_share: float = 0.3, seed: int = 0, group: str = "flow"
) -> Sides:
    """Row numbers of a training and a test part such that no group is on both sides.

    Groups are drawn label by label (a group's label is that of its first row), so that each label with at
    least two groups occurs on both sides. The packets of one flow are near copies of each other: a split by
    row would test on what was trained on.

    frame : a table with the columns `label` and `group`. test_share : share of each label's groups, between 0
    and 1. Raises InputError when the shares leave no row on one side.
    """
    _check_share(test_share)
    groups = frame.group_by(group, maintain_order=True).agg(pl.col("label").first())
    rng = np.random.default_rng(seed)
    tested: list[str] = []
    for (_,), members in groups.group_by(["label"], maintain_order=True):
        names = members[group].to_list()
        count = min(len(names) - 1, max(1, round(test_share * len(names))))
        tested += [names[index] for index in rng.permutation(len(names))[:count]]
    in_test = frame[group].is_in(pl.Series(tested, dtype=frame[group].dtype).implode()).to_numpy()
    return _sides(
        in_test,
        "the table cannot be split",
        f"it has {len(groups)} {group}s over {frame['label'].n_unique()} labels",
        "give more captures: each label needs at least two flows",
    )


MOST_FOLDS = 1000
HIGHEST_SEED = (1 << 32) - 1  # of scikit-learn
GROUPS = ("source", "capture", "host", "time", "flow")
"""What can be kept on one side of a split. `source`: where captures come from, as a manifest says. `host`:
who sent a flow's first packet. `time`: what is tested began later than what is learned from."""


@dataclass(frozen=True)
class Split:
    """Row numbers of a table's two parts.

    by : one of GROUPS. alone : by capture (or host), the labels that come from a single one. Their flows are
    split instead, so what is said of them is too good.
    """

    by: str
    learn: NDArray[np.int64]
    test: NDArray[np.int64]
    alone: tuple[str, ...] = ()


def split(frame: pl.DataFrame, by: str | None = None, *, test_share: float = 0.3, seed: int = 0) -> Split:
    """A training and a test part with no group of the kind `by` on both sides; see `Split`.

    frame : a table with the columns `label`, `flow`, `capture`, `time_ns`, and by host `sender`. by : one of
    GROUPS; None: by source if the table names several of a label, else by capture if any label comes from two
    captures, else by flow. test_share : share of each
    label's groups, between 0 and 1. Raises InputError where the table cannot be split so.
    """
    if by is None:
        groups = ("source", "capture") if _has_sources(frame) else ("capture",)
        labels = frame["label"].n_unique()
        by = next((group for group in groups if len(alone(frame, group)) < labels), "flow")
    _check_share(test_share)
    _check_seed(seed)
    if by == "flow":
        return Split(by, *grouped_split(frame, test_share=test_share, seed=seed))
    if by == "time":
        return Split(by, *_later(frame, test_share))
    if by not in GROUPS:
        raise InputError(f"group {by!r}", f"is not known (there are: {', '.join(GROUPS)})")
    single = alone(frame, by)
    units = _units(frame, by, single)
    tested = _draw(_labels_of(units), test_share, seed)
    return Split(by, *_apart(units, tested, by), single)


def folds(
    frame: pl.DataFrame,
    by: str,
    count: int,
    *,
    seed: int = 0,
    classes: NDArray[np.int64] | None = None,
) -> Iterator[Split]:
    """`count` splits that test each row once, with no group of the kind `by` ("source", "capture", "host" or
    "flow") on both sides.

    A label with fewer groups than folds is tested in as many of them as it has groups. classes : the class
    of each row, (n,), where several labels are one; a label of a single group is then not split by flow if
    its class has other groups to be learned from.
    """
    check_folds(count)
    _check_seed(seed)
    single = alone(frame, by, classes) if by != "flow" else tuple(frame["label"].unique().to_list())
    units = _units(frame, by, single)
    fold_of = _deal(_labels_of(units), count, seed)
    for fold in range(count):
        tested = {unit for unit, number in fold_of.items() if number == fold}
        if tested and len(tested) < len(fold_of):
            yield Split(by, *_apart(units, tested, by), single)


def alone(
    frame: pl.DataFrame, by: str = "capture", classes: NDArray[np.int64] | None = None
) -> tuple[str, ...]:
    """The labels that come from a single source, capture or host. classes : of each row, (n,): the labels
    whose class does; None: each label is a class.
    """
    of = frame["label"] if classes is None else pl.Series(classes)
    rows = frame.select("label", of=of, group=_group(frame, by))
    groups = rows.group_by("of").agg(pl.col("group").n_unique(), pl.col("label").unique())
    return tuple(sorted(groups.filter(pl.col("group") < 2)["label"].explode().to_list()))


def _units(frame: pl.DataFrame, by: str, single: Sequence[str]) -> pl.DataFrame:
    """One row for each of the frame's: `unit`, what is drawn as a whole, and `label`.

    A unit is a capture, or a host; for labels of a single one it is a flow. Rows of other labels of such a
    capture are one unit.
    """
    of_flow = pl.concat_str([pl.lit("flow "), pl.col("flow")])
    unit = pl.when(pl.col("label").is_in(list(single))).then(of_flow).otherwise(_group(frame, by))
    return frame.select(unit.alias("unit"), "label")


def _group(frame: pl.DataFrame, by: str) -> pl.Expr:
    """The source or capture of each row, or who sent its flow's first packet, as a text that no other kind
    has.
    """
    if by == "source":
        if not _has_sources(frame):
            raise InputError(
                "the table", "does not say where its captures come from (column 'source')",
                "label them by a folder whose manifest has `source_repo`, or split it by capture",
            )  # fmt: skip
        return (
            pl.when(pl.col(SOURCE) != "").then("source " + pl.col(SOURCE)).otherwise(_group(frame, "capture"))
        )
    if by != "host":
        return pl.concat_str([pl.lit("capture "), pl.col("capture").cast(pl.String)])
    if "sender" not in frame.columns:
        raise InputError(
            "the table", "does not say which end sent a packet (it has no column 'sender')",
            "make it again with `wirewise features`, or split it by capture",
        )  # fmt: skip
    first, second = (pl.col("flow").str.extract(r"^\d+ (\S*)\|\d+ (\S*)\|\d+$", end) for end in (1, 2))
    began = pl.col("sender").first().over("capture", "flow")
    return pl.concat_str([pl.lit("host "), pl.when(began == 2).then(second).otherwise(first).fill_null("")])


def _has_sources(frame: pl.DataFrame) -> bool:
    return frame.schema.get(SOURCE) == pl.String and bool((frame[SOURCE] != "").any())


def _labels_of(units: pl.DataFrame) -> dict[str, list[str]]:
    """The labels of each unit, in the table's order."""
    found = units.unique(maintain_order=True).group_by("unit", maintain_order=True).agg("label")
    return dict(zip(found["unit"].to_list(), found["label"].to_list(), strict=True))


def _by_label(labels_of: dict[str, list[str]], seed: int) -> Iterator[tuple[str, list[str]]]:
    """The units of each label in an order drawn, the rarest label first: it has the least choice."""
    rng = np.random.default_rng(seed)
    counts = Counter(label for labels in labels_of.values() for label in labels)
    for label, _ in sorted(counts.items(), key=lambda item: (item[1], item[0])):
        units = [unit for unit, labels in labels_of.items() if label in labels]
        yield label, [units[index] for index in rng.permutation(len(units))]


def _draw(labels_of: dict[str, list[str]], share: float, seed: int) -> set[str]:
    """Units to test: the share of each label's, at least one if it has two, but never all of a label's."""
    left = Counter(label for labels in labels_of.values() for label in labels)
    tested: set[str] = set()
    for _, units in _by_label(labels_of, seed):
        wanted = min(len(units) - 1, max(1, round(share * len(units))))
        wanted -= sum(unit in tested for unit in units)
        free = (unit for unit in units if unit not in tested)
        for unit in (unit for unit in free if all(left[label] > 1 for label in labels_of[unit])):
            if wanted <= 0:
                break
            tested.add(unit)
            left.subtract(labels_of[unit])
            wanted -= 1
    return tested


def _deal(labels_of: dict[str, list[str]], count: int, seed: int) -> dict[str, int]:
    """The fold of each unit: each label's spread as evenly as its units allow."""
    fold_of: dict[str, int] = {}
    total = [0] * count
    for _, units in _by_label(labels_of, seed):
        dealt = Counter(fold_of[unit] for unit in units if unit in fold_of)
        for unit in units:
            if unit not in fold_of:
                fold = min(range(count), key=lambda number: (dealt[number], total[number]))
                fold_of[unit] = fold
                dealt[fold] += 1
                total[fold] += 1
    return fold_of


def check_folds(count: int) -> None:
    """Raises InputError for a number of folds out of range."""
    if not 2 <= count <= MOST_FOLDS:
        raise InputError(f"{count} folds", f"must be 2 to {MOST_FOLDS:,}")


def _check_seed(seed: int) -> None:
    if not 0 <= seed <= HIGHEST_SEED:
        raise InputError(f"seed {seed}", f"must be 0 to {HIGHEST_SEED:,}")


def _check_share(test_share: float) -> None:
    if not 0 < test_share < 1:
        raise InputError(f"test share {test_share} must be between 0 and 1")


def _apart(units: pl.DataFrame, tested: set[str], by: str) -> Sides:
    return _sides(
        units["unit"].is_in(pl.Series(sorted(tested), dtype=pl.String).implode()).to_numpy(),
        f"the table cannot be split by {by}",
        f"it has {units['unit'].n_unique()} {by}s over {units['label'].n_unique()} labels",
        "give more captures, or split by flow",
    )


def _sides(in_test: NDArray[np.bool_], *otherwise: str) -> Sides:
    """Row numbers of both parts. otherwise : what the InputError says if one is empty."""
    learn, test = np.flatnonzero(~in_test), np.flatnonzero(in_test)
    if not len(learn) or not len(test):
        raise InputError(*otherwise)
    return learn, test


def _later(frame: pl.DataFrame, share: float) -> Sides:
    """Of each label, the flows that began last are tested."""
    if "time_ns" not in frame.columns:
        raise InputError("the table", "has no column 'time_ns' to split it by time", "split it by flow")
    began = frame.group_by("flow", maintain_order=True).agg(
        pl.col("label").first(), pl.col("time_ns").min().alias("began")
    )
    ranked = began.with_columns(
        rank=pl.col("began").rank("ordinal").over("label"), flows=pl.len().over("label")
    )
    keep = (pl.col("flows") - (share * pl.col("flows")).round().clip(1)).clip(1)
    tested = ranked.filter(pl.col("rank") > keep)["flow"]
    return _sides(
        frame["flow"].is_in(tested.implode()).to_numpy(),
        "the table cannot be split by time",
        "each label has one flow",
        "give more captures",
    )
