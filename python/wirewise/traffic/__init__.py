# SPDX-License-Identifier: Apache-2.0
"""Seeded traffic: packets of a small network in ordinary use and under attack, with the truth about each.

    traffic = generate(seed=1, duration_s=20, packets=400_000)
    for packet in traffic:
        packet.time_ns, packet.frame, packet.kind, packet.label

The same seed and numbers give the same bytes. Frames carry right lengths and checksums; IPv4 and IPv6, some
of them VLAN tagged, some fragmented. What is simplified: no loss, no retransmission of data, payloads are
filler.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

import numpy as np

from wirewise.errors import InputError

from .attacks import syn_flood
from .frames import ROW, Rows, build
from .hosts import SECOND_NS, Recorder
from .profiles import (
    ALL_KINDS,
    BENIGN,
    DEMO,
    KINDS_BY_NAME,
    PROFILES,
    Kind,
    Profile,
    Script,
    check_mix,
    mix_of,
)

KINDS = tuple(DEMO.mix)
"""Kinds of the demo; the first five are benign, the others are attacks of the same name."""
LABELS = {kind: KINDS_BY_NAME[kind].label for kind in KINDS}
"""What a classifier is to say of each of them."""
MIX: dict[str, float] = dict(DEMO.mix)
"""The demo's share of each kind in the packets towards the protected network."""


class Packet(NamedTuple):
    time_ns: int
    frame: bytes
    kind: str
    label: str  # "" for the victim's answers to an attack, which are neither


__all__ = [
    "ALL_KINDS", "BENIGN", "KINDS", "KINDS_BY_NAME", "LABELS", "MIX", "PROFILES", "Kind", "Packet", "Profile",
    "Traffic", "generate", "mix_of",
]  # fmt: skip


@dataclass(frozen=True)
class Traffic:
    """Packets in time order, from time 0; frames are built when first asked for."""

    rows: Rows

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Packet]:
        frames = build(self.rows)
        times, kinds = self.rows["time_ns"].tolist(), self.rows["kind"].tolist()
        for time_ns, frame, kind, reply in zip(
            times, frames, kinds, self.rows["reply"].tolist(), strict=True
        ):
            name = ALL_KINDS[kind]
            yield Packet(time_ns, frame, name, "" if reply else KINDS_BY_NAME[name].label)

    def counts(self) -> dict[str, int]:
        """Packets of each kind: of the demo's, and of others that occur."""
        counted = np.bincount(self.rows["kind"], minlength=len(ALL_KINDS)).tolist()
        return {kind: n for kind, n in zip(ALL_KINDS, counted, strict=True) if n or kind in KINDS}


def generate(
    seed: int,
    *,
    duration_s: float = 20.0,
    packets: int = 400_000,
    mix: Mapping[str, float] = MIX,
    both_directions: bool = False,
) -> Traffic:
    """Make traffic.

    duration_s : length of the observed interval; flows begin before and end after it.
    packets : about how many packets towards the protected network, over all kinds.
    mix : kind -> share; shares are relative, a kind not named does not occur.
    both_directions : also give what the protected network sends, as a feature set with a bidirectional key
    wants it;
        an XDP program sees only what arrives.

    Raises InputError for an unknown kind, a negative share or number.
    """
    check_mix(mix)
    if duration_s <= 0 or packets < 1:
        raise InputError("traffic: duration and packets must be positive")
    duration_ns = round(duration_s * SECOND_NS)
    parts: list[Rows] = []
    for index, kind in enumerate(ALL_KINDS):
        budget = round(packets * mix.get(kind, 0) / sum(mix.values()))
        if budget == 0:
            continue
        # A stream of random numbers for each kind: changing one share leaves the other kinds as they were.
        script = KINDS_BY_NAME[kind].script
        if script is None:
            numbers = np.random.Generator(np.random.PCG64([seed, index]))
            parts.append(syn_flood(numbers, index, budget, duration_ns, replies=both_directions))
        else:
            parts.append(_play(script, Random(f"{seed}/{kind}"), index, budget, duration_ns, both_directions))
    rows = np.concatenate(parts)
    rows = rows[(rows["time_ns"] >= 0) & (rows["time_ns"] < duration_ns)]
    return Traffic(rows[np.argsort(rows["time_ns"], kind="stable")])


def _play(
    script: Script, rng: Random, kind: int, budget: int, duration_ns: int, both_directions: bool
) -> Rows:
    """Conversations at random times until about `budget` packets have arrived."""
    recorder = Recorder(duration_ns, both_directions)
    duration = duration_ns / SECOND_NS
    while recorder.incoming < budget:
        script(recorder, rng, kind, rng.uniform(-0.3 * duration, duration))
    return np.array(recorder.rows, ROW)
