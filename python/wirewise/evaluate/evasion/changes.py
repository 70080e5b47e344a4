# SPDX-License-Identifier: Apache-2.0
"""What an attacker can change in a conversation of its own, and the attack remains what it was.

The attacker is who sends the first packet, and only its packets change, except that answers come later where
it waits longer, and acknowledge what it has sent. Frames that `locate` leaves alone, such as later
fragments, stay as they are; so do the inner packets of tunnels.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TypeAlias

from dpkt.dpkt import in_cksum

from wirewise.augment.frames import (
    ACK,
    FIN,
    ICMP,
    ICMP6,
    MOST_LENGTH,
    PSH,
    RST,
    SYN,
    TCP,
    UDP,
    Place,
    lengthen,
    locate,
    right_checksum,
)
from wirewise.registry import Registry

_SEQUENCE, _ACKNOWLEDGED, _FLAGS = 4, 8, 13  # in a TCP header
_CHECKSUM = {TCP: 16, UDP: 6, ICMP: 2, ICMP6: 2}  # where, in the header
_LEAST_FRAME = 60
_APART_NS = 10_000_000
"""Between packets that are added, unless the next one comes sooner."""


@dataclass(frozen=True)
class Sent:
    """A packet of a conversation. origin : number, from 0, of the packet that it is in the capture, or that
    it was made from. own : the attacker sends it. place : of its headers.
    """

    time_ns: int
    frame: bytes
    origin: int
    own: bool
    place: Place


Rewrite: TypeAlias = Callable[[Sequence[Sent], int], list[Sent]]
"""(the packets of a conversation in order, strength) -> what they become."""


@dataclass(frozen=True)
class Change:
    """strengths : whole numbers, the least first; 0, which changes nothing, is none of them. said : a
    strength in words.
    """

    name: str
    summary: str
    strengths: range
    said: Callable[[int], str]
    rewrite: Rewrite


def _counted(what: str, count: int) -> str:
    return f"{count:,} {what}{'s' if count > 1 else ''}"


def slower(strength: int) -> float:
    """By what times are stretched: quarters of an octave."""
    return float(2 ** (strength / 4))


def _stretched(packets: Sequence[Sent], strength: int) -> list[Sent]:
    first = packets[0].time_ns
    return [replace(one, time_ns=first + round((one.time_ns - first) * slower(strength))) for one in packets]


class _Inserted:
    """Bytes that were inserted into the attacker's side of a TCP connection, by where they follow."""

    def __init__(self) -> None:
        self._base: int | None = None
        self._more: dict[int, int] = {}
        self._starts: list[int] = []
        self._totals: list[int] = []  # with each start, and all before it

    def _at(self, number: int) -> int:
        if self._base is None:
            self._base = number
        return (number - self._base + 2**31) % 2**32 - 2**31

    def insert(self, number: int, more: int) -> int:
        """Behind the segment that begins at a sequence number; sent again, it has what it had before."""
        at = self._at(number)
        if at not in self._more:
            self._more[at] = more
            place = bisect_left(self._starts, at)
            before = self._totals[place - 1] if place else 0
            self._starts.insert(place, at)
            self._totals[place:] = [before + more, *(total + more for total in self._totals[place:])]
        return self._more[at]

    def shift(self, number: int) -> int:
        """How many bytes are inserted before a sequence number."""
        place = bisect_left(self._starts, self._at(number))
        return self._totals[place - 1] if place else 0


def _padded(packets: Sequence[Sent], strength: int) -> list[Sent]:
    found, inserted = [], _Inserted()
    for one in packets:
        frame, place, at = bytearray(one.frame), one.place, one.place.transport
        if place.protocol != TCP:
            if one.own and not place.fragment:
                lengthen(frame, place, _room(place, strength))
            found.append(_finished(one, frame))
            continue
        number = _word(frame, at + _SEQUENCE)
        if one.own and frame[at + _FLAGS] & SYN:
            inserted = _Inserted()
        if one.own:
            _put(frame, at + _SEQUENCE, number + inserted.shift(number))
            if _payload(one) and not place.fragment:
                more = inserted.insert(number, _room(place, strength))
                lengthen(frame, place, more)
        elif frame[at + _FLAGS] & ACK:
            number = _word(frame, at + _ACKNOWLEDGED)
            _put(frame, at + _ACKNOWLEDGED, number + inserted.shift(number))
        found.append(_finished(one, frame))
    return found


