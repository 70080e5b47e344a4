# SPDX-License-Identifier: Apache-2.0
"""GTP-U in Ethernet frames: where it is found, what is written on it, and its headers.

3GPP TS 29.281 (GTP-U), TS 38.415 (PDU session container), RFC 8200 (checksum of IPv6). A part of the
reference in `wirewise.policy.act.tunnels`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv4Address, IPv6Address

from wirewise.feature_sets.packet import parse_link

PORT = 2152
MAX_EXTENSIONS = 4
PDU_SESSION = 0x85
"""The extension header that has the QFI."""
ETHERNET = 14
IPV4, IPV6 = b"\x08\x00", b"\x86\xdd"

_UDP = 17
_HOPS = 64

Address = IPv4Address | IPv6Address
Ends = tuple[Address, Address]
"""Who sends, and who receives: both of IPv4, or both of IPv6."""


class Why(Enum):
    """Why a packet passes as it came."""

    OTHER = "other"
    """Not IP in GTP-U; of what goes in, not IP, or with a VLAN tag or in a PPPoE session."""
    UNKNOWN = "unknown"
    MALFORMED = "malformed"
    FRAGMENTED = "fragmented"
    EXTENDED = "extended"
    """An extension header is to be understood, and is not known; or there is none to write in."""
    NESTED = "nested"
    FOREIGN = "foreign"
    TOO_LONG = "too-long"


class Pass(Exception):
    """The packet passes as it came."""

    def __init__(self, why: Why) -> None:
        super().__init__(why)
        self.why = why


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
        changed[found.inner :] = with_dsfield(inner, inner_dscp << 2 | (dsfield(inner) & 3))
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
    link = parse_link(frame)
    if link is None:
        raise Pass(Why.OTHER)
    outer, kind = link.offset, link.network_type.to_bytes(2, "big")
    ip = frame[outer:]
    if kind == IPV4:
        if len(ip) < 20:
            raise Pass(Why.MALFORMED)
        header, length = 4 * (ip[0] & 15), int.from_bytes(ip[2:4], "big")
        if ip[0] >> 4 != 4 or header < 20 or not header <= length <= len(ip):
            raise Pass(Why.MALFORMED)
        if ip[9] != _UDP:
            raise Pass(Why.OTHER)
        if int.from_bytes(ip[6:8], "big") & 0x3FFF:
            raise Pass(Why.FRAGMENTED)
    elif kind == IPV6:
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
    message = message[:left]
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
    if _is_gtp(inner[:inside]):
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
    if not 20 <= header <= length or len(packet) < header:
        return None
    # A router checks the sum of each header (RFC 1812, 5.2.2); the rest is for the receiver.
    return length if _sum(packet[:header]) == 0xFFFF else None


def _is_gtp(packet: bytes) -> bool:
    if packet[0] >> 4 == 6:
        protocol, header = packet[6], 40
    else:
        later = int.from_bytes(packet[6:8], "big") & 0x1FFF
        protocol, header = 0 if later else packet[9], 4 * (packet[0] & 15)
    datagram = packet[header:]
    return protocol == _UDP and len(datagram) >= 8 and int.from_bytes(datagram[2:4], "big") == PORT


def gtp(teid: int, qfi: int | None, length: int) -> bytes:
    """The header of user data of so many bytes; with a QFI, and a PDU session container of the downlink."""
    if qfi is None:
        return bytes([0x30, 255]) + length.to_bytes(2, "big") + teid.to_bytes(4, "big")
    options = bytes([0, 0, 0, PDU_SESSION]) + bytes([1, 0, qfi, 0])
    head = bytes([0x34, 255]) + (len(options) + length).to_bytes(2, "big") + teid.to_bytes(4, "big")
    return head + options


def udp(ends: Ends, payload: bytes) -> bytes:
    """The datagram; over IPv4 without a checksum."""
    size = (8 + len(payload)).to_bytes(2, "big")
    head = PORT.to_bytes(2, "big") * 2 + size
    if ends[0].version == 4:
        return head + bytes(2) + payload
    pseudo = ends[0].packed + ends[1].packed + bytes(2) + size + bytes([0, 0, 0, _UDP])
    total = ~_sum(pseudo + head + bytes(2) + payload) & 0xFFFF
    return head + (total or 0xFFFF).to_bytes(2, "big") + payload


def ipv4(ends: Ends, dsfield: int, payload: bytes) -> bytes:
    """The header in front of a datagram: not to be fragmented."""
    head = (
        bytes([0x45, dsfield]) + (20 + len(payload)).to_bytes(2, "big") + bytes([0, 0, 0x40, 0, _HOPS, _UDP])
    )
    both = ends[0].packed + ends[1].packed
    return head + (~_sum(head + both) & 0xFFFF).to_bytes(2, "big") + both


def ipv6(ends: Ends, dsfield: int, payload: bytes) -> bytes:
    """The header in front of a datagram."""
    first = (6 << 28 | dsfield << 20).to_bytes(4, "big")
    both = ends[0].packed + ends[1].packed
    return first + len(payload).to_bytes(2, "big") + bytes([_UDP, _HOPS]) + both


def addresses(packet: bytes) -> Ends:
    """Source and destination of an IP packet."""
    if packet[0] >> 4 == 4:
        return IPv4Address(packet[12:16]), IPv4Address(packet[16:20])
    return IPv6Address(packet[8:24]), IPv6Address(packet[24:40])


def dsfield(packet: bytes) -> int:
    """DSCP and ECN."""
    return packet[1] if packet[0] >> 4 == 4 else int.from_bytes(packet[:2], "big") >> 4 & 0xFF


def with_dsfield(packet: bytes, value: int) -> bytes:
    """The IP packet with another DSCP and ECN, and the checksum of IPv4."""
    changed = bytearray(packet)
    if packet[0] >> 4 == 6:
        changed[:2] = (int.from_bytes(packet[:2], "big") & 0xF00F | value << 4).to_bytes(2, "big")
        return bytes(changed)
    changed[1] = value
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
