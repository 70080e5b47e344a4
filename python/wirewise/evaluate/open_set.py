# SPDX-License-Identifier: Apache-2.0
"""What training saw of each feature, so that a model can say that it does not know the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from wirewise.datasets.table import Table
from wirewise.errors import InputError
from wirewise.evaluate.classes import matrix, numbers
from wirewise.evaluate.held_out import Parts
from wirewise.models import UNKNOWN, Bound, Bounded, Family


@dataclass(frozen=True)
class OpenSet:
    """The least and largest value that training saw of each feature that a model reads.

    rows : it saw. how : which rows the shares are of. benign, attack : shares, 0 to 1, of their flows with a
    packet that is unknown; None without such flows.
    """

    bounds: tuple[Bound, ...]
    rows: int
    how: str
    benign: float | None
    attack: float | None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def choose_from(model: Family, classes: Sequence[str], table: Parts, *, quantised: bool) -> OpenSet:
    """The bounds of the rows that a model learned from, and how much of the others lies outside.

    quantised : the model is a network that was quantised with a part of the table. Raises InputError where a
    class is called `unknown` already.
    """
    if UNKNOWN in classes:
        raise InputError("classes", f"one is called {UNKNOWN!r} already", "rename it, or leave --unknown out")
    judged, how = table.judged(quantised)
    learned = table.learned(quantised)
    bounded = Bounded.by(model, matrix(learned))
    outside = bounded.outside(matrix(judged))
    truth = numbers(judged, list(classes))
    return OpenSet(
        bounded.bounds,
        len(learned.frame),
        how,
        _share(judged, outside, truth == 0),
        _share(judged, outside, truth > 0),
    )


def _share(table: Table, outside: NDArray[np.bool_], of: NDArray[np.bool_]) -> float | None:
    """Of the flows of these rows, those with a packet outside."""
    flows = (
        table.frame.select("capture", "flow")
        .with_columns(outside=pl.Series(outside))
        .filter(pl.Series(of))
        .group_by("capture", "flow")
        .agg(pl.col("outside").any())
    )
    share = flows["outside"].mean() if len(flows) else None
    return None if share is None else float(share)  # type: ignore[arg-type]
