# SPDX-License-Identifier: Apache-2.0
"""Hosts and the flows between them: who sends, with which stack, and one row for each packet."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from .frames import (
    ACK,
    DONT_FRAGMENT,
    FIN,
    ICMP,
    ICMPV6,
    MORE_FRAGMENTS,
    PSH,
    RST,
    SYN,
    TCP,
    UDP,
    Options,
    noise,
    records,
    tls,
)

PROTECTED_NETWORK = 0xC0000200  # 192.0.2.0/24
SECOND_NS = 1_000_000_000
MTU = 1500

Row = tuple[int | bool, ...]


@dataclass(frozen=True)
class Stack:
    """What an operating system's TCP looks like from outside."""

    ttl: int
    syn_window: int
    window: tuple[int, int]  # range of the window field of an established connection, as on the wire
    syn_options: Options
    stamps: bool

    @property
    def data_options(self) -> Options:
        return Options.STAMP if self.stamps else Options.NONE


LINUX = Stack(64, 64240, (229, 1200), Options.LINUX, True)
OLDER_LINUX = Stack(64, 29200, (210, 700), Options.LINUX, True)
WINDOWS = Stack(128, 64240, (255, 2053), Options.WINDOWS, False)
OLDER_WINDOWS = Stack(128, 8192, (252, 513), Options.WINDOWS, False)
APPLE = Stack(64, 65535, (2000, 4117), Options.APPLE, True)
EMBEDDED = Stack(255, 5840, (2920, 5840), Options.MSS, False)
TINY = Stack(64, 1024, (512, 1024), Options.MSS, False)  # small sensors: looks like a scanner until it talks

CLIENTS = [LINUX, OLDER_LINUX, WINDOWS, OLDER_WINDOWS, APPLE, EMBEDDED, TINY]
CLIENT_WEIGHTS = [22, 6, 34, 3, 32, 2, 1]
SERVERS = [LINUX, OLDER_LINUX, WINDOWS, APPLE]
SERVER_WEIGHTS = [70, 12, 13, 5]


@dataclass(frozen=True)
class Host:
    number: int
    stack: Stack
    hops: int
    vlan: int

    @property
    def ttl(self) -> int:
        return self.stack.ttl - self.hops


def outside_host(rng: Random, stacks: list[Stack], weights: list[int]) -> Host:
    """A host somewhere in the Internet; one in twelve comes over a tagged link."""
    number = rng.randrange(0x0B000000, 0xDF000000)
    hops = min(28, max(2, round(rng.gauss(12, 4))))
    return Host(number, rng.choices(stacks, weights)[0], hops, 20 if number % 12 == 0 else 0)


def inside_host(rng: Random) -> Host:
    """A host of the protected network, one hop behind the interface."""
    return Host(PROTECTED_NETWORK + rng.randrange(10, 60), LINUX, 1, 0)


@dataclass
class Recorder:
    """Collects packets of the observed interval as rows.

    Packets before 0 or after `duration_ns` are not recorded: flows that began earlier are seen from their
    middle.
    """

    duration_ns: int
    both_directions: bool
    rows: list[Row] = field(default_factory=list)
    incoming: int = 0

    def add(self, row: Row) -> None:
        if not 0 <= row[0] < self.duration_ns:
            return
        outgoing = row[2]
        if outgoing and not self.both_directions:
            return
        self.incoming += not outgoing
        self.rows.append(row)


