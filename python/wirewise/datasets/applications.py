# SPDX-License-Identifier: Apache-2.0
"""Which benign application a packet is of, so that what is lost can be told application by application.

A label `benign/web` says: class benign, application web. Any source of labels can say so. Of a folder with a
manifest.json, the `class` of a benign capture is its application.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from wirewise.datasets.manifest import BENIGN, CaptureFolder
from wirewise.errors import InputError

COLUMN = "application"
UNNAMED = ""
_PREFIX = BENIGN + "/"


def by_labels(frame: pl.DataFrame) -> pl.DataFrame:
    """Labels such as `benign/web` taken apart: `benign`, and `web` in the column `application`; "" elsewhere.

    frame : with the column `label`. It comes back as it is if no label names an application. What a column
    `application` says already stays.
    """
    label = pl.col("label")
    if not frame.select(label.str.starts_with(_PREFIX).any()).item():
        return frame
    named = pl.when(label.str.starts_with(_PREFIX)).then(label.str.slice(len(_PREFIX)))
    plain = pl.when(label.str.starts_with(_PREFIX)).then(pl.lit(BENIGN)).otherwise(label)
    return frame.with_columns(_or_else(frame, named).alias(COLUMN), plain.alias("label"))


def by_folder(frame: pl.DataFrame, folder: CaptureFolder) -> pl.DataFrame:
    """The column `application` filled in from a folder's manifest where it says nothing.

    frame : with the column `capture`. Raises InputError if none of the captures is a benign one of the
    folder.
    """
    found = {name: folder.application(Path(name)) for name in frame["capture"].unique().to_list()}
    if not any(found.values()):
        raise InputError(
            str(folder.path), "its manifest names none of the table's captures as benign",
            "give the folder that the table was made of",
        )  # fmt: skip
    named = pl.col("capture").replace_strict(found, return_dtype=pl.String)
    return frame.with_columns(_or_else(frame, named).alias(COLUMN))


def _or_else(frame: pl.DataFrame, named: pl.Expr) -> pl.Expr:
    """What the column says, else `named`, else ""."""
    said = [pl.col(COLUMN).replace(UNNAMED, None)] if frame.schema.get(COLUMN) == pl.String else []
    return pl.coalesce(*said, named, pl.lit(UNNAMED))
