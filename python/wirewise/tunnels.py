# SPDX-License-Identifier: Apache-2.0
"""Packets into and out of GTP-U tunnels, as a user plane function of 5G does it; and the table of tunnels.

3GPP TS 29.281 (GTP-U), TS 38.415 (PDU session container), RFC 6040 (ECN), RFC 8200 (checksum of IPv6). The
reference of bpf/wirewise/tunnel_end.h, and the part of a policy file that lists tunnels (docs/tunnels.md).
Frames are Ethernet frames as bytes. Routes, hops and MTU are known where packets are sent only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Any

import yaml

from wirewise.errors import choose
from wirewise.files import read_text
from wirewise.units import parse_number

KINDS = ("gtp-u",)
MAX_TUNNELS = 65_536
MAX_QFI = 63
PORT = 2152
MAX_EXTENSIONS = 4
PDU_SESSION = 0x85
"""The extension header that has the QFI."""

_ETHERNET = 14
_IPV4, _IPV6 = b"\x08\x00", b"\x86\xdd"
_VLAN_TYPES = (b"\x81\x00", b"\x88\xa8", b"\x91\x00")
_UDP = 17
_HOPS = 64
_CONGESTED = 3
_FILE_LIMIT = 16 << 20
_EXAMPLE = "{ue: 10.45.0.2, local: 192.0.2.1, teid: 0x100, peer: 192.0.2.10, peer-teid: 0x200, qfi: 9}"

Address = IPv4Address | IPv6Address


class Why(Enum):
    """Why a packet passes as it came."""

    OTHER = "other"
    """Not IP in GTP-U; of what goes in, not IP, or with a VLAN tag."""
    UNKNOWN = "unknown"
    MALFORMED = "malformed"
    FRAGMENTED = "fragmented"
    EXTENDED = "extended"
    """An extension header is to be understood, and is not known; or there is none to write in."""
    NESTED = "nested"
    FOREIGN = "foreign"
    TOO_LONG = "too-long"


class Pass(Exception):  # noqa: N818: not an error
    """The packet passes as it came."""

    def __init__(self, why: Why) -> None:
        super().__init__(why)
        self.why = why


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
                document = yaml.load(text, yaml.BaseLoader)
            except (yaml.YAMLError, RecursionError) as error:
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
        if found.outer != _ETHERNET:
            raise Pass(Why.OTHER)  # behind a tag
        outer, inner = frame[found.outer :], frame[found.inner :]
        tunnel = self.by_end.get((_addresses(outer)[1], found.teid))
        if tunnel is None:
            raise Pass(Why.UNKNOWN)
        if not tunnel.belongs(_addresses(inner)[0]):
            raise Pass(Why.FOREIGN)
        if _dsfield(outer) & 3 == _CONGESTED and _dsfield(inner) & 3:
            inner = _with_dsfield(inner, _dsfield(inner) | _CONGESTED)
        return frame[:12] + (_IPV4 if inner[0] >> 4 == 4 else _IPV6) + inner

    def encapsulate(self, frame: bytes, *, qfi: int | None = None, inner_dscp: int | None = None) -> bytes:
        """The frame in the tunnel of who it is for. qfi: instead of the tunnel's. Raises Pass."""
        kind, packet = frame[12:14], frame[_ETHERNET:]
        if kind == _IPV4 and len(packet) >= 20:
            length = int.from_bytes(packet[2:4], "big")
            target: Address | IPv6Network = IPv4Address(packet[16:20])
            if not 20 <= length <= len(packet):
                raise Pass(Why.MALFORMED)
        elif kind == _IPV6 and len(packet) >= 40:
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
            packet = _with_dsfield(packet, inner_dscp << 2 | (_dsfield(packet) & 3))
        qfi = tunnel.qfi if qfi is None else qfi
        headers = gtp(tunnel.peer_teid, qfi, length)
        outer = 20 if tunnel.local.version == 4 else 40
        if outer + 8 + len(headers) + length > 0xFFFF:
            raise Pass(Why.TOO_LONG)
        behind = udp(tunnel, headers + packet[:length])
        ip = ipv4(tunnel, _dsfield(packet), behind) if outer == 20 else ipv6(tunnel, _dsfield(packet), behind)
        return frame[:12] + (_IPV4 if outer == 20 else _IPV6) + ip + behind + packet[length:]


