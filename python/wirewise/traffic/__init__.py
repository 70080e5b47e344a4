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

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

import numpy as np

from wirewise.errors import InputError

from .attacks import port_scan, slow_http, syn_flood, udp_amplification
from .benign import bulk, dns, ntp, quic, web
from .frames import ROW, Rows, build
from .hosts import SECOND_NS, Recorder

BENIGN = "benign"
KINDS = ("web", "dns", "ntp", "quic", "bulk", "syn-flood", "udp-amplification", "port-scan", "slow-http")
"""Kinds of traffic; the first five are benign, the others are attacks of the same name."""
LABELS = {kind: kind if index >= 5 else BENIGN for index, kind in enumerate(KINDS)}
"""What a classifier is to say of each kind."""

MIX: dict[str, float] = {
    "web": 0.20,
    "dns": 0.05,
    "ntp": 0.01,
    "quic": 0.14,
    "bulk": 0.20,
    "syn-flood": 0.20,
    "udp-amplification": 0.12,
    "port-scan": 0.065,
    "slow-http": 0.015,
}
"""Default share of each kind in the packets towards the protected network."""

_Script = Callable[[Recorder, Random, int, float], None]
_SCRIPTS: dict[str, _Script] = {
    "web": web,
    "dns": dns,
    "ntp": ntp,
    "quic": quic,
    "bulk": bulk,
    "udp-amplification": udp_amplification,
    "port-scan": port_scan,
    "slow-http": slow_http,
}


class Packet(NamedTuple):
    time_ns: int
    frame: bytes
    kind: str
    label: str  # "" for the victim's answers to an attack, which are neither


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
            name = KINDS[kind]
            yield Packet(time_ns, frame, name, "" if reply else LABELS[name])

    def counts(self) -> dict[str, int]:
        """Packets of each kind."""
        counted = np.bincount(self.rows["kind"], minlength=len(KINDS)).tolist()
        return dict(zip(KINDS, counted, strict=True))


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
    unknown = sorted(set(mix) - set(KINDS))
    if unknown:
        raise InputError(f"traffic mix: unknown kind '{unknown[0]}'; there are {', '.join(KINDS)}")
    if duration_s <= 0 or packets < 1 or min(mix.values(), default=0) < 0 or sum(mix.values()) <= 0:
        raise InputError("traffic: duration, packets and the sum of the shares must be positive")
    duration_ns = round(duration_s * SECOND_NS)
    parts: list[Rows] = []
    for index, kind in enumerate(KINDS):
        budget = round(packets * mix.get(kind, 0) / sum(mix.values()))
        if budget == 0:
            continue
        # A stream of random numbers for each kind: changing one share leaves the other kinds as they were.
        if kind == "syn-flood":
            numbers = np.random.Generator(np.random.PCG64([seed, index]))
            parts.append(syn_flood(numbers, index, budget, duration_ns, replies=both_directions))
        else:
            parts.append(
                _play(_SCRIPTS[kind], Random(f"{seed}/{kind}"), index, budget, duration_ns, both_directions)
            )
    rows = np.concatenate(parts)
    rows = rows[(rows["time_ns"] >= 0) & (rows["time_ns"] < duration_ns)]
    return Traffic(rows[np.argsort(rows["time_ns"], kind="stable")])


def _play(
    script: _Script, rng: Random, kind: int, budget: int, duration_ns: int, both_directions: bool
) -> Rows:
    """Conversations at random times until about `budget` packets have arrived."""
    recorder = Recorder(duration_ns, both_directions)
    duration = duration_ns / SECOND_NS
    while recorder.incoming < budget:
        script(recorder, rng, kind, rng.uniform(-0.3 * duration, duration))
    return np.array(recorder.rows, ROW)
