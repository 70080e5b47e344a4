# SPDX-License-Identifier: Apache-2.0
"""Splitting a table so that what is tested was not seen in training."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from wirewise.errors import InputError


def grouped_split(
    frame: pl.DataFrame, *, test_share: float = 0.3, seed: int = 0, group: str = "flow"
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row numbers of a training and a test part such that no group is on both sides.

    Groups are drawn label by label (a group's label is that of its first row), so that each label with at
    least two groups occurs on both sides. The packets of one flow are near copies of each other: a split by
    row would test on what was trained on.

    frame : a table with the columns `label` and `group`. test_share : share of each label's groups, between 0
    and 1. Raises InputError when the shares leave no row on one side.
    """
    if not 0 < test_share < 1:
        raise InputError(f"test share {test_share} must be between 0 and 1")
    groups = frame.group_by(group, maintain_order=True).agg(pl.col("label").first())
    rng = np.random.default_rng(seed)
    tested: list[str] = []
    for (_,), members in groups.group_by(["label"], maintain_order=True):
        names = members[group].to_list()
        count = min(len(names) - 1, max(1, round(test_share * len(names))))
        tested += [names[index] for index in rng.permutation(len(names))[:count]]
    in_test = frame[group].is_in(pl.Series(tested, dtype=frame[group].dtype).implode()).to_numpy()
    train, test = np.flatnonzero(~in_test), np.flatnonzero(in_test)
    if not len(train) or not len(test):
        raise InputError(
            "the table cannot be split",
            f"it has {len(groups)} {group}s over {frame['label'].n_unique()} labels",
            "give more captures: each label needs at least two flows",
        )
    return train, test