def write_inside(frame: bytes, *, qfi: int | None = None, inner_dscp: int | None = None) -> bytes:
    """The frame, still in its tunnel, with another QFI, or another DSCP inside. Raises Pass."""
    found = find(frame)
    changed = bytearray(frame)
    checksum = found.gtp - 2
    if qfi is not None:
        if not found.session or frame[found.session + 1] >> 4 > 1:
            raise Pass(Why.EXTENDED)
        changed[found.session + 2] = changed[found.session + 2] & 0xC0 | qfi
        _adjust(changed, checksum, frame, found.session + 2)
    if inner_dscp is not None:
        inner = frame[found.inner :]
        changed[found.inner :] = _with_dsfield(inner, inner_dscp << 2 | (_dsfield(inner) & 3))
        if inner[0] >> 4 == 6:  # a header of IPv4 adds up to the same as before
            _adjust(changed, checksum, frame, found.inner)
    return bytes(changed)


@dataclass(frozen=True)
class Found:
    """Where a frame has its tunnel, as offsets. session: of the PDU session container, 0: none."""

    outer: int
    gtp: int
    teid: int
    session: int
    inner: int


def find(frame: bytes) -> Found:
    """The tunnel that the frame's own IP header announces. Raises Pass."""
    outer, kind = _ETHERNET, frame[12:14]
    for _ in range(2):
        if kind in _VLAN_TYPES:
            kind, outer = frame[outer + 2 : outer + 4], outer + 4
    ip = frame[outer:]
    if kind == _IPV4:
        if len(ip) < 20:
            raise Pass(Why.MALFORMED)
        header, length = 4 * (ip[0] & 15), int.from_bytes(ip[2:4], "big")
        if ip[0] >> 4 != 4 or header < 20 or not header <= length <= len(ip):
            raise Pass(Why.MALFORMED)
        if ip[9] != _UDP:
            raise Pass(Why.OTHER)
        if int.from_bytes(ip[6:8], "big") & 0x3FFF:
            raise Pass(Why.FRAGMENTED)
    elif kind == _IPV6:
        if len(ip) < 40:
            raise Pass(Why.MALFORMED)
        header, length = 40, 40 + int.from_bytes(ip[4:6], "big")
        if ip[0] >> 4 != 6 or length > len(ip):
            raise Pass(Why.MALFORMED)
        if ip[6] == 44:
            raise Pass(Why.FRAGMENTED)
        if ip[6] != _UDP:
            raise Pass(Why.OTHER)
    else:
        raise Pass(Why.OTHER)
    datagram = ip[header:]
    if len(datagram) < 8:
        raise Pass(Why.MALFORMED)
    if int.from_bytes(datagram[2:4], "big") != PORT:
        raise Pass(Why.OTHER)
    size = int.from_bytes(datagram[4:6], "big")
    if not 16 <= size <= length - header or len(datagram) < 16:
        raise Pass(Why.MALFORMED)
    message = datagram[8:]
    left = 8 + int.from_bytes(message[2:4], "big")
    if left > size - 8:
        raise Pass(Why.MALFORMED)
    if message[0] >> 4 != 3 or message[1] != 255:
        raise Pass(Why.OTHER)
    session, at, unknown = _skip_extensions(message)
    if at >= len(message):
        raise Pass(Why.MALFORMED)
    inner = message[at:]
    if inner[0] >> 4 not in (4, 6):
        raise Pass(Why.OTHER)
    if unknown:
        raise Pass(Why.EXTENDED)
    inside = _length(inner)
    if inside is None or at + inside > left:
        raise Pass(Why.MALFORMED)
    if _is_gtp(inner):
        raise Pass(Why.NESTED)
    gtp_at = outer + header + 8
    return Found(
        outer, gtp_at, int.from_bytes(message[4:8], "big"), session and gtp_at + session, gtp_at + at
    )


def _skip_extensions(message: bytes) -> tuple[int, int, bool]:
    """Offsets of the PDU session container and of what is behind the header; whether an extension is to be
    understood that is not known.
    """
    session, unknown = 0, False
    if not message[0] & 7:
        return 0, 8, False
    if len(message) < 12:
        raise Pass(Why.MALFORMED)
    following, at = message[11] if message[0] & 4 else 0, 12
    for _ in range(MAX_EXTENSIONS):
        if not following:
            break
        size = 4 * message[at] if len(message) >= at + 4 else 0
        if not size or len(message) < at + size:
            raise Pass(Why.MALFORMED)
        if following == PDU_SESSION:
            session = at
        elif following & 0x80:
            unknown = True
        at += size
        following = message[at - 1]
    if following:
        raise Pass(Why.MALFORMED)
    return session, at, unknown


def _length(packet: bytes) -> int | None:
    """Of an IP packet by its header; None: it has none."""
    if packet[0] >> 4 == 6:
        return 40 + int.from_bytes(packet[4:6], "big") if len(packet) >= 40 else None
    if len(packet) < 20:
        return None
    header, length = 4 * (packet[0] & 15), int.from_bytes(packet[2:4], "big")
    return length if 20 <= header <= length else None


