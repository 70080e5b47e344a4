# SPDX-License-Identifier: Apache-2.0
"""What a policy may ask for beside passing and dropping: where packets go, and what is written on them.

The reference of bpf/wirewise/steer.h for captured packets, and the part of a policy file that says it
(docs/policy.md).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from wirewise.abi import Outcome
from wirewise.balancing import Pool
from wirewise.errors import choose
from wirewise.fate import Fate
from wirewise.feature_sets.packet import parse_link
from wirewise.gtp import Pass, write_inside
from wirewise.tunnels import Table, parse_kind, parse_qfi
from wirewise.units import parse_number

KEYS = (
    "redirect", "mirror", "forward", "backend", "dscp", "mark", "priority", "queue", "decapsulate",
    "encapsulate", "qfi", "inner-dscp",
)  # fmt: skip
ACTIONS = ("bounce", "forward", "challenge")
"""Those that are no key of their own."""
MAX_QUEUE = 65_533
"""The kernel keeps 65535 for "none", and counts from 1."""
MAX_DSCP = 63
MAX_SPREAD = 16
"""CPUs that a class's packets go to."""
SOCKETS = 256
"""Receive queues whose packets can go to a socket of AF_XDP, from 0 on."""
MIN_SNAP = 14
"""Bytes of an Ethernet header."""
MAX_PORTS = 64
MAX_STATIONS = 512

DSCP = {
    "DF": 0, "CS0": 0, "LE": 1, "CS1": 8, "AF11": 10, "AF12": 12, "AF13": 14, "CS2": 16, "AF21": 18,
    "AF22": 20, "AF23": 22, "CS3": 24, "AF31": 26, "AF32": 28, "AF33": 30, "CS4": 32, "AF41": 34, "AF42": 36,
    "AF43": 38, "CS5": 40, "VA": 44, "EF": 46, "CS6": 48, "CS7": 56,
}  # fmt: skip
"""Names of differentiated services code points: RFC 2474, 2597, 3246, 5865, 8622."""

_IPV4, _IPV6 = 0x0800, 0x86DD


@dataclass(frozen=True)
class Mirror:
    """A copy of some packets out of another interface, as they came; of captured packets there is none."""

    interface: str
    every: int = 1
    """One packet in so many, at random."""
    snap: int | None = None
    """Bytes of each, `MIN_SNAP` and more; None: all of it."""

    @classmethod
    def parse(cls, value: object) -> Mirror:
        """Raises ValueError."""
        keys = {"interface", "rate", "snap"}
        if not isinstance(value, Mapping) or set(value) - keys:
            raise ValueError(
                "mirror needs an interface: {mirror: {interface: eth2}}; known: interface, rate, snap"
            )
        snap = parse_number(value["snap"]) if "snap" in value else None
        if snap is not None and snap < MIN_SNAP:
            raise ValueError(f"mirror: snap {snap} is less than {MIN_SNAP}, an Ethernet header")
        return cls(_interface("mirror", value.get("interface")), _sampling(value.get("rate", "1")), snap)

    def __str__(self) -> str:
        rate = "1" if self.every == 1 else f"1/{self.every}"
        return f"mirror {rate} to {self.interface}" + (f", {self.snap} bytes of each" if self.snap else "")


