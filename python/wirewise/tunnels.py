# SPDX-License-Identifier: Apache-2.0
"""Packets into and out of GTP-U tunnels, as a user plane function of 5G does it; and the table of tunnels.

RFC 6040 (ECN). Together with `wirewise.gtp` the reference of bpf/wirewise/tunnel_{end,leave,enter}.h, and the
part of a policy file that lists tunnels (docs/tunnels.md). Frames are Ethernet frames as bytes. Routes, hops
and MTU are known where packets are sent only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Any

import yaml

from wirewise.errors import choose
from wirewise.files import parse_yaml, read_text
from wirewise.gtp import (
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
from wirewise.units import parse_number

KINDS = ("gtp-u",)
MAX_TUNNELS = 65_536
MAX_QFI = 63

_CONGESTED = 3
_FILE_LIMIT = 16 << 20
_NODES = 20 * MAX_TUNNELS
_EXAMPLE = "{ue: 10.45.0.2, local: 192.0.2.1, teid: 0x100, peer: 192.0.2.10, peer-teid: 0x200, qfi: 9}"


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
    def parse(cls, value: object) -> Tunnel:
        """Raises ValueError."""
        keys = ("ue", "local", "teid", "peer", "peer-teid", "qfi")
        if not isinstance(value, Mapping):
            raise ValueError(f"is not a mapping, such as {_EXAMPLE}")
        for key in value:
            if key not in keys:
                raise ValueError(f"unknown key {str(key)!r}; {choose(str(key), keys)}")
        if "local" not in value:
            raise ValueError(f"a tunnel needs this host's address: {_EXAMPLE}")
        local = _host("local", value["local"])
        teid, peer_teid = (_teid(key, value[key]) if key in value else None for key in ("teid", "peer-teid"))
        peer = _host("peer", value["peer"]) if "peer" in value else None
        ue4, ue6 = _ue(value.get("ue", []))
        qfi = parse_qfi(value["qfi"]) if "qfi" in value else None
        if (peer is None) != (peer_teid is None):
            raise ValueError(
                "peer and peer-teid go together: where packets are put in, and how they are marked"
            )
        if teid is None and peer is None:
            raise ValueError(
                "a tunnel needs a teid, for packets that come, or peer and peer-teid, for those that go"
            )
        if peer is not None and peer.version != local.version:
            raise ValueError("local and peer are the two ends of one tunnel: both of IPv4, or both of IPv6")
        if peer is not None and ue4 is None and ue6 is None:
            raise ValueError("which packets go to peer? give ue, the address behind the tunnel")
        if qfi is not None and peer is None:
            raise ValueError("qfi is of packets that go, which need peer and peer-teid")
        return cls(local, teid, ue4, ue6, peer, peer_teid or 0, qfi)

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
        """Raises ValueError, of an end that stands twice."""
        by_end: dict[tuple[Address | IPv6Network, int | None], Tunnel] = {}
        if len(tunnels) > MAX_TUNNELS:
            raise ValueError(f"{len(tunnels)} tunnels are too many; at most {MAX_TUNNELS}")
        for tunnel in tunnels:
            for end in tunnel.ends:
                if end in by_end:
                    address, teid = end
                    raise ValueError(
                        f"ue {address} stands twice"
                        if teid is None
                        else f"TEID {teid:#x} at {address} stands twice"
                    )
                by_end[end] = tunnel
        return cls(by_end)

    @classmethod
    def parse(cls, value: object, folder: Path | None = None) -> Table:
        """Of a policy's `tunnels`: a list, or the name of a file in `folder`. Raises ValueError."""
        if isinstance(value, str):
            text = read_text((folder or Path()) / value, what="tunnels", limit=_FILE_LIMIT)
            try:
                document = parse_yaml(text, yaml.BaseLoader, nodes=_NODES)
            except ValueError as error:
                raise ValueError(f"{value}: is not YAML: {error}") from error
            if not isinstance(document, Mapping) or set(document) != {"version", "tunnels"}:
                raise ValueError(f"{value}: write `version: 1` and `tunnels: [{_EXAMPLE}]`")
            if document["version"] != "1":
                raise ValueError(f"{value}: version {document['version']!r} is unknown; write `version: 1`")
            value = document["tunnels"]
        if not isinstance(value, list):
            raise ValueError(f"write a list of tunnels, such as [{_EXAMPLE}], or the name of a file")
        return cls.of([_numbered(number, entry) for number, entry in enumerate(value, 1)])

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


def _numbered(number: int, entry: object) -> Tunnel:
    try:
        return Tunnel.parse(entry)
    except ValueError as error:
        raise ValueError(f"tunnel {number}: {error}") from error


def parse_kind(key: str, value: object) -> bool:
    """Of the keys `decapsulate` and `encapsulate`. Raises ValueError."""
    if value not in KINDS:
        raise ValueError(f"{key}: unknown tunnel {str(value)!r}; {choose(str(value), KINDS)}")
    return True


def parse_qfi(value: object) -> int:
    """Raises ValueError."""
    if (qfi := parse_number(value)) > MAX_QFI:
        raise ValueError(f"qfi {qfi} is out of range; 0 to {MAX_QFI}")
    return qfi


def _teid(key: str, value: object) -> int:
    if not (teid := parse_number(value)):
        raise ValueError(f"{key} 0 is of no tunnel that carries packets; 1 to {(1 << 32) - 1}")
    return teid


def _host(key: str, value: Any) -> Address:
    try:
        address = ip_address(value)
    except ValueError:
        address = None
    if (
        address is None
        or address.is_multicast
        or address.is_unspecified
        or address.is_loopback
        or str(address) == "255.255.255.255"
    ):
        raise ValueError(f"{key}: {value!r} is no address of a host, such as 192.0.2.1 or 2001:db8::1")
    return address


def _ue(value: object) -> tuple[IPv4Address | None, IPv6Network | None]:
    ue4: IPv4Address | None = None
    ue6: IPv6Network | None = None
    texts = value if isinstance(value, list) else [value]
    for text in texts:
        address, _, length = str(text).partition("/")
        host = _host("ue", address)
        if isinstance(host, IPv4Address) and length in ("", "32") and ue4 is None:
            ue4 = host
            continue
        network = ip_network(str(text), strict=False)
        if length != "64" or not isinstance(network, IPv6Network) or network.network_address != host:
            raise ValueError(
                f"ue: {str(text)!r} is neither an address of IPv4 nor a network of 64 bits of IPv6, such as "
                "10.45.0.2 and 2001:db8:45:2::/64"
                if ue4 is None or not isinstance(host, IPv4Address)
                else "ue: one address of IPv4 and one network of IPv6 at most"
            )
        if ue6 is not None:
            raise ValueError("ue: one address of IPv4 and one network of IPv6 at most")
        ue6 = network
    return ue4, ue6
