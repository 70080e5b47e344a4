# SPDX-License-Identifier: Apache-2.0
"""The data set as a file: a Parquet table of a row for each round of probes.

run : the number of the simulated network; its rounds follow one another. delay_HOST : 8 bits, in units of
UNIT_SLOTS slots, of the probe of that host; LARGEST is as much or more, and a probe that was lost.
queue_SWITCH_NEIGHBOUR : mean packets in the queue over the round.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from examples.tomography.simulator import LOST, Rounds
from examples.tomography.topology import PROBES, WATCHED
from wirewise.errors import InputError
from wirewise.files import replacing

UNIT_SLOTS = 2  # 24 us: five full queues of 100 packets, which no path exceeds, are 250 units
DELAY_BITS = 8
LARGEST = (1 << DELAY_BITS) - 1

DELAYS = [f"delay_host{host}" for host in PROBES]
NAMES = [f"{switch}_{neighbour}" for switch, neighbour in WATCHED]
_COLUMNS = {"run": pl.Int64, **dict.fromkeys(DELAYS, pl.UInt8)} | {f"queue_{n}": pl.Float64 for n in NAMES}


@dataclass(frozen=True)
class Dataset:
    """run : (n,). delays : (n, 19), 0 to LARGEST. packets : mean of each queue, (n, 17)."""

    run: NDArray[np.int64]
    delays: NDArray[np.int64]
    packets: NDArray[np.float64]

    @classmethod
    def of(cls, rounds: Rounds) -> Dataset:
        delays = np.minimum(rounds.delay // UNIT_SLOTS, LARGEST)
        return cls(rounds.run, np.where(rounds.delay == LOST, LARGEST, delays), rounds.packets)

    def write(self, path: Path) -> None:
        columns = [self.run, *self.delays.T, *self.packets.T]
        frame = pl.DataFrame(dict(zip(_COLUMNS, columns, strict=True)), schema=_COLUMNS)
        with replacing(path) as temporary:
            frame.write_parquet(temporary)

    @classmethod
    def read(cls, path: Path) -> Dataset:
        """Raises InputError for what `write` has not written."""
        way_out = "give a file that `simulate -o FILE` has written"
        if not path.is_file():
            raise InputError(str(path), "is not a file", way_out)
        try:
            frame = pl.read_parquet(path)
        except Exception as error:  # polars raises several kinds for what is no Parquet
            raise InputError(str(path), "cannot be read as Parquet", way_out) from error
        if dict(frame.schema) != _COLUMNS or not len(frame) or any(frame.null_count().row(0)):
            raise InputError(str(path), "has other columns than the data set has, or no rows", way_out)
        run, delays = frame["run"].to_numpy(), frame.select(DELAYS).to_numpy().astype(np.int64)
        return cls(run, delays, frame.select(f"queue_{name}" for name in NAMES).to_numpy())

    def split(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows to learn from, and to test on: 30 % of the runs, which the others say nothing about."""
        runs = np.unique(self.run)
        if len(runs) < 2:
            raise InputError("the data set", "has one run, and needs one to test on", "simulate two or more")
        tested = np.isin(self.run, runs[-max(1, round(0.3 * len(runs))) :])
        return np.flatnonzero(~tested), np.flatnonzero(tested)
