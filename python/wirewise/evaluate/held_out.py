# SPDX-License-Identifier: Apache-2.0
"""Which rows of a table a model has not seen: those its training kept apart, else a new split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from wirewise.datasets.table import Table
from wirewise.errors import InputError
from wirewise.evaluate.split import grouped_split
from wirewise.features.packet import Status


@dataclass(frozen=True)
class Parts:
    """Two parts of a table's classified rows with no flow on both sides; how : where `test` comes from."""

    learn: Table
    test: Table
    how: str


def parts(table: Table, training: Mapping[str, Any] | None, digest: str) -> Parts:
    """What a network is quantised with, and what the result is tested on.

    training : the facts of a training record, None if there is none. digest : SHA-256 of the table's file.
    The split is that of the training if it was on this table. A table that cannot be split is on both sides.
    """
    usable = table.labelled
    if not len(usable.frame):
        usable = Table(table.frame.filter(pl.col("status") == Status.CLASSIFIED), table.feature_set)
    share, seed, how = 0.3, 0, "flows that were not quantised with"
    if training and training.get("table_sha256") == digest and training.get("split") == "by flow":
        share, seed = training["test_share"], training["seed"]
        how = "flows that were neither trained nor quantised with"
    try:
        learn, test = grouped_split(usable.frame, test_share=share, seed=seed)
    except InputError:
        return Parts(usable, usable, "the very rows it was quantised with: too few flows to keep any apart")
    return Parts(
        Table(usable.frame[learn], table.feature_set), Table(usable.frame[test], table.feature_set), how
    )
