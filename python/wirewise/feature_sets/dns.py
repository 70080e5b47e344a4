# SPDX-License-Identifier: Apache-2.0
"""What a DNS message asks for (RFC 1035, section 4.1); the same rules in C are bpf/classify/question.h.

Answers repeat the question, so both directions have it. DNS over TCP is not looked into.
"""

from __future__ import annotations

from typing import NamedTuple

PORT = 53
_HEADER, _TYPE_AND_CLASS = 12, 4
_MAX_LABEL, MAX_NAME = 63, 255
_LOWER = 0x20


class Question(NamedTuple):
    """The first question of a message."""

    name: bytes
    """As in the packet: each label behind its length, and a zero byte; 1 to 255 bytes."""
    labels: int
    """0 (the root) to 127."""
    type: int

    @property
    def name_length(self) -> int:
        return len(self.name)

    @property
    def lower(self) -> bytes:
        """The name, whatever the case of its letters: resolvers make them of either, at random."""
        return bytes(byte | _LOWER for byte in self.name)

    @classmethod
    def read(cls, payload: bytes) -> Question | None:
        """None: there is no question, or its name is compressed or too long, or it is not all there."""
        if len(payload) < _HEADER or payload[4:6] == b"\0\0":
            return None
        at, labels = _HEADER, 0
        while at < len(payload) and 1 <= payload[at] <= _MAX_LABEL:
            at, labels = at + 1 + payload[at], labels + 1
        name = payload[_HEADER : at + 1]
        if at + 1 + _TYPE_AND_CLASS > len(payload) or payload[at] or len(name) > MAX_NAME:
            return None
        return cls(name, labels, int.from_bytes(payload[at + 1 : at + 3], "big"))
