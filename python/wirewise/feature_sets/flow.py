# SPDX-License-Identifier: Apache-2.0
"""Flow keys and the flow table: the reference of bpf/classify/flow.h.

docs/architecture.md ("The flow table") states the rules; this module follows them step by step.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, NamedTuple

from wirewise.abi import HASH_SEEDS, HASH_WORDS, WAYS
from wirewise.feature_sets.feature_set import FeatureSet
from wirewise.feature_sets.fields import BIDIRECTIONAL, TEID, VLAN
from wirewise.feature_sets.packet import Packet
from wirewise.text import address_text

PACKETS_MAX = (1 << 32) - 1
_MASK64 = (1 << 64) - 1


class Key(NamedTuple):
    """A flow key: zero (or empty address) where the feature set's key has no such part."""

    ip_version: int
    source: bytes
    destination: bytes
    source_port: int
    destination_port: int
    protocol: int
    teid: int | None = None
    """Of the GTP-U tunnel, 0 without one; None: the key has no such part."""
    vlan_id: int = 0
    """The outermost VLAN tag's."""
    inner_vlan_id: int = 0
    """The next tag's."""

    def pack(self) -> bytes:
        """Struct ww_key4 (16 bytes) or struct ww_key6 (40 bytes); with a tunnel, ww_tunnel_key4 or
        ww_tunnel_key6 (8 bytes more).
        """
        ports = struct.pack(">HHB", self.source_port, self.destination_port, self.protocol)
        vlans = (self.vlan_id | self.inner_vlan_id << 12).to_bytes(3, "little")
        tunnel = b"" if self.teid is None else struct.pack("<Q", self.teid)
        return self.source + self.destination + ports + vlans + tunnel

    def __str__(self) -> str:
        source, destination = address_text(self.source), address_text(self.destination)
        text = f"{source}:{self.source_port} > {destination}:{self.destination_port} proto {self.protocol}"
        if self.vlan_id or self.inner_vlan_id:
            text += f" vlan {self.vlan_id}" + (f".{self.inner_vlan_id}" if self.inner_vlan_id else "")
        return f"{text} teid {self.teid:#x}" if self.teid else text


def make_key(packet: Packet, kind: str) -> tuple[Key, bool]:
    """The flow key of a packet, and whether source and destination were swapped into canonical order.

    kind : one of feature_set.KEYS or AGGREGATES. Only `five-tuple-bidirectional` swaps: the smaller (address,
    port), in network order, first. CLIENT_AGGREGATES take the source for the client (`as_the_client_sends`).
    """
    if kind.endswith(TEID):
        key, swapped = make_key(packet, kind.removesuffix(TEID))
        return key._replace(teid=packet.teid), swapped
    if kind.endswith(VLAN):
        key, swapped = make_key(packet, kind.removesuffix(VLAN))
        return key._replace(vlan_id=packet.vlan_id, inner_vlan_id=packet.inner_vlan_id), swapped
    nowhere = bytes(len(packet.source))
    p = packet
    if kind == "source":
        return Key(p.ip_version, p.source, nowhere, 0, 0, 0), False
    if kind == "destination":
        return Key(p.ip_version, nowhere, p.destination, 0, 0, 0), False
    if kind == "service":
        return Key(p.ip_version, nowhere, p.destination, 0, p.destination_port, p.protocol), False
    if kind == "pair":
        return Key(p.ip_version, p.source, p.destination, 0, p.destination_port, p.protocol), False
    if kind == "client-port":
        return Key(p.ip_version, p.source, nowhere, 0, p.destination_port, p.protocol), False
    if kind in ("source-destination", "hosts"):
        return Key(p.ip_version, p.source, p.destination, 0, 0, 0), False
    if kind == BIDIRECTIONAL and (p.source, p.source_port) > (p.destination, p.destination_port):
        return Key(p.ip_version, p.destination, p.source, p.destination_port, p.source_port, p.protocol), True
    return Key(p.ip_version, p.source, p.destination, p.source_port, p.destination_port, p.protocol), False


def as_the_client_sends(packet: Packet, forward: int) -> Packet:
    """The packet with its client as source. forward : 1 if the client, who began the flow, sent it."""
    if forward:
        return packet
    return replace(
        packet, source=packet.destination, destination=packet.source,
        source_port=packet.destination_port, destination_port=packet.source_port,
    )  # fmt: skip