@dataclass(frozen=True)
class Steering:
    """What is asked for a class's packets; at least one attribute is set. dscp: 0 to 63. A challenge stands
    alone.
    """

    redirect: str | None = None
    """The interface that they leave by."""
    cpus: tuple[int, ...] = ()
    """Up the stack of one of these CPUs, the same for all packets of a flow; captured ones stay on theirs."""
    socket: int | None = None
    """To the socket of AF_XDP that belongs to this receive queue; captured packets are of all queues."""
    mirror: Mirror | None = None
    bounce: bool = False
    """Back out of the interface they came by, to the Ethernet address they came from."""
    forward: bool = False
    """Where the kernel's routes say, or between ports. Captured packets have none of these: they stay as they
    are, and pass."""
    challenge: bool = False
    """Who opens a TCP connection has to return a cookie. Captured packets are not answered: they pass."""
    dscp: int | None = None
    mark: int | None = None
    priority: int | None = None
    queue: int | None = None
    ports: tuple[str, ...] = ()
    """Between which they are forwarded; empty: by routes."""
    backend: str | None = None
    """The pool that they go to."""
    pool: Pool | None = None
    """Which that is."""
    decapsulate: bool = False
    """Out of its tunnel, if that is known."""
    encapsulate: bool = False
    """Into the tunnel of who it is for, and on by the routes; captured packets go nowhere."""
    qfi: int | None = None
    inner_dscp: int | None = None
    tunnels: Table = field(default_factory=Table)
    """Those that are known."""

    @classmethod
    def parse(cls, value: Mapping[str, object]) -> Steering | None:
        """Of a class's mapping; None: it asks for nothing of this kind. Raises ValueError."""
        bounces, forwards, challenge = (value.get("action") == action for action in ACTIONS)
        elsewhere = _elsewhere(value["redirect"]) if "redirect" in value else None
        ports = _ports(value["forward"]) if "forward" in value else ()
        if ports and (forwards or bounces or elsewhere is not None):
            raise ValueError(
                "a packet goes either between ports, or elsewhere: give forward without redirect, bounce or "
                "`action: forward`"
            )
        if forwards and elsewhere is not None:
            raise ValueError(
                "a packet goes either where the routes say or to one interface: give the action forward or "
                "redirect"
            )
        if bounces and elsewhere is not None:
            raise ValueError(
                "a packet cannot go elsewhere and back to its sender: give redirect or the action bounce"
            )
        backend = _pool_name(value["backend"]) if "backend" in value else None
        if backend is not None and (bounces or forwards or ports or elsewhere is not None):
            raise ValueError(
                "a packet goes to a backend or elsewhere: give backend, redirect or the action bounce"
            )
        queue = parse_number(value["queue"]) if "queue" in value else None
        if queue is not None and queue > MAX_QUEUE:
            raise ValueError(f"queue {queue} is out of range; 0 to {MAX_QUEUE}")
        steering = cls(
            *(elsewhere or (None, (), None)),
            mirror=Mirror.parse(value["mirror"]) if "mirror" in value else None,
            bounce=bounces,
            forward=forwards or bool(ports),
            challenge=challenge,
            ports=ports,
            dscp=_dscp(value["dscp"]) if "dscp" in value else None,
            mark=parse_number(value["mark"]) if "mark" in value else None,
            priority=parse_number(value["priority"]) if "priority" in value else None,
            queue=queue,
            backend=backend,
            decapsulate="decapsulate" in value and parse_kind("decapsulate", value["decapsulate"]),
            encapsulate="encapsulate" in value and parse_kind("encapsulate", value["encapsulate"]),
            qfi=parse_qfi(value["qfi"]) if "qfi" in value else None,
            inner_dscp=_dscp(value["inner-dscp"]) if "inner-dscp" in value else None,
        )
        steering._check_tunnels(forwards)
        if challenge and steering != cls(challenge=True):
            raise ValueError(
                "challenge stands alone: who answers it passes as it came; give the class nothing else, or "
                "another action"
            )
        return steering if steering != cls() else None

    def _check_tunnels(self, forwards: bool) -> None:
        inside = self.qfi is not None or self.inner_dscp is not None
        if self.encapsulate and (not forwards or self.decapsulate):
            raise ValueError(
                "encapsulate needs the routes, and a packet that is in no tunnel: {encapsulate: gtp-u, "
                "action: forward}"
            )
        if self.decapsulate and (self.bounce or self.ports or self.backend is not None or inside):
            raise ValueError(
                "decapsulate goes together with the action forward, redirect and dscp: what is behind a "
                "tunnel has no Ethernet address, and what is in none has no QFI"
            )
        if inside and not self.encapsulate and (self.forward or self.backend is not None):
            raise ValueError(
                "qfi and inner-dscp are written on a packet that stays in its tunnel: leave out forward "
                "and backend, or give encapsulate"
            )

    @property
    def fate(self) -> Fate:
        """Where its packets go, if what is asked for is done."""
        if self.bounce:
            return Fate.BOUNCE
        if self.encapsulate:
            return Fate.REDIRECT
        stays = self.redirect is None and self.socket is None and self.backend is None
        return Fate.PASS if stays else Fate.REDIRECT

    @property
    def keys(self) -> str:
        """The keys of a policy file that ask for it, in the agent's order: `dscp, redirect`."""
        redirects = self.redirect is not None or self.socket is not None or bool(self.cpus)
        asked = {
            "redirect": redirects, "bounce": self.bounce, "dscp": self.dscp is not None,
            "mark": self.mark is not None, "priority": self.priority is not None,
            "queue": self.queue is not None, "mirror": self.mirror is not None, "forward": self.forward,
            "backend": self.backend is not None, "challenge": self.challenge,
            "decapsulate": self.decapsulate, "encapsulate": self.encapsulate, "qfi": self.qfi is not None,
            "inner-dscp": self.inner_dscp is not None,
        }  # fmt: skip
        return ", ".join(key for key, is_asked in asked.items() if is_asked)

    @property
    def takes_away(self) -> bool:
        """Whether some of its packets do not come to their receiver."""
        return self.fate is not Fate.PASS or self.forward or self.challenge or self.decapsulate

    @property
    def outcome(self) -> Outcome:
        """What becomes of captured packets, enforced, unless `apply` says otherwise."""
        through = self.decapsulate or self.encapsulate
        stays = self.forward and not through
        return Outcome.NOT_ACTED if stays or self.challenge else Outcome.ACTED

    def apply(self, frame: bytes) -> bytes | None:
        """The Ethernet frame as it leaves; None: what is asked for cannot be done. frame: one that was
        classified.
        """
        try:
            frame = self._through_tunnel(frame)
        except Pass:
            return None
        if self.pool is not None:
            to_backend = self.pool.apply(frame)
            if to_backend is None:
                return None
            frame = to_backend
        if self.dscp is not None:
            frame = with_dscp(frame, self.dscp)
        return frame[6:12] + frame[:6] + frame[12:] if self.bounce else frame

    def _through_tunnel(self, frame: bytes) -> bytes:
        if self.decapsulate:
            return self.tunnels.decapsulate(frame)
        if self.encapsulate:
            return self.tunnels.encapsulate(frame, qfi=self.qfi, inner_dscp=self.inner_dscp)
        if self.qfi is not None or self.inner_dscp is not None:
            return write_inside(frame, qfi=self.qfi, inner_dscp=self.inner_dscp)
        return frame

    def __str__(self) -> str:
        parts = [
            self.dscp is not None and f"dscp {_dscp_name(self.dscp)}",
            self.mark is not None and f"mark {self.mark}",
            self.priority is not None and f"priority {self.priority}",
            self.queue is not None and f"queue {self.queue}",
            self.mirror is not None and str(self.mirror),
            self.redirect is not None and f"redirect to {self.redirect}",
            self.cpus and f"redirect to CPU {', '.join(map(str, self.cpus))}",
            self.socket is not None and f"redirect to the socket of queue {self.socket}",
            self.bounce and "bounce",
            self.forward and "forward" + (f" between {', '.join(self.ports)}" if self.ports else ""),
            self.challenge and "challenge",
            self.backend is not None and f"backend {self.backend}",
            self.decapsulate and "decapsulate",
            self.encapsulate and "encapsulate",
            self.qfi is not None and f"qfi {self.qfi}",
            self.inner_dscp is not None and f"inner-dscp {_dscp_name(self.inner_dscp)}",
        ]
        return ", ".join(part for part in parts if part)


