# SPDX-License-Identifier: Apache-2.0
"""Rewriting frames: where their headers are, and what each augmentation does to them.

Only the outer headers of an Ethernet frame with IPv4, or IPv6 without extension headers, are touched; every
other frame, and every fragment but the first, stays as it was. Of checksums, that of IPv4 is right again;
those of TCP and UDP are not, as nobody reads them: a variant is made for extracting features, and removed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from wirewise.augment.draw import number, share
from wirewise.feature_sets.packet import parse_link

TCP, UDP, ICMP, ICMP6 = 6, 17, 1, 58
FIN, SYN, RST, PSH, ACK, _ECE, _CWR = 0x01, 0x02, 0x04, 0x08, 0x10, 0x40, 0x80
MOST_LENGTH = 1500
"""Bytes of an IP packet that no padding goes beyond: a longer one would have been fragmented."""
MOST_PADDING = 64
INITIAL_TTL = (32, 64, 128, 255)
MOST_HOPS = 24


@dataclass(frozen=True)
class Place:
    """Where the headers of a frame are, as offsets in bytes, and who talks: the same for both directions."""

    version: int
    network: int
    transport: int
    protocol: int
    length: int
    fragment: bool
    pppoe: bool
    conversation: tuple[bytes, ...]

    def source(self, frame: bytes | bytearray) -> bytes:
        """The address that a frame comes from."""
        begin, size = (12, 4) if self.version == 4 else (8, 16)
        return bytes(frame[self.network + begin : self.network + begin + size])


def locate(frame: bytes | bytearray) -> Place | None:
    """None for what stays as it is."""
    link = parse_link(bytes(frame))
    if link is None:
        return None
    kind, at = link.network_type, link.offset
    if kind == 0x0800 and at + 20 <= len(frame) and frame[at] >> 4 == 4:
        size, length = 4 * (frame[at] & 15), int.from_bytes(frame[at + 2 : at + 4], "big")
        fragment = int.from_bytes(frame[at + 6 : at + 8], "big") & 0x3FFF
        if fragment & 0x1FFF:
            return None  # not the first, so it has no ports
        protocol, addresses, version = frame[at + 9], (frame[at + 12 : at + 16], frame[at + 16 : at + 20]), 4
    elif kind == 0x86DD and at + 40 <= len(frame) and frame[at] >> 4 == 6:
        size, length = 40, int.from_bytes(frame[at + 4 : at + 6], "big") + 40
        fragment = 0
        protocol, addresses, version = frame[at + 6], (frame[at + 8 : at + 24], frame[at + 24 : at + 40]), 6
    else:
        return None
    transport = at + size
    if size < 20 or length < size + 8 or transport + (20 if protocol == TCP else 8) > len(frame):
        return None
    if protocol not in (TCP, UDP, ICMP, ICMP6):
        return None
    ends = [bytes(address) for address in addresses]
    if protocol in (TCP, UDP):
        ends = [
            end + bytes(frame[transport + 2 * side : transport + 2 * side + 2])
            for side, end in enumerate(ends)
        ]
    return Place(
        version, at, transport, protocol, length, fragment > 0, link.pppoe, (bytes([protocol]), *sorted(ends))
    )


@dataclass(frozen=True)
class Drawn:
    """What a variant of one capture draws from. seed : of the variant; capture : its name. ports : service
    port -> the one it becomes.
    """

    seed: int
    capture: str
    ports: Mapping[int, int]


Rewrite = Callable[[bytearray, Place, Drawn], None]


def ports(frame: bytearray, place: Place, drawn: Drawn) -> None:
    """The lower port of the two becomes another service's, the same for the whole capture."""
    if place.protocol not in (TCP, UDP):
        return
    at = place.transport
    pair = [int.from_bytes(frame[at + side : at + side + 2], "big") for side in (0, 2)]
    low = min(pair)
    for side, port in zip((0, 2), pair, strict=True):
        if port == low:
            frame[at + side : at + side + 2] = drawn.ports.get(low, low).to_bytes(2, "big")