def hash_key(key: Key, seed: Sequence[int]) -> int:
    """The hash of a flow's key; see `hash_bytes`."""
    return hash_bytes(key.pack(), seed)


def hash_bytes(data: bytes, seed: Sequence[int]) -> int:
    """32-bit hash of whole 64-bit words under a secret seed of 13 u64: multilinear over pairs of their 32-bit
    words, which is universal; then a finish that leaves nothing of an arithmetic sequence, which that would
    keep one.
    """
    words: tuple[int, ...] = struct.unpack(f"<{len(data) // 4}I", data)
    total = sum((seed[i] + words[i]) * (seed[i + 1] + words[i + 1]) for i in range(0, len(words), 2))
    total &= _MASK64
    total = (total ^ total >> 32) * seed[HASH_WORDS] & _MASK64
    return (total ^ total >> 32) & 0xFFFFFFFF


def seed_from(number: int) -> list[int]:
    """Thirteen 64-bit seeds, the last of them odd, from one number by splitmix64, so that a run can be given
    back.
    """
    seeds = []
    for _ in range(HASH_SEEDS):
        number = (number + 0x9E3779B97F4A7C15) & _MASK64
        z = number
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _MASK64
        z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK64
        seeds.append(z ^ z >> 31)
    seeds[HASH_WORDS] |= 1
    return seeds


@dataclass
class Entry:
    """One place of the table; packets == 0: empty. `state` is what the feature set accumulates.

    verdict : the model's last, None before the first; streak : how many were for this class, in a row.
    """

    key: Key | None = None
    last_seen_ns: int = 0
    packets: int = 0
    swapped: bool = False
    verdict: int | None = None
    streak: int = 0
    state: Any = None

    def clear(self, key: Key, swapped: bool) -> None:
        self.key, self.last_seen_ns, self.packets, self.swapped, self.verdict = key, 0, 0, swapped, None
        self.streak, self.state = 0, None


class Lookup(Enum):
    """How the table answered; each but HIT is counted in ww_stats."""

    HIT = "hit"
    NEW = "new"
    EXPIRED = "expired"
    EVICTED = "evicted"
    REFUSED = "refused"


class FlowTable:
    """The flow table for one IP version: all CPUs' if they share it, else one CPU's shard.

    table_size : entries, a power of two of at least 4. seed : 13 u64. idle_timeout_ns : instead of the
    feature set's. Buckets are made when first touched.
    """

    def __init__(
        self,
        feature_set: FeatureSet,
        seed: Sequence[int],
        table_size: int | None = None,
        idle_timeout_ns: int | None = None,
    ) -> None:
        self._set = feature_set
        self._idle_timeout_ns = idle_timeout_ns or feature_set.idle_timeout_ns
        self._seed = seed
        self._mask = (table_size or feature_set.table_size) // WAYS - 1
        self.buckets: dict[int, list[Entry]] = {}

    def find(self, key: Key, swapped: bool, now_ns: int) -> tuple[Entry, Lookup]:
        """The entry of a flow, made anew (packets 0) if need be; a blank one outside the table if refused."""
        number = hash_key(key, self._seed)
        bucket = self.buckets.get(number >> 2 & self._mask)
        if bucket is None:
            bucket = self.buckets[number >> 2 & self._mask] = [Entry() for _ in range(WAYS)]
        first = number & 3
        order = [bucket[first ^ way] for way in range(WAYS)]

        def idle(entry: Entry) -> bool:
            return max(0, now_ns - entry.last_seen_ns) > self._idle_timeout_ns

        for entry in order:
            if entry.packets and entry.key == key:
                if not idle(entry):
                    return entry, Lookup.HIT
                entry.clear(key, swapped)
                return entry, Lookup.EXPIRED
        for entry in order:
            if not entry.packets or idle(entry):
                result = Lookup.EXPIRED if entry.packets else Lookup.NEW
                entry.clear(key, swapped)
                return entry, result
        exposed = [e for e in order if not self._protected(e, now_ns)]
        if exposed:
            entry = min(exposed, key=lambda e: e.last_seen_ns)
            entry.clear(key, swapped)
            return entry, Lookup.EVICTED
        blank = Entry()
        blank.clear(key, swapped)
        return blank, Lookup.REFUSED

    def _protected(self, entry: Entry, now_ns: int) -> bool:
        age = max(0, now_ns - entry.last_seen_ns)
        return entry.packets >= self._set.proven_packets and age <= self._set.grace_ns