def with_dscp(frame: bytes, dscp: int) -> bytes:
    """The frame with another DSCP in its outermost IP header, and the same ECN.

    The checksum of IPv4 is updated, not made anew (RFC 1624, equation 3), so one that was wrong stays so.
    """
    link = parse_link(frame)
    assert link is not None  # nothing else is classified
    kind, at = link.network_type, link.offset
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


def _ports(value: object) -> tuple[str, ...]:
    known = isinstance(value, Mapping) and not set(value) - {"ports", "static"}
    given: Mapping[str, object] = value if known and isinstance(value, Mapping) else {}
    names, fixed = given.get("ports"), given.get("static", {})
    if (
        not isinstance(names, list)
        or not all(isinstance(name, str) and _is_name(name) for name in names)
        or not 2 <= len(names) <= MAX_PORTS
        or not isinstance(fixed, Mapping)
    ):
        raise ValueError(
            "forward needs two ports or more: {forward: {ports: [eth1, eth2]}}; `action: forward` goes by "
            "the kernel's routes"
        )
    for at, name in enumerate(names):
        if name in names[:at]:
            raise ValueError(f"forward: port '{name}' stands twice")
    for station, port in fixed.items():
        digits = str(station).replace(":", "")
        shaped = re.fullmatch(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}", str(station), re.ASCII)
        if not shaped or not int(digits, 16) or int(digits[:2], 16) & 1:
            raise ValueError(
                f"forward: static: '{station}' is no Ethernet address of a station, such as 02:00:00:00:00:07"
            )
        if port not in names:
            raise ValueError(f"forward: static: '{port}' is none of the ports {', '.join(names)}")
    if len(fixed) > MAX_STATIONS:
        raise ValueError(
            f"forward: static: more than {MAX_STATIONS} stations; leave out those that can be learned"
        )
    return tuple(names)