def ttl(frame: bytearray, place: Place, drawn: Drawn) -> None:
    """Another system, so many hops away: the same shift for all packets of one direction."""
    at = place.network + (8 if place.version == 4 else 7)
    initial, hops = new_path(drawn.seed, place.conversation, place.source(frame))
    was = next(each for each in INITIAL_TTL if frame[at] <= each)
    frame[at] = min(255, max(1, initial - hops - (was - frame[at]) % MOST_HOPS))


def new_path(seed: int, *names: object) -> tuple[int, int]:
    """An initial TTL, and the hops that it loses beside those that it has lost."""
    return (64, 128, 255)[number(seed, "system", *names) % 3], number(seed, "hops", *names) % MOST_HOPS


def flags(frame: bytearray, place: Place, drawn: Drawn) -> None:
    """Another TCP stack: whether it asks for ECN, and when it sets PSH on data. What opens, acknowledges and
    ends a connection stays.
    """
    if place.protocol != TCP:
        return
    at = place.transport + 13
    if frame[at] & SYN:
        asks = number(drawn.seed, "ecn", place.conversation) % 2
        frame[at] &= ~(_ECE | _CWR) & 0xFF
        if asks:
            frame[at] |= _ECE if frame[at] & ACK else _ECE | _CWR
        return
    header = 4 * (frame[place.transport + 12] >> 4)
    if place.length > place.transport - place.network + header and not frame[at] & RST:
        habit = number(drawn.seed, "push", place.conversation) % 3
        if habit == 1:
            frame[at] |= PSH
        elif habit == 2 and not frame[at] & FIN:
            frame[at] &= ~PSH & 0xFF


def padding(frame: bytearray, place: Place, drawn: Drawn) -> None:
    """Datagrams of UDP and ICMP are longer, by the same number of bytes throughout a conversation."""
    if place.protocol == TCP or place.fragment:
        return
    more = min(
        1 + number(drawn.seed, "padding", place.conversation) % MOST_PADDING, MOST_LENGTH - place.length
    )
    if more <= 0:
        return
    lengthen(frame, place, more)


def lengthen(frame: bytearray, place: Place, more: int) -> None:
    """Add `more` zero bytes to the end of a packet (or take away, if negative) and correct its headers.

    Nothing is inserted in a frame that was cut, and nothing taken from one.
    """
    at, length = place.network, place.length + more
    if more > 0 and (end := at + place.length) <= len(frame):  # else it was cut, and stays so
        frame[end:end] = bytes(more)
    if place.version == 4:
        frame[at + 2 : at + 4] = length.to_bytes(2, "big")
    else:
        frame[at + 4 : at + 6] = (length - 40).to_bytes(2, "big")
    if place.pppoe:  # which counts PPP's protocol too, in front of the packet
        frame[at - 4 : at - 2] = (length + 2).to_bytes(2, "big")
    if place.protocol == UDP:
        said = int.from_bytes(frame[place.transport + 4 : place.transport + 6], "big") + more
        frame[place.transport + 4 : place.transport + 6] = min(max(said, 0), 0xFFFF).to_bytes(2, "big")


def pace(drawn: Drawn) -> float:
    """By what all times of a capture are stretched: from a quarter to four times."""
    return float(2 ** (4 * share(drawn.seed, "pace", drawn.capture) - 2))


def right_checksum(frame: bytearray, place: Place) -> None:
    """Of the IPv4 header."""
    if place.version != 4:
        return
    at = place.network
    frame[at + 10 : at + 12] = b"\0\0"
    total = sum(int.from_bytes(frame[i : i + 2], "big") for i in range(at, place.transport, 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    frame[at + 10 : at + 12] = (~total & 0xFFFF).to_bytes(2, "big")