def _is_gtp(packet: bytes) -> bool:
    if packet[0] >> 4 == 6:
        protocol, header = packet[6], 40
    else:
        later = int.from_bytes(packet[6:8], "big") & 0x1FFF
        protocol, header = 0 if later else packet[9], 4 * (packet[0] & 15)
    datagram = packet[header:]
    return protocol == _UDP and len(datagram) >= 8 and int.from_bytes(datagram[2:4], "big") == PORT


# -- headers


def gtp(teid: int, qfi: int | None, length: int) -> bytes:
    """The header of user data of so many bytes; with a QFI, and a PDU session container of the downlink."""
    if qfi is None:
        return bytes([0x30, 255]) + length.to_bytes(2, "big") + teid.to_bytes(4, "big")
    options = bytes([0, 0, 0, PDU_SESSION]) + bytes([1, 0, qfi, 0])
    head = bytes([0x34, 255]) + (len(options) + length).to_bytes(2, "big") + teid.to_bytes(4, "big")
    return head + options


def udp(tunnel: Tunnel, payload: bytes) -> bytes:
    """The datagram; over IPv4 without a checksum."""
    assert tunnel.peer is not None
    size = (8 + len(payload)).to_bytes(2, "big")
    head = PORT.to_bytes(2, "big") * 2 + size
    if tunnel.local.version == 4:
        return head + bytes(2) + payload
    pseudo = tunnel.local.packed + tunnel.peer.packed + bytes(2) + size + bytes([0, 0, 0, _UDP])
    total = ~_sum(pseudo + head + bytes(2) + payload) & 0xFFFF
    return head + (total or 0xFFFF).to_bytes(2, "big") + payload


def ipv4(tunnel: Tunnel, dsfield: int, payload: bytes) -> bytes:
    """The header in front of a datagram: not to be fragmented."""
    assert tunnel.peer is not None
    head = (
        bytes([0x45, dsfield]) + (20 + len(payload)).to_bytes(2, "big") + bytes([0, 0, 0x40, 0, _HOPS, _UDP])
    )
    ends = tunnel.local.packed + tunnel.peer.packed
    return head + (~_sum(head + ends) & 0xFFFF).to_bytes(2, "big") + ends


def ipv6(tunnel: Tunnel, dsfield: int, payload: bytes) -> bytes:
    """The header in front of a datagram."""
    assert tunnel.peer is not None
    first = (6 << 28 | dsfield << 20).to_bytes(4, "big")
    ends = tunnel.local.packed + tunnel.peer.packed
    return first + len(payload).to_bytes(2, "big") + bytes([_UDP, _HOPS]) + ends


def _addresses(packet: bytes) -> tuple[Address, Address]:
    if packet[0] >> 4 == 4:
        return IPv4Address(packet[12:16]), IPv4Address(packet[16:20])
    return IPv6Address(packet[8:24]), IPv6Address(packet[24:40])


def _dsfield(packet: bytes) -> int:
    """DSCP and ECN."""
    return packet[1] if packet[0] >> 4 == 4 else int.from_bytes(packet[:2], "big") >> 4 & 0xFF


def _with_dsfield(packet: bytes, dsfield: int) -> bytes:
    changed = bytearray(packet)
    if packet[0] >> 4 == 6:
        changed[:2] = (int.from_bytes(packet[:2], "big") & 0xF00F | dsfield << 4).to_bytes(2, "big")
        return bytes(changed)
    changed[1] = dsfield
    changed[10:12] = _updated(packet[10:12], packet[:2], changed[:2])
    return bytes(changed)


def _adjust(changed: bytearray, checksum: int, frame: bytes, at: int) -> None:
    """Updates the checksum of UDP, if there is one, after the two bytes at an offset have changed."""
    if changed[checksum : checksum + 2] == b"\0\0":
        return
    after = _updated(changed[checksum : checksum + 2], frame[at : at + 2], changed[at : at + 2])
    changed[checksum : checksum + 2] = b"\xff\xff" if after == b"\0\0" else after


def _updated(checksum: bytes | bytearray, before: bytes, after: bytes | bytearray) -> bytes:
    """RFC 1624, equation 3."""
    words = [~int.from_bytes(checksum, "big") & 0xFFFF, ~int.from_bytes(before, "big") & 0xFFFF]
    total = sum(words) + int.from_bytes(after, "big")
    while total > 0xFFFF:
        total = (total >> 16) + (total & 0xFFFF)
    return (~total & 0xFFFF).to_bytes(2, "big")


def _sum(data: bytes) -> int:
    """In ones' complement, of 16-bit words."""
    padded = data + bytes(len(data) % 2)
    total = sum(int.from_bytes(padded[at : at + 2], "big") for at in range(0, len(padded), 2))
    while total > 0xFFFF:
        total = (total >> 16) + (total & 0xFFFF)
    return total


# -- the table


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