def _is_name(name: str) -> bool:
    return bool(name) and "/" not in name and "\0" not in name


def _elsewhere(value: object) -> tuple[str | None, tuple[int, ...], int | None]:
    """Where packets go instead: an interface, CPUs, or the socket of a queue."""
    keys = {"interface", "cpu", "socket"}
    if not isinstance(value, Mapping) or set(value) - keys:
        raise ValueError(
            "redirect needs an interface: {redirect: {interface: eth2}}; known: interface, cpu, socket"
        )
    if len(value) > 1:
        raise ValueError("redirect goes to one of interface, cpu and socket")
    if "cpu" in value:
        wanted = value["cpu"] if isinstance(value["cpu"], list) else [value["cpu"]]
        if not 1 <= len(wanted) <= MAX_SPREAD:
            raise ValueError(
                f"redirect: cpu: {len(wanted)} CPUs; 1 to {MAX_SPREAD}: {{redirect: {{cpu: [1, 2]}}}}"
            )
        return None, tuple(map(parse_number, wanted)), None
    if "socket" in value:
        queue = parse_number(value["socket"])
        if queue >= SOCKETS:
            raise ValueError(f"redirect: socket: queue {queue} is out of range; 0 to {SOCKETS - 1}")
        return None, (), queue
    return _interface("redirect", value.get("interface")), (), None


def _interface(key: str, name: object) -> str:
    if not isinstance(name, str) or not _is_name(name):
        raise ValueError(f"{key} needs an interface: {{{key}: {{interface: eth2}}}}")
    return name


def _sampling(value: object) -> int:
    """One packet in so many: `1/100`."""
    match = re.fullmatch(r"1(?:/(\d{1,10}))?", str(value), re.ASCII)
    every = int(match[1] or 1) if match else 0
    if not 1 <= every < 1 << 32:
        raise ValueError(f"{str(value)!r} is no part of all packets, such as 1 or 1/100")
    return every


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
