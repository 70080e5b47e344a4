# SPDX-License-Identifier: Apache-2.0
"""Traffic of any length, a slice of time after the other: memory holds what is under way, not the whole.

for rows in stream(seed=1, mix=mix_of("hara2023"), duration_s=3600, rate=20_000):
build(rows)  # frames, in time order
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Literal

import numpy as np

from wirewise.errors import InputError, choose

from .attacks import syn_flood
from .frames import ROW, TCP, Rows
from .hosts import SECOND_NS, Recorder
from .profiles import ALL_KINDS, BENIGN, KINDS_BY_NAME, Script, check_mix

Ports = Literal["usual", "random"]
PORTS: tuple[Ports, ...] = ("usual", "random")
_SLICE_PACKETS = 20_000
_WARM_UP_S = 20.0
FLOODS = ("syn-flood", "syn", "tcp-flags")
"""Kinds whose flags can be chosen."""


@dataclass(frozen=True)
class Variation:
    """How attacks differ from what their kinds do. Benign traffic stays as it is.

    ports : `random` moves each attacker's or reflector's own port to another one, the same for the whole of a
    flow. flags : TCP flags of floods as a number; None is the kind's own. pace : attack flows take this many
    times as long, 0.01 to 100.
    """

    ports: Ports = "usual"
    flags: int | None = None
    pace: float = 1.0

    def __post_init__(self) -> None:
        if self.ports not in PORTS:
            raise InputError(f"ports {self.ports!r}", "is no variation", choose(self.ports, PORTS))
        if not 0.01 <= self.pace <= 100:
            raise InputError(f"pace {self.pace:g}", "is outside 0.01 to 100", "1 is the usual one")

    def apply(self, rows: Rows, kind: str) -> None:
        """Changes the rows of one conversation, or of one wave of a flood."""
        if KINDS_BY_NAME[kind].label == BENIGN or not len(rows):
            return
        if self.ports == "random":
            for side, host, port in (
                (False, "source", "source_port"),
                (True, "destination", "destination_port"),
            ):
                sent = rows["outgoing"] == side
                mixed = rows[host].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
                mixed = (mixed ^ rows[port].astype(np.uint64)) * np.uint64(0xD6E8FEB86659FD93) >> np.uint64(
                    40
                )
                # Later fragments have no port, and need none.
                rows[port] = np.where(sent, 1024 + mixed % np.uint64(64512), rows[port])
        if self.flags is not None and kind in FLOODS:
            floods = (rows["protocol"] == TCP) & ~rows["outgoing"]
            rows["tcp_flags"] = np.where(floods, self.flags, rows["tcp_flags"])
        if self.pace != 1.0 and KINDS_BY_NAME[kind].script is not None:
            first = rows["time_ns"].min()
            rows["time_ns"] = first + ((rows["time_ns"] - first) * self.pace).astype(np.int64)


class _Endless(Recorder):
    """Records whatever its scripts send, at any time."""

    def add(self, row: tuple[Any, ...]) -> None:
        if row[2] and not self.both_directions:
            return
        self.incoming += not row[2]
        self.rows.append(row)


@dataclass
class _Source:
    """One kind: how many packets it still owes."""

    index: int
    kind: str
    rate: float  # packets a second towards the protected network
    owed: float = 0.0

    def play(
        self, seed: int, number: int, begin_s: float, length_s: float, both: bool, change: Variation
    ) -> list[Rows]:
        """The conversations that begin in a slice; what they send later is among the rows."""
        self.owed += self.rate * length_s
        script = KINDS_BY_NAME[self.kind].script
        if script is None:
            return self._flood(seed, number, begin_s, length_s, both, change)
        return self._conversations(
            script, Random(f"{seed}/{self.kind}/{number}"), begin_s, length_s, both, change
        )

    def _flood(
        self, seed: int, number: int, begin_s: float, length_s: float, both: bool, change: Variation
    ) -> list[Rows]:
        packets = int(self.owed)
        if packets < 1:
            return []
        self.owed -= packets
        numbers = np.random.Generator(np.random.PCG64([seed, self.index, number + (1 << 20)]))
        rows = syn_flood(numbers, self.index, packets, round(length_s * SECOND_NS), replies=both)
        rows["time_ns"] += round(begin_s * SECOND_NS)
        change.apply(rows, self.kind)
        return [rows]

    def _conversations(
        self, script: Script, rng: Random, begin_s: float, length_s: float, both: bool, change: Variation
    ) -> list[Rows]:
        parts = []
        # Whether one more begins is drawn, so that a slice owed half a conversation has one in two times.
        while self.owed > 0:
            recorder = _Endless(0, both)
            script(recorder, rng, self.index, begin_s + rng.random() * length_s)
            self.owed -= max(1, recorder.incoming)
            rows = np.array(recorder.rows, ROW)
            change.apply(rows, self.kind)
            parts.append(rows)
        return parts


def stream(
    seed: int,
    *,
    mix: Mapping[str, float],
    duration_s: float,
    rate: float,
    both_directions: bool = False,
    variation: Variation | None = None,
) -> Iterator[Rows]:
    """Rows in time order, in pieces; the same seed and numbers give the same rows.

    rate : about how many packets a second towards the protected network, over all kinds. Flows are under way
    when it begins, and go on when it ends. Raises InputError for an unknown kind, or numbers that are none.
    """
    check_mix(mix)
    if not 0 < duration_s < 1e8 or not 0 < rate < 1e9:
        raise InputError(
            "traffic: duration and rate must be positive", way_out="such as --duration 60s --rate 10000"
        )
    whole = sum(mix.values())
    sources = [
        _Source(index, kind, rate * mix[kind] / whole)
        for index, kind in enumerate(ALL_KINDS) if mix.get(kind, 0) > 0
    ]  # fmt: skip
    change = variation or Variation()
    length = min(max(_SLICE_PACKETS / rate, 0.01), 10.0, duration_s)
    # Flows that began before the observed time are seen from their middle.
    number = -int(min(_WARM_UP_S, duration_s) / length) - 1
    end_ns = round(duration_s * SECOND_NS)
    under_way: list[Rows] = []
    while number * length < duration_s:
        for source in sources:
            under_way += source.play(seed, number, number * length, length, both_directions, change)
        number += 1
        limit = min(round(number * length * SECOND_NS), end_ns)
        rows = np.concatenate(under_way) if under_way else np.zeros(0, ROW)
        times = rows["time_ns"]
        due = rows[(times >= 0) & (times < limit)]
        under_way = [rows[(times >= limit) & (times < end_ns)]]
        if len(due):
            yield due[np.argsort(due["time_ns"], kind="stable")]
