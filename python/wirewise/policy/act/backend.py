# SPDX-License-Identifier: Apache-2.0
"""Which server of a pool a flow goes to: Maglev hashing, with weights.

Eisenbud et al., NSDI 2016, section 3.4. The reference of bpf/act/balance.h and of the agent's tables
(crates/wirewised/src/object/pools; docs/balancing.md).
It knows new flows only: which backend a flow went to before, and whether a backend lives, is known where
packets are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from wirewise.abi import PLACES
from wirewise.feature_sets.packet import parse_link

_ALL = (1 << 64) - 1
_STEP, _END = 0x9E3779B97F4A7C15, 0x94D049BB133111EB
_OFFSET, _SKIP = 1, 2  # seeds of the two numbers that a backend's order of places comes from
_EXTENSIONS = (0, 43, 44, 51, 60, 135, 139, 140)


@dataclass(frozen=True)
class Backend:
    """A server. mac : its Ethernet address, if the policy gives it. drains : it gets no new flows."""

    address: IPv4Address | IPv6Address
    weight: int = 1
    drains: bool = False
    mac: bytes | None = None


@dataclass(frozen=True)
class Pool:
    """Servers over which flows are spread. backends : in the order of their addresses, at least one."""

    name: str
    backends: tuple[Backend, ...]
    method: str = "dsr"
    seed: int = 0

    @classmethod
    def of(cls, pool: Mapping[str, Any]) -> Pool:
        """From a policy's normal form."""
        backends = tuple(
            Backend(
                ip_address(it["address"]), it["weight"], it["drains"],
                None if it["mac"] is None else bytes.fromhex(it["mac"].replace(":", "")),
            )
            for it in pool["backends"]
        )  # fmt: skip
        return cls(pool["name"], backends, pool["method"], pool["seed"])

    def choose(self, frame: bytes) -> Backend | None:
        """Where a new flow goes that begins with this Ethernet frame; None: it goes nowhere.

        That is so of fragments, of IPv6 packets with extension headers, in PPPoE sessions, and where every
        backend drains.
        """
        words = flow_words(frame)
        if words is None:
            return None
        place = hash_words(words, self.seed) * PLACES >> 32
        number = table(tuple((b.address, 0 if b.drains else b.weight) for b in self.backends))[place]
        return self.backends[number] if number >= 0 else None

    def apply(self, frame: bytes) -> bytes | None:
        """The frame as a captured one is left: to the backend's Ethernet address, if that is given and the
        method is dsr. What is only known where packets are sent stays. None: it goes nowhere.
        """
        backend = self.choose(frame)
        if backend is None:
            return None
        return frame if backend.mac is None or self.method != "dsr" else backend.mac + frame[6:]


def hash_words(words: Sequence[int], seed: int) -> int:
    """32 bits of 64-bit words: xor, multiply and fold, and a last multiplication."""
    mixed = seed
    for word in words:
        mixed = (mixed ^ word) * _STEP & _ALL
        mixed ^= mixed >> 32
    return (mixed * _END & _ALL) >> 32


def flow_words(frame: bytes) -> tuple[int, ...] | None:
    """The ends of a frame's own IP packet, as the words of struct ww_ends_key; None: there are none to go
    by, or they are in a PPPoE session, of which no backend knows.
    """
    link = parse_link(frame)
    if link is None or link.pppoe:
        return None
    kind, at = link.network_type, link.offset
    if kind == 0x0800 and len(frame) >= at + 20:
        version, source, target, protocol = (
            4,
            frame[at + 12 : at + 16],
            frame[at + 16 : at + 20],
            frame[at + 9],
        )
        behind = at + 4 * (frame[at] & 15)
        if behind < at + 20 or int.from_bytes(frame[at + 6 : at + 8], "big") & 0x3FFF:
            return None
    elif kind == 0x86DD and len(frame) >= at + 40:
        version, source, target, protocol = (
            6,
            frame[at + 8 : at + 24],
            frame[at + 24 : at + 40],
            frame[at + 6],
        )
        behind = at + 40
        if protocol in _EXTENSIONS:
            return None
    else:
        return None
    has_ports = protocol in (6, 17) and len(frame) >= behind + 4
    ports = frame[behind : behind + 4] if has_ports else bytes(4)
    key = source.ljust(16, b"\0") + target.ljust(16, b"\0") + ports + bytes((protocol, version, 0, 0))
    return tuple(int.from_bytes(key[n : n + 8], "little") for n in range(0, 40, 8))


@lru_cache(maxsize=64)
def table(backends: tuple[tuple[IPv4Address | IPv6Address, int], ...]) -> tuple[int, ...]:
    """By place, which of the backends has it; -1: none has.

    backends : address and weight, 0 of one that gets no flows. Each has an order of its own in which it would
    like to have the places. By turns, in the order of their addresses, each takes the first in its order that
    is free; one of a smaller weight misses turns.
    """
    places = [-1] * PLACES
    members = sorted(
        (address.version, address.packed, weight, number)
        for number, (address, weight) in enumerate(backends)
        if weight
    )
    most = max((weight for _, _, weight, _ in members), default=0)
    turns = [[*_order(version, packed), 0] for version, packed, _, _ in members]
    free = PLACES if members else 0
    while free:
        for turn, (_, _, weight, number) in zip(turns, members, strict=True):
            turn[2] += weight
            if turn[2] < most or not free:
                continue
            turn[2] -= most
            while places[turn[0]] >= 0:
                turn[0] = (turn[0] + turn[1]) % PLACES
            places[turn[0]] = number
            free -= 1
    return tuple(places)


def _order(version: int, packed: bytes) -> tuple[int, int]:
    """The first place that a backend would like to have, and how far the next ones are."""
    address = packed.ljust(16, b"\0")
    words = (int.from_bytes(address[:8], "little"), int.from_bytes(address[8:], "little"), version)
    return (
        hash_words(words, _OFFSET) * PLACES >> 32,
        (hash_words(words, _SKIP) * (PLACES - 1) >> 32) + 1,
    )
