# SPDX-License-Identifier: Apache-2.0
"""What an augmentation is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import polars as pl

from wirewise.augment import frames
from wirewise.feature_sets import FeatureSet

RowWise: TypeAlias = Callable[[pl.DataFrame, FeatureSet, int, Sequence[int]], pl.DataFrame]
"""(rows, their feature set, seed, the pool of service ports) -> the rows of a variant."""


@dataclass(frozen=True)
class Augmentation:
    """One thing that should not matter.

    rewrite : changes a frame; None where only times change. rows : changes feature rows to what the features
    of a changed capture would be; None where that cannot be known, and why_not says why.
    """

    name: str
    summary: str
    rewrite: frames.Rewrite | None
    rows: RowWise | None = None
    why_not: str = ""
