# SPDX-License-Identifier: Apache-2.0
"""A capture in which the attackers have changed their conversations."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from wirewise.augment.frames import TCP, UDP, Place, locate
from wirewise.datasets import read_ethernet
from wirewise.errors import InputError
from wirewise.evaluate.evasion.changes import Change, Sent

MOST_BYTES = 1 << 30
"""Limit on the bytes of a capture's frames, which are kept in memory while it is changed again and again."""


@dataclass(frozen=True)
class Original:
    """The packets of a capture: the attackers' conversations, each in order, and the rest as (time_ns, frame,
    number from 0).
    """

    conversations: list[list[Sent]]
    rest: list[tuple[int, bytes, int]]

    @classmethod
    def read(cls, capture: Path, attacks: frozenset[int]) -> Original:
        """Reads a capture whose packets of these numbers, from 0, are labelled as attacks: all packets of
        their conversations are the attackers' to change.

        Raises InputError for one that is packed, not Ethernet, or too large.
        """
        packets, size = [], 0
        for packet in read_ethernet(capture):
            if (size := size + len(packet.frame)) > MOST_BYTES:
                rule = f"has more than {MOST_BYTES >> 20:,} MiB of frames, which are kept in memory"
                raise InputError(str(capture), rule, "give a part of it (`editcap -c`)")
            packets.append((packet.time_ns, packet.frame, locate(packet.frame)))
        theirs = {
            place.conversation for number, (*_, place) in enumerate(packets) if place and number in attacks
        }
        conversations: dict[tuple[bytes, ...], list[Sent]] = {}
        senders: dict[tuple[bytes, ...], bytes] = {}
        rest = []
        for number, (time_ns, frame, place) in enumerate(packets):
            if place is None or place.conversation not in theirs:
                rest.append((time_ns, frame, number))
                continue
            sender = _sender(frame, place)
            own = senders.setdefault(place.conversation, sender) == sender
            conversations.setdefault(place.conversation, []).append(Sent(time_ns, frame, number, own, place))
        return cls(list(conversations.values()), rest)

    def packets(self, change: Change | None = None, strength: int = 0) -> list[tuple[int, bytes, int]]:
        """All packets by time, changed or as they are: time_ns, frame, and the number of the packet that it
        is, or was made from.
        """
        packets = list(self.rest)
        for conversation in self.conversations:
            sent = change.rewrite(conversation, strength) if change else conversation
            packets += [(one.time_ns, one.frame, one.origin) for one in sent]
        # Packets with the same time stay in the order in which they were captured.
        return sorted(packets, key=lambda packet: (packet[0], packet[2]))


def _sender(frame: bytes, place: Place) -> bytes:
    """Its address, and its port if there are ports."""
    port = frame[place.transport : place.transport + 2] if place.protocol in (TCP, UDP) else b""
    return place.source(frame) + port
