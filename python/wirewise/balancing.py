# SPDX-License-Identifier: Apache-2.0
"""Which server of a pool a flow goes to: Maglev hashing, with weights.

Eisenbud et al., NSDI 2016, section 3.4. The reference of bpf/wirewise/balance.h and of the agent's tables
(crates/wirewised/src/object/pools), and the part of a policy file that describes pools (docs/balancing.md).
It knows new flows only: which backend a flow went to before, and whether a backend lives, is known where
packets are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import pairwise

from wirewise.abi import BACKENDS, CHECK_PATH, PLACES, POOL_NAME, POOLS
from wirewise.errors import InputError, choose
from wirewise.feature_sets.packet import parse_link
from wirewise.units import parse_duration, parse_number

# While a policy changes, those of both are there. Place 0 of the backends stays empty.
MAX_POOLS = POOLS // 2
MAX_BACKENDS = BACKENDS // 2 - 1
"""Of all pools of a policy together."""
MAX_NAME = POOL_NAME - 1
MAX_PATH = CHECK_PATH - 1
METHODS = ("dsr", "ip-in-ip", "gue")

_ALL = (1 << 64) - 1
_STEP, _END = 0x9E3779B97F4A7C15, 0x94D049BB133111EB
_OFFSET, _SKIP = 1, 2  # seeds of the two numbers that a backend's order of places comes from
_MILLISECOND = 1_000_000
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


# -- the file


def parse_pools(value: object) -> dict[str, Pool]:
    """The pools of a policy file, by name. Raises ValueError."""
    if not isinstance(value, Mapping):
        raise ValueError("write {NAME: {backends: [{address: 10.0.0.11}]}}")
    if len(value) > MAX_POOLS:
        raise ValueError(f"{len(value)} are too many; at most {MAX_POOLS}")
    pools = {str(name): _named_pool(str(name), entry) for name, entry in value.items()}
    if (count := sum(len(pool.backends) for pool in pools.values())) > MAX_BACKENDS:
        raise ValueError(f"{count} backends are too many; at most {MAX_BACKENDS} in all pools")
    return pools


def _named_pool(name: str, value: object) -> Pool:
    try:
        return _pool(name, value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _pool(name: str, value: object) -> Pool:
    if not re.fullmatch(rf"[A-Za-z0-9._-]{{1,{MAX_NAME}}}", name, re.ASCII):
        raise ValueError(f"a pool's name is 1 to {MAX_NAME} letters, digits, hyphens, dots and underscores")
    entry = _mapping(value, ("method", "interface", "source", "seed", "health", "backends"))
    method = str(entry.get("method", "dsr"))
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}; {choose(method, METHODS)}")
    interface = entry.get("interface", "any")
    if not isinstance(interface, str) or not interface or "/" in interface or "\0" in interface:
        raise ValueError("interface: write a name, such as eth1")
    if "source" in entry:
        if method == "dsr":
            raise ValueError("source is of an outer header, which the method dsr has not; leave it out")
        _host(entry["source"])
    if "health" in entry:
        _check_health(entry["health"])
    listed = entry.get("backends", [])
    if not isinstance(listed, list) or not listed:
        raise ValueError("has no backends; write backends: [{address: 10.0.0.11}, {address: 10.0.0.12}]")
    backends = sorted(
        map(_backend, listed), key=lambda backend: (backend.address.version, backend.address.packed)
    )
    for one, other in pairwise(backends):
        if one.address == other.address:
            raise ValueError(f"backend {one.address} stands twice; give it a weight instead")
    return Pool(name, tuple(backends), method, parse_number(entry.get("seed", "0")))


def _mapping(value: object, known: Sequence[str]) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise ValueError(f"is not a mapping; its keys are {', '.join(known)}")
    for key in value:
        if key not in known:
            raise ValueError(f"unknown key {key!r}; {choose(str(key), known)}")
    return value


def _backend(value: object) -> Backend:
    entry = _mapping(value, ("address", "weight", "drain", "mac"))
    if "address" not in entry:
        raise ValueError("a backend needs an address: {address: 10.0.0.11}")
    address = _host(entry["address"])
    weight, drain = parse_number(entry.get("weight", "1")), entry.get("drain", "false")
    if not 1 <= weight <= 100:
        raise ValueError(
            f"backend {address}: weight {weight} is out of range; 1 to 100, and `drain: true` for one that "
            "is to get no new flows"
        )
    if drain not in ("true", "false"):
        raise ValueError(f"backend {address}: {str(drain)!r} is neither true nor false")
    return Backend(address, weight, drain == "true", _mac(entry["mac"]) if "mac" in entry else None)


def _host(value: object) -> IPv4Address | IPv6Address:
    try:
        address = ip_address(str(value))
    except ValueError:
        raise ValueError(f"{str(value)!r} is no address; write 10.0.0.11 or 2001:db8::11") from None
    everybody = address == IPv4Address("255.255.255.255")
    if (
        address.is_multicast
        or address.is_unspecified
        or address.is_loopback
        or everybody
        or "%" in str(value)
    ):
        raise ValueError(f"{str(value)!r} is no address of another host")
    return address


def _mac(value: object) -> bytes:
    text = str(value)
    whole = re.fullmatch(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}", text, re.ASCII)
    mac = bytes.fromhex(text.replace(":", "")) if whole else bytes(6)
    if mac == bytes(6) or mac[0] & 1:
        raise ValueError(f"{text!r} is no Ethernet address of a host, such as 52:54:00:12:34:56")
    return mac


def _check_health(value: object) -> None:
    entry = _mapping(value, ("tcp", "http", "port", "interval", "timeout", "fall", "rise"))
    forms = {"tcp", "http", "port"} & set(entry)
    if forms not in ({"tcp"}, {"http"}, {"http", "port"}):
        raise ValueError("health: write one of {tcp: 80} or {http: /health, port: 80}")
    port = parse_number(entry.get("tcp", entry.get("port", "80")))
    if not 1 <= port <= 65535:
        raise ValueError(f"health: port {port} is out of range; 1 to 65535")
    path = str(entry.get("http", "/"))
    if not re.fullmatch(rf"/[!-~]{{0,{MAX_PATH - 1}}}", path, re.ASCII):
        raise ValueError(
            f"health: http: {path!r} is no path such as /health, of at most {MAX_PATH} printable characters"
        )
    for key, low, high in (("interval", 100, 3_600_000), ("timeout", 10, 60_000)):
        _check_time(key, entry.get(key, "500ms"), low, high)
    for key in ("fall", "rise"):
        if not 1 <= parse_number(entry.get(key, "1")) <= 100:
            raise ValueError(f"health: {key} {entry[key]} is out of range; 1 to 100 in a row")


def _check_time(key: str, value: object, low: int, high: int) -> None:
    try:
        time = parse_duration(str(value), what="")
    except InputError as error:
        raise ValueError(f"health: {key}{error}") from error
    if time % _MILLISECOND or not low <= time // _MILLISECOND <= high:
        raise ValueError(f"health: {key} {value} is out of range; {low}ms to {high}ms, in whole milliseconds")
