# SPDX-License-Identifier: Apache-2.0
"""The reference of bans (bpf/act/ban.h): who is dropped for what it sent before, and who has proved its
address.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import Any

from wirewise.abi import BAN_BUCKETS, BAN_WAYS, HANDSHAKES, PROOF_BYTES
from wirewise.feature_sets.flow import hash_bytes
from wirewise.feature_sets.packet import Packet

_SYN, _RST, _ACK = 0x02, 0x04, 0x10
_TCP = 6
_MASK32 = 0xFFFFFFFF


@dataclass(frozen=True, order=True)
class Kind:
    """Who else is banned together with a packet's sender.

    ipv4, ipv6 : bits of its address that count, 1 to 32 and 1 to 128. pair : only its packets to the same
    receiver.
    """

    ipv4: int = 32
    ipv6: int = 128
    pair: bool = False

    def __str__(self) -> str:
        if self.pair:
            return "pair"
        return "source" if self == Kind() else f"source-prefix /{self.ipv4} and /{self.ipv6}"

    def key(self, packet: Packet, *, would: bool) -> bytes:
        """40 bytes, as in struct ww_ban_key."""
        length = self.ipv4 if packet.ip_version == 4 else self.ipv6
        network = ip_network((packet.source, length), strict=False).network_address.packed
        destination = packet.destination if self.pair else b""
        return (
            network.ljust(16, b"\0")
            + destination.ljust(16, b"\0")
            + bytes([length, packet.ip_version, self.pair, would]).ljust(8, b"\0")
        )


@dataclass(frozen=True)
class Ban:
    """What a class has done to those who send its packets.

    spoofable : also to those who have not proved their address.
    """

    kind: Kind
    for_ns: int
    spoofable: bool = False

    @classmethod
    def of(cls, form: Mapping[str, Any]) -> Ban:
        """From the normal form."""
        kind = Kind(form["ipv4"], form["ipv6"], form["pair"])
        return cls(kind, form["for_ns"], form["spoofable"])


@dataclass
class _Handshake:
    """Numbers are acknowledgement << 32 | sequence of the segment that completes it; 0: none."""

    offered: int = 0
    proven: int = 0


@dataclass
class _Bucket:
    keys: list[bytes] = field(default_factory=lambda: [b""] * BAN_WAYS)
    until_ns: list[int] = field(default_factory=lambda: [0] * BAN_WAYS)


class Bans:
    """Who is banned, and who has proved its address: packets come one by one, in their order.

    bans : of the classes that have one, by class id. hash_seed : 13 u64, as in ww_config. Captured packets
    have no direction, so a SYN-ACK of either side counts.
    """

    def __init__(self, bans: Mapping[int, Ban], hash_seed: Sequence[int]) -> None:
        self._bans = bans
        self._kinds = sorted({ban.kind for ban in bans.values()})
        self._follows = any(not ban.spoofable for ban in bans.values())
        self._seed = hash_seed
        self._buckets: dict[int, _Bucket] = {}
        self._handshakes: dict[int, _Handshake] = {}
        self._proven = False

    def bans(self, packet: Packet, now_ns: int) -> Kind | None:
        """By which kind of ban a packet's sender is banned, or None. What is not banned is followed."""
        self._proven = False
        for kind in self._kinds:
            if self._until_ns(kind.key(packet, would=False)) > now_ns:
                return kind
        self._proven = self._follows and self._proves(packet)
        return None

    def begins(self, class_id: int, packet: Packet, now_ns: int, *, would: bool) -> bool:
        """Whether a packet that its class drops, the last that `bans` was asked about, has its sender banned.

        would : it is not enforced; such a ban is only remembered, so that it is counted once.
        """
        ban = self._bans.get(class_id)
        if ban is None or not (ban.spoofable or self._proven):
            return False
        key = ban.kind.key(packet, would=would)
        if self._until_ns(key) > now_ns:
            return False
        bucket = self._buckets.setdefault(self._hash(key) % BAN_BUCKETS, _Bucket())
        way = bucket.until_ns.index(min(bucket.until_ns))
        bucket.keys[way], bucket.until_ns[way] = key, now_ns + ban.for_ns
        return True

    def _hash(self, words: bytes) -> int:
        return hash_bytes(words, self._seed)

    def _until_ns(self, key: bytes) -> int:
        """When the ban with this key ends; 0: there is none."""
        bucket = self._buckets.get(self._hash(key) % BAN_BUCKETS)
        if bucket is None:
            return 0
        return max((u for k, u in zip(bucket.keys, bucket.until_ns, strict=True) if k == key), default=0)

    def _handshake(self, client: bytes, server: bytes, ports: tuple[int, int]) -> _Handshake:
        ends = client.ljust(16, b"\0") + server.ljust(16, b"\0")
        words = ends + ports[0].to_bytes(2, "big") + ports[1].to_bytes(2, "big") + bytes(4)
        return self._handshakes.setdefault(self._hash(words) % HANDSHAKES, _Handshake())

    def _proves(self, packet: Packet) -> bool:
        if packet.protocol != _TCP or packet.fragment_offset:
            return False
        flags = packet.tcp_flags & (_SYN | _RST | _ACK)
        acknowledged, sequence = packet.tcp_acknowledgment, packet.tcp_sequence
        if flags == _SYN | _ACK:
            ports = (packet.destination_port, packet.source_port)
            handshake = self._handshake(packet.destination, packet.source, ports)
            handshake.offered = (sequence + 1 & _MASK32) << 32 | acknowledged
        if flags != _ACK:
            return False
        ports = (packet.source_port, packet.destination_port)
        handshake = self._handshake(packet.source, packet.destination, ports)
        numbers = acknowledged << 32 | sequence
        if numbers and handshake.offered == numbers:
            handshake.proven = numbers
        proven = handshake.proven
        return (
            proven != 0
            and (acknowledged - (proven >> 32)) & _MASK32 < PROOF_BYTES
            and (sequence - proven) & _MASK32 < PROOF_BYTES
        )
