# SPDX-License-Identifier: Apache-2.0
"""When a flow is judged: at some of its packets, after some time, or at every packet."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from wirewise.errors import InputError
from wirewise.text import listed
from wirewise.units import format_duration, parse_duration

EVERY = "every"
_SECOND = 1_000_000_000


@dataclass(frozen=True)
class At:
    """The moments of a flow's life at which it is judged; of several, a verdict against it at any counts.

    packets : numbers of its packets, from 1. times_ns : since its first packet; the verdict is that on the
    last packet until then. every : at each packet. A shorter flow is judged at its last packet.
    """

    packets: tuple[int, ...] = ()
    times_ns: tuple[int, ...] = ()
    every: bool = False

    @classmethod
    def parse(cls, text: str) -> At:
        """Parses text such as `5`, `5,30,100`, `10s` or `every`. Raises InputError for anything else."""
        if text.strip() == EVERY:
            return cls(every=True)
        parts = [part.strip() for part in text.split(",")]
        numbers = {int(part) for part in parts if part.isdecimal()}
        times = {parse_duration(part, what="--at") for part in parts if not part.isdecimal()}
        if 0 in numbers:
            raise InputError(f"--at {text}", "counts packets from 1", "write 5, or 5,30,100, 10s or every")
        return cls(tuple(sorted(numbers)), tuple(sorted(times)))

    def __str__(self) -> str:
        if self.every:
            return "any packet"
        times = [f"after {format_duration(time)}" for time in self.times_ns]
        if not self.packets:
            return listed(times)
        numbers = [str(number) for number in self.packets]
        return listed([f"packet{'s' if len(numbers) > 1 else ''} {listed(numbers)}", *times])

    @property
    def rows(self) -> dict[str, pl.Expr]:
        """For a flow's rows in order: the number, from 0, of the row that each moment judges."""
        last = pl.len() - 1
        found = {packet(number): pl.min_horizontal(last, pl.lit(number - 1)) for number in self.packets}
        age = pl.col("time_ns") - pl.col("time_ns").first()
        return found | {time(ns): pl.int_range(pl.len()).filter(age <= ns).last() for ns in self.times_ns}


def packet(number: int) -> str:
    """The name of a moment in a frame."""
    return f"at packet {number}"


def time(ns: int) -> str:
    """The name of a moment in a frame."""
    return f"at {ns / _SECOND} s"