def _in_pieces(packets: Sequence[Sent], strength: int) -> list[Sent]:
    found = []
    for index, one in enumerate(packets):
        size, place = _payload(one), one.place
        if not one.own or place.protocol != TCP or size < 2 or place.fragment or _is_cut(one):
            found.append(one)
            continue
        count = min(strength + 1, size)
        bounds = [size * piece // count for piece in range(count + 1)]
        start = place.transport + _header(one)
        times = [one.time_ns, *_following(packets, index, count - 1)]
        for time_ns, (begin, end) in zip(times, pairwise(bounds), strict=True):
            frame = bytearray(one.frame[:start] + one.frame[start + begin : start + end])
            _put(frame, place.transport + _SEQUENCE, _word(one.frame, place.transport + _SEQUENCE) + begin)
            if end < size:
                frame[place.transport + _FLAGS] &= ~(PSH | FIN) & 0xFF
            found.append(_shortened(replace(one, time_ns=time_ns), frame, size - (end - begin)))
    return found


def _with_more(packets: Sequence[Sent], strength: int) -> list[Sent]:
    found = []
    for index, one in enumerate(packets):
        found.append(one)
        place, at = one.place, one.place.transport
        if not one.own or place.fragment or _is_cut(one) or place.protocol not in (TCP, UDP):
            continue
        size, frame = _payload(one), bytearray(one.frame[: at + _header(one)])
        if place.protocol == TCP:
            if _header(one) < 20 or frame[at + _FLAGS] & (SYN | FIN | RST):
                continue
            frame[at + _FLAGS] = ACK
            _put(frame, at + _SEQUENCE, _word(frame, at + _SEQUENCE) + size)
        times = _following(packets, index, strength)
        found += [_shortened(replace(one, time_ns=time_ns), bytearray(frame), size) for time_ns in times]
    return found


def _following(packets: Sequence[Sent], index: int, count: int) -> Iterator[int]:
    """So many times behind a packet, evenly before the next one."""
    begin = packets[index].time_ns
    end = packets[index + 1].time_ns if index + 1 < len(packets) else begin + _APART_NS * (count + 1)
    apart = min(_APART_NS, max(0, end - begin) // (count + 1))
    return (begin + apart * (number + 1) for number in range(count))


def _header(one: Sent) -> int:
    """Bytes of the header of TCP or UDP."""
    return 4 * (one.frame[one.place.transport + 12] >> 4) if one.place.protocol == TCP else 8


def _payload(one: Sent) -> int:
    """Bytes behind that header; 0 for other protocols, and where the header lies."""
    place = one.place
    if place.protocol not in (TCP, UDP) or (place.protocol == TCP and _header(one) < 20):
        return 0
    return max(0, place.length - (place.transport - place.network) - _header(one))


def _room(place: Place, wanted: int) -> int:
    """Bytes by which a packet may grow; a merged one is longer already than any that is sent."""
    return max(0, min(wanted, MOST_LENGTH - place.length))


def _is_cut(one: Sent) -> bool:
    return one.place.network + one.place.length > len(one.frame)


def _word(frame: bytes | bytearray, at: int) -> int:
    return int.from_bytes(frame[at : at + 4], "big")


def _put(frame: bytearray, at: int, number: int) -> None:
    frame[at : at + 4] = (number % 2**32).to_bytes(4, "big")


def _shortened(one: Sent, frame: bytearray, less: int) -> Sent:
    """With a frame that has lost `less` bytes of payload."""
    lengthen(frame, one.place, -less)
    frame.extend(bytes(max(0, _LEAST_FRAME - len(frame))))
    return _finished(one, frame)


def _finished(one: Sent, frame: bytearray) -> Sent:
    """With the checksums right, and the places of its headers."""
    place = locate(frame)
    assert place is not None, "headers stay where they are"
    right_checksum(frame, place)
    at, end = place.transport, place.network + place.length
    if not place.fragment and end <= len(frame):
        sums = at + _CHECKSUM[place.protocol]
        if place.protocol != UDP or any(frame[sums : sums + 2]):  # a datagram may have none
            frame[sums : sums + 2] = b"\0\0"
            total = in_cksum(_pseudo_header(frame, place) + bytes(frame[at:end])) or 0xFFFF
            frame[sums : sums + 2] = total.to_bytes(2, "big")
    return replace(one, frame=bytes(frame), place=place)


def _pseudo_header(frame: bytearray, place: Place) -> bytes:
    """What checksums count beside a packet's own bytes; nothing with ICMP over IPv4."""
    if place.protocol == ICMP:
        return b""
    begin, size = (12, 8) if place.version == 4 else (8, 32)
    ends = frame[place.network + begin : place.network + begin + size]
    length = place.network + place.length - place.transport
    return bytes(ends) + place.protocol.to_bytes(2, "big") + length.to_bytes(2, "big")


CHANGES: Registry[Change] = Registry(
    "change",
    lambda entry: entry.name,
    (
        Change(
            "padding", "each packet with data is longer, up to 1,500 bytes",
            range(1, MOST_LENGTH - 40 + 1), partial(_counted, "byte"), _padded,
        ),
        Change(
            "pace", "all waits are longer, up to 1,024 times", range(1, 41),
            lambda strength: f"{slower(strength):.3g} times", _stretched,
        ),
        Change(
            "splitting", "each TCP segment is sent in pieces", range(1, 16),
            lambda strength: f"{strength + 1} pieces", _in_pieces,
        ),
        Change(
            "extra", "empty packets follow each packet", range(1, 17),
            partial(_counted, "packet"), _with_more,
        ),
    ),
)  # fmt: skip
"""What `wirewise evaluate --evasion` tries."""
