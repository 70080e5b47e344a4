# SPDX-License-Identifier: Apache-2.0
"""Packets into and out of GTP-U tunnels, as a user plane function of 5G does it; and the table of tunnels.

RFC 6040 (ECN). Together with `wirewise.policy.act.gtp` the reference of bpf/act/tunnel_{end,leave,enter}.h
(docs/tunnels.md). Frames are Ethernet frames as bytes. Routes, hops
and MTU are known where packets are sent only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Network, ip_address
from typing import Any

from wirewise.policy.act.gtp import (
    ETHERNET,
    IPV4,
    IPV6,
    Address,
    Pass,
    Why,
    addresses,
    dsfield,
    find,
    gtp,
    ipv4,
    ipv6,
    udp,
    with_dsfield,
)

_CONGESTED = 3


@dataclass(frozen=True)
class Tunnel:
    """One that is known. teid: of packets that come, None: none are taken out. peer: where packets to `ue4`
    and `ue6` go, None: none are put in. qfi: None: without a PDU session container.
    """

    local: Address
    teid: int | None = None
    ue4: IPv4Address | None = None
    ue6: IPv6Network | None = None
    """64 bits long."""
    peer: Address | None = None
    peer_teid: int = 0
    qfi: int | None = None

    @classmethod
    def of(cls, tunnel: Mapping[str, Any]) -> Tunnel:
        """From a policy's normal form."""

        def address(key: str) -> Address | None:
            return None if tunnel[key] is None else ip_address(tunnel[key])

        return cls(
            ip_address(tunnel["local"]),
            tunnel["teid"],
            None if tunnel["ue4"] is None else IPv4Address(tunnel["ue4"]),
            None if tunnel["ue6"] is None else IPv6Network(tunnel["ue6"]),
            address("peer"),
            tunnel["peer_teid"] or 0,
            tunnel["qfi"],
        )

    @property
    def ends(self) -> list[tuple[Address | IPv6Network, int | None]]:
        """What it is found by: its own address and TEID, and who is behind it."""
        found: list[tuple[Address | IPv6Network, int | None]] = []
        if self.teid is not None:
            found.append((self.local, self.teid))
        if self.peer is not None:
            found += [(ue, None) for ue in (self.ue4, self.ue6) if ue is not None]
        return found

    def belongs(self, source: Address) -> bool:
        """Whether who has this address may send by it."""
        if self.ue4 is None and self.ue6 is None:
            return True
        return source == self.ue4 or (self.ue6 is not None and source in self.ue6)


@dataclass(frozen=True)
class Table:
    """The tunnels that are known, by their ends."""

    by_end: Mapping[tuple[Address | IPv6Network, int | None], Tunnel] = field(default_factory=dict)

    @classmethod
    def of(cls, tunnels: list[Tunnel]) -> Table:
        return cls({end: tunnel for tunnel in tunnels for end in tunnel.ends})

    def decapsulate(self, frame: bytes) -> bytes:
        """The frame without its tunnel. Raises Pass."""
        found = find(frame)
        if found.outer != ETHERNET:
            raise Pass(Why.OTHER)  # behind a tag
        outer, inner = frame[found.outer :], frame[found.inner :]
        tunnel = self.by_end.get((addresses(outer)[1], found.teid))
        if tunnel is None:
            raise Pass(Why.UNKNOWN)
        if not tunnel.belongs(addresses(inner)[0]):
            raise Pass(Why.FOREIGN)
        if dsfield(outer) & 3 == _CONGESTED and dsfield(inner) & 3:
            inner = with_dsfield(inner, dsfield(inner) | _CONGESTED)
        return frame[:12] + (IPV4 if inner[0] >> 4 == 4 else IPV6) + inner

    def encapsulate(self, frame: bytes, *, qfi: int | None = None, inner_dscp: int | None = None) -> bytes:
        """The frame in the tunnel of who it is for. qfi: instead of the tunnel's. Raises Pass."""
        kind, packet = frame[12:14], frame[ETHERNET:]
        if kind == IPV4 and len(packet) >= 20:
            length = int.from_bytes(packet[2:4], "big")
            target: Address | IPv6Network = IPv4Address(packet[16:20])
            if not 20 <= length <= len(packet):
                raise Pass(Why.MALFORMED)
        elif kind == IPV6 and len(packet) >= 40:
            length = 40 + int.from_bytes(packet[4:6], "big")
            target = IPv6Network((packet[24:32] + bytes(8), 64))
            if length == 40:
                raise Pass(Why.OTHER)
            if length > len(packet):
                raise Pass(Why.MALFORMED)
        else:
            raise Pass(Why.OTHER)
        tunnel = self.by_end.get((target, None))
        if tunnel is None or tunnel.peer is None:
            raise Pass(Why.UNKNOWN)
        if inner_dscp is not None:
            packet = with_dsfield(packet, inner_dscp << 2 | (dsfield(packet) & 3))
        qfi = tunnel.qfi if qfi is None else qfi
        headers = gtp(tunnel.peer_teid, qfi, length)
        outer = 20 if tunnel.local.version == 4 else 40
        if outer + 8 + len(headers) + length > 0xFFFF:
            raise Pass(Why.TOO_LONG)
        ends = (tunnel.local, tunnel.peer)
        behind = udp(ends, headers + packet[:length])
        ip = ipv4(ends, dsfield(packet), behind) if outer == 20 else ipv6(ends, dsfield(packet), behind)
        return frame[:12] + (IPV4 if outer == 20 else IPV6) + ip + behind + packet[length:]
