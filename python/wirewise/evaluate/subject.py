# SPDX-License-Identifier: Apache-2.0
"""What is judged, and by which rows: those that the model has not learned from, as far as that is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from wirewise.datasets import Table
from wirewise.errors import InputError
from wirewise.evaluate.held_out import Origin, Parts, parts
from wirewise.formats.training_file import file_digest


@dataclass(frozen=True)
class Chosen:
    """rows : to judge a model by. how, origin : what is known of them. learned : the rows that the model
    learned from, None if they are not known.
    """

    rows: Table
    how: str
    origin: Origin
    learned: pl.DataFrame | None


def choose_rows(table: Table, split: Parts, *, quantised: bool, all_rows: bool) -> Chosen:
    """The rows of a table that a model is judged by.

    split : of the table, for this model. quantised : a part of the table made its integers. all_rows : those
    that it learned from too.
    """
    learned = {"kept apart": split.learn.frame, "trained on": split.all.frame}.get(split.origin)
    if all_rows and not quantised and split.origin == "kept apart":
        return Chosen(table, f"all rows of {split.name}, those it learned from too", "trained on", learned)
    judged, how = split.judged(quantised)
    return Chosen(judged if quantised or split.origin == "kept apart" else table, how, split.origin, learned)


def learned_rows(path: Path, training: Mapping[str, Any] | None) -> pl.DataFrame:
    """The rows of the table a model was trained on that it learned from.

    training : the facts of its record; without one, all rows. Raises InputError if the record is of another
    table.
    """
    split = parts(Table.read(path), training, digest=file_digest(path), name=path.name)
    if split.origin == "other table":
        assert training is not None
        raise InputError(
            str(path), "is not the table that the model was trained on",
            f"give {training.get('table')}, as it was then",
        )  # fmt: skip
    return (split.learn if split.origin == "kept apart" else split.all).frame


def without(chosen: Chosen, learned: pl.DataFrame) -> Chosen:
    """The rows whose flows were not learned from, now that these are known.

    learned : rows of another table. A flow is known by its capture's path and its name. Raises InputError if
    there are none, or nothing is left.
    """
    if not len(learned):
        raise InputError("the table that it was trained on", "has no labelled row", "give the right one")
    places = {name: str(Path(name).resolve()) for name in _captures(chosen.rows.frame) | _captures(learned)}
    place = pl.col("capture").replace_strict(places, return_dtype=pl.String).alias("place")
    frame = chosen.rows.frame
    known = learned.select(place, "flow").unique()
    kept = frame.with_columns(place).join(known, on=["place", "flow"], how="anti", maintain_order="left")
    if not len(kept):
        raise InputError(
            "the captures", "are those it was trained on", "give others, or --all-rows to use them anyway"
        )
    gone = len(frame) - len(kept)
    apart = f", without {gone:,} packets that it learned from" if gone else ""
    how = chosen.how
    if gone or chosen.origin != "kept apart":
        how = f"{chosen.how.partition(';')[0]}{apart}; it has learned from none of them"
    return Chosen(Table(kept.drop("place"), chosen.rows.feature_set), how, "kept apart", learned)


def _captures(frame: pl.DataFrame) -> set[str]:
    return set(frame["capture"].unique().to_list())
