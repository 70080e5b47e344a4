# SPDX-License-Identifier: Apache-2.0
"""Probes of network paths, and the rounds that they come in; the same rules in C are bpf/classify/probe.h.

Probes of all paths with the same number are a round. What each took is kept by path until the round is whole:
all paths that features read were seen, or a probe of a later round came, so that what is missing is lost.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

PORT = 49200
MAGIC = 0x77775052
LOST = 255
LATE = 1024
"""Rounds; what is further behind is of a sender that began anew."""
MAX_PATHS = 64
SIZE = 24
_MASK32, _MASK64 = (1 << 32) - 1, (1 << 64) - 1


class Probe(NamedTuple):
    """What the payload of a UDP packet to PORT says, in network byte order: behind MAGIC 4 bytes each, but 2
    of the path, 2 that are reserved, and 8 of when it was sent.
    """

    round: int
    unit_ns: int
    """That the time under way is counted in."""
    path: int
    sent_ns: int
    """Of the clock that the receiver has too."""

    def to_bytes(self) -> bytes:
        parts = ((MAGIC, 4), (self.round, 4), (self.unit_ns, 4), (self.path, 2), (0, 2), (self.sent_ns, 8))
        return b"".join(value.to_bytes(size, "big") for value, size in parts)

    @classmethod
    def read(cls, payload: bytes) -> Probe | None:
        """None: it is no probe."""

        def number(at: int, size: int) -> int:
            return int.from_bytes(payload[at : at + size], "big")

        if len(payload) < SIZE or number(0, 4) != MAGIC or not number(8, 4):
            return None
        return cls(number(4, 4), number(8, 4), number(12, 2), number(16, 8))

    def delay(self, now_ns: int) -> int:
        """How long it was under way, in its units; 0 if it was sent later than now."""
        elapsed = now_ns - self.sent_ns & _MASK64
        return 0 if elapsed >> 63 else min(elapsed // self.unit_ns, LOST)


@dataclass
class Rounds:
    """The rounds of a flow. paths : that features read. delays, whole : by path, of the round and of the last
    whole one.
    """

    paths: frozenset[int]
    delays: bytearray
    whole: bytearray
    round: int = 0
    seen: int = 0

    @classmethod
    def of(cls, paths: Collection[int]) -> Rounds:
        size = 8 * words(paths)
        return cls(frozenset(paths), bytearray(size), bytearray(size))

    def take(self, probe: Probe, now_ns: int) -> bool:
        """Whether a round is whole with it."""
        if probe.path not in self.paths:
            return False
        everything = sum(1 << path for path in self.paths)
        behind, became_whole = self.round - probe.round & _MASK32, False
        if not self.seen or behind:
            if self.seen and 1 <= behind <= LATE:
                return False
            if self.seen and self.seen != everything:
                self.whole[:], became_whole = self.delays, True
            self.delays[:] = bytes([LOST]) * len(self.delays)
            self.round, self.seen = probe.round, 0
        if self.seen >> probe.path & 1:
            return False
        self.seen |= 1 << probe.path
        self.delays[probe.path] = probe.delay(now_ns)
        if self.seen == everything:
            self.whole[:], became_whole = self.delays, True
        return became_whole

    @property
    def variables(self) -> dict[str, int]:
        """As the C has them: 8 delays a word, that of the lowest path the lowest byte."""
        found = {"round": self.round, "round_seen": self.seen}
        for name, values in (("delays", self.delays), ("whole", self.whole)):
            for at in range(0, len(values), 8):
                found[f"{name}_{at // 8}"] = int.from_bytes(values[at : at + 8], "little")
        return found


def words(paths: Collection[int]) -> int:
    """Words of 8 delays that hold those of all paths; 0 without any."""
    return max(paths, default=-1) // 8 + 1
