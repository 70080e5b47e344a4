# SPDX-License-Identifier: Apache-2.0
"""What a policy may ask for beside passing and dropping: where packets go, and what is written on them.

The reference of bpf/wirewise/steer.h, and the part of a policy file that says it (docs/policy.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wirewise.abi import Fate
from wirewise.balancing import Pool
from wirewise.errors import choose
from wirewise.units import parse_number

KEYS = ("redirect", "backend", "dscp", "mark", "priority", "queue")
MAX_QUEUE = 65_533
"""The kernel keeps 65535 for "none", and counts from 1."""
MAX_DSCP = 63

DSCP = {
    "DF": 0, "CS0": 0, "LE": 1, "CS1": 8, "AF11": 10, "AF12": 12, "AF13": 14, "CS2": 16, "AF21": 18,
    "AF22": 20, "AF23": 22, "CS3": 24, "AF31": 26, "AF32": 28, "AF33": 30, "CS4": 32, "AF41": 34, "AF42": 36,
    "AF43": 38, "CS5": 40, "VA": 44, "EF": 46, "CS6": 48, "CS7": 56,
}  # fmt: skip
"""Names of differentiated services code points: RFC 2474, 2597, 3246, 5865, 8622."""

_ETHERNET = 14
_VLAN_TYPES = (0x8100, 0x88A8, 0x9100)
_IPV4, _IPV6 = 0x0800, 0x86DD


@dataclass(frozen=True)
class Steering:
    """What is asked for a class's packets; at least one attribute is set. dscp: 0 to 63."""

    redirect: str | None = None
    """The interface that they leave by."""
    bounce: bool = False
    """Back out of the interface they came by, to the Ethernet address they came from."""
    dscp: int | None = None
    mark: int | None = None
    priority: int | None = None
    queue: int | None = None
    backend: str | None = None
    """The pool that they go to."""
    pool: Pool | None = None
    """Which that is."""

    @classmethod
    def parse(cls, value: Mapping[str, object], *, bounces: bool) -> Steering | None:
        """Of a class's mapping, whose other keys are ignored; None: it asks for nothing of this kind.

        bounces : whether its action is `bounce`. Raises ValueError.
        """
        redirect = _interface(value["redirect"]) if "redirect" in value else None
        if bounces and redirect is not None:
            raise ValueError(
                "a packet cannot go to another interface and back to its sender: give redirect or the action "
                "bounce"
            )
        backend = _pool_name(value["backend"]) if "backend" in value else None
        if backend is not None and (bounces or redirect is not None):
            raise ValueError(
                "a packet goes to a backend or elsewhere: give backend, redirect or the action bounce"
            )
        queue = parse_number(value["queue"]) if "queue" in value else None
        if queue is not None and queue > MAX_QUEUE:
            raise ValueError(f"queue {queue} is out of range; 0 to {MAX_QUEUE}")
        steering = cls(
            redirect,
            bounces,
            _dscp(value["dscp"]) if "dscp" in value else None,
            parse_number(value["mark"]) if "mark" in value else None,
            parse_number(value["priority"]) if "priority" in value else None,
            queue,
            backend,
        )
        return steering if steering != cls() else None

    @property
    def fate(self) -> Fate:
        """Where its packets go."""
        if self.bounce:
            return Fate.BOUNCE
        return Fate.PASS if self.redirect is None and self.backend is None else Fate.REDIRECT

    @property
    def takes_away(self) -> bool:
        """Whether its packets do not come to their receiver."""
        return self.fate is not Fate.PASS

    def apply(self, frame: bytes) -> bytes | None:
        """The Ethernet frame as it leaves; None: what is asked for cannot be done. frame: one that was
        classified.
        """
        if self.pool is not None:
            to_backend = self.pool.apply(frame)
            if to_backend is None:
                return None
            frame = to_backend
        if self.dscp is not None:
            frame = with_dscp(frame, self.dscp)
        return frame[6:12] + frame[:6] + frame[12:] if self.bounce else frame

    def __str__(self) -> str:
        parts = [
            self.dscp is not None and f"dscp {_dscp_name(self.dscp)}",
            self.mark is not None and f"mark {self.mark}",
            self.priority is not None and f"priority {self.priority}",
            self.queue is not None and f"queue {self.queue}",
            self.redirect is not None and f"redirect to {self.redirect}",
            self.bounce and "bounce",
            self.backend is not None and f"backend {self.backend}",
        ]
        return ", ".join(part for part in parts if part)


def with_dscp(frame: bytes, dscp: int) -> bytes:
    """The frame with another DSCP in its outermost IP header, and the same ECN.

    The checksum of IPv4 is updated, not made anew (RFC 1624, equation 3), so one that was wrong stays so.
    """
    at = _ETHERNET
    kind = int.from_bytes(frame[at - 2 : at], "big")
    for _ in range(2):
        if kind in _VLAN_TYPES:
            at += 4
            kind = int.from_bytes(frame[at - 2 : at], "big")
    changed = bytearray(frame)
    word = int.from_bytes(frame[at : at + 2], "big")
    if kind == _IPV4:
        after = (word & ~0x00FC) | dscp << 2
        checksum = int.from_bytes(frame[at + 10 : at + 12], "big")
        total = (~checksum & 0xFFFF) + (~word & 0xFFFF) + after
        while total > 0xFFFF:
            total = (total >> 16) + (total & 0xFFFF)
        changed[at + 10 : at + 12] = (~total & 0xFFFF).to_bytes(2, "big")
    else:
        assert kind == _IPV6  # nothing else is classified
        after = (word & ~0x0FC0) | dscp << 6
    changed[at : at + 2] = after.to_bytes(2, "big")
    return bytes(changed)


def _interface(value: object) -> str:
    name = value.get("interface") if isinstance(value, Mapping) and set(value) == {"interface"} else None
    if not isinstance(name, str) or not name or "/" in name or "\0" in name:
        raise ValueError("redirect needs an interface: {redirect: {interface: eth2}}")
    return name


def _pool_name(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("backend needs the name of a pool: {backend: web}")
    return value


def _dscp(value: object) -> int:
    text = str(value)
    if text.upper() in DSCP:
        return DSCP[text.upper()]
    try:
        number = parse_number(text)
    except ValueError:
        raise ValueError(f"{text!r} is no DSCP: 0 to {MAX_DSCP}, or a name; {choose(text, DSCP)}") from None
    if number > MAX_DSCP:
        raise ValueError(f"dscp {text} is out of range; 0 to {MAX_DSCP}, or a name such as AF41 or EF")
    return number


def _dscp_name(dscp: int) -> str:
    names = [name for name, value in DSCP.items() if value == dscp]
    return names[-1] if names else str(dscp)