class Flow:
    """One conversation between an outside and an inside host; times are seconds."""

    def __init__(
        self,
        recorder: Recorder,
        rng: Random,
        kind: int,
        outside: Host,
        inside: Host,
        ports: tuple[int, int],
        *,
        attack: bool = False,
    ) -> None:
        self.recorder, self.rng, self.kind, self.attack = recorder, rng, kind, attack
        self.hosts = {False: outside, True: inside}  # by "is inside"
        self.ports = {False: ports[0], True: ports[1]}
        self.version = 6 if outside.number % 7 == 0 else 4
        self.sequence = {False: rng.getrandbits(32), True: rng.getrandbits(32)}
        self.windows = {side: rng.randint(*host.stack.window) for side, host in self.hosts.items()}
        self.ip_id = {False: rng.getrandbits(16), True: rng.getrandbits(16)}
        self.tunnel = 0
        # Where payloads begin that no protocol gives: of an attack, what its tool fills them with.
        drawn = self.sequence[False]
        self.content = records(drawn) if attack else noise(drawn)
        self.tls = tls(drawn)

    def _row(
        self,
        at: float,
        inside: bool,
        protocol: int,
        length: int,
        content: int,
        *,
        flags: int = 0,
        window: int = 0,
        options: Options = Options.NONE,
        fragment: int = 0,
        datagram: int = 0,
    ) -> None:
        host, other = self.hosts[inside], self.hosts[not inside]
        ack = self.sequence[not inside] if flags & ACK else 0
        self.recorder.add(
            (
                round(at * SECOND_NS),
                self.kind,
                inside,
                inside and self.attack,
                self.version,
                host.number,
                other.number,
                self.ports[inside],
                self.ports[not inside],
                protocol,
                host.ttl,
                self.ip_id[inside],
                fragment,
                options,
                flags,
                window,
                self.sequence[inside],
                ack,
                self.hosts[False].vlan,
                content,
                length,
                datagram,
                self.tunnel,
            )
        )
        self.ip_id[inside] = (self.ip_id[inside] + 1) & 0xFFFF

    def tcp(
        self,
        at: float,
        inside: bool,
        flags: int,
        length: int = 0,
        content: int | None = None,
        *,
        window: int | None = None,
        options: Options | None = None,
    ) -> None:
        """One TCP segment; length is its payload in bytes. content : TLS of the flow's own without."""
        stack = self.hosts[inside].stack
        if options is None:
            options = (
                stack.syn_options if flags & SYN else Options.NONE if flags & RST else stack.data_options
            )
        if window is None:
            window = stack.syn_window if flags & SYN else 0 if flags & RST else self.windows[inside]
            if not flags & (SYN | RST) and self.rng.random() < 0.2:
                self.windows[inside] = window = self.rng.randint(*stack.window)
        self._row(
            at,
            inside,
            TCP,
            length,
            self.tls if content is None else content,
            flags=flags,
            window=window,
            options=options,
            fragment=DONT_FRAGMENT,
        )
        self.sequence[inside] = (self.sequence[inside] + length + (flags & (SYN | FIN) > 0)) & 0xFFFFFFFF

    def udp(self, at: float, inside: bool, length: int, content: int | None = None) -> None:
        """One UDP datagram, in fragments if it is larger than the MTU and IPv4."""
        content = self.content if content is None else content
        if self.version == 6:
            length = min(length, MTU - 48)
        if length + 28 <= MTU:
            self._row(at, inside, UDP, length, content, datagram=length)
            return
        first = (MTU - 28) // 8 * 8
        identity = self.ip_id[inside]
        self._row(at, inside, UDP, first, content, fragment=MORE_FRAGMENTS, datagram=length)
        sent = first
        while sent < length:
            part = min(MTU - 20, length - sent) // 8 * 8 or length - sent
            more = MORE_FRAGMENTS if sent + part < length else 0
            at += 12e-6
            self.ip_id[inside] = identity
            self._row(at, inside, UDP, part, content + sent, fragment=more | (8 + sent) // 8)
            sent += part

    def icmp(self, at: float, inside: bool, length: int, what: str = "echo") -> None:
        """One ICMP packet: echo, answer (to one) or unreachable. The flow's ports are to be 0."""
        four, six = {"echo": (8, 128), "answer": (0, 129), "unreachable": (3, 1)}[what]
        kind = four if self.version == 4 else six
        protocol = ICMP if self.version == 4 else ICMPV6
        self._row(at, inside, protocol, length, self.content, flags=kind, window=self.windows[False])
        self.sequence[inside] = (self.sequence[inside] + 1) & 0xFFFFFFFF

    def segment_size(self, inside: bool) -> int:
        """Payload bytes of a full segment."""
        header = 40 if self.version == 4 else 60
        return MTU - header - (12 if self.hosts[inside].stack.stamps else 0)

    def open(self, at: float, from_inside: bool, round_trip: float) -> float:
        """Three-way handshake; gives the time of its last segment."""
        self.tcp(at, from_inside, SYN)
        self.tcp(at + round_trip / 2, not from_inside, SYN | ACK)
        self.tcp(at + round_trip, from_inside, ACK)
        return at + round_trip

    def send(
        self, at: float, from_inside: bool, size: int, round_trip: float, content: int | None = None
    ) -> float:
        """Send size bytes in bursts of a growing window; every other segment is acknowledged."""
        segment = self.segment_size(from_inside)
        burst, spacing = 10, self.rng.uniform(8e-6, 120e-6)
        left = size
        while left > 0:
            now = at
            for number in range(burst):
                length = min(segment, left)
                left -= length
                self.tcp(now, from_inside, ACK | (PSH if left == 0 else 0), length, content)
                if number % 2 or left == 0:
                    self.tcp(now + round_trip / 2, not from_inside, ACK)
                now += spacing * self.rng.uniform(0.8, 1.6)
                if left == 0:
                    break
            at = max(now, at + round_trip) if left else now
            burst = min(burst * 2, 64)
        return at

    def close(self, at: float, from_inside: bool, round_trip: float) -> None:
        """FIN from both sides, or the reset that many clients send instead."""
        if self.rng.random() < 0.12:
            self.tcp(at, from_inside, RST | ACK)
            return
        self.tcp(at, from_inside, FIN | ACK)
        self.tcp(at + round_trip / 2, not from_inside, FIN | ACK)
        self.tcp(at + round_trip, from_inside, ACK)
