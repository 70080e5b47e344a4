# SPDX-License-Identifier: Apache-2.0
"""Floods of the families of CIC-DDoS2019: answers of reflectors, and floods without them.

I. Sharafaldin et al., "Developing Realistic Distributed Denial of Service (DDoS) Attack Dataset and
Taxonomy", ICCST 2019, Figure 1. Kinds have the data set's names, as `wirewise datasets cic-ddos2019` spells
them. Sizes are those of the protocols' amplified answers; in the data set one tool sends them all from one
address.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from .frames import ACK, RST, SYN, Content, records
from .hosts import (
    CLIENT_WEIGHTS,
    CLIENTS,
    LINUX,
    SERVER_WEIGHTS,
    SERVERS,
    Flow,
    Recorder,
    inside_host,
    outside_host,
)


@dataclass(frozen=True)
class Family:
    """Answers of one protocol. port : of the reflector, 0 for one of its own for each answer. sizes : ranges
    of bytes of a datagram, one of which a reflector keeps to. burst : datagrams to one question. questions :
    that one reflector answers. gap_s : between the datagrams of a burst. pause_s : between bursts, about.
    content : where they begin; None: those of each reflector as of another service.
    """

    doc: str
    port: int
    sizes: tuple[tuple[int, int], ...]
    burst: tuple[int, int] = (1, 1)
    questions: tuple[int, int] = (4, 40)
    gap_s: float = 1e-5
    pause_s: float = 0.02
    content: Content | None = None


FAMILIES = {
    "drdos-dns": Family("DNS: answers of 0.4 to 4 kB, in fragments", 53, ((420, 1232), (1600, 4000)),
                        content=Content.DNS),
    "drdos-ldap": Family("CLDAP: root entries of 1.3 to 3 kB", 389, ((1300, 1460), (1500, 3000))),
    "drdos-ntp": Family("NTP: monlist, bursts of 440 bytes", 123, ((440, 440), (292, 440)), (3, 40)),
    "drdos-ssdp": Family("SSDP: one answer for each service", 1900, ((240, 420),), (3, 12), gap_s=1e-4,
                         content=Content.HEADER_LINE),
    "drdos-snmp": Family("SNMP: GetBulk of 0.5 to 1.4 kB", 161, ((500, 1400), (1200, 1460)), (1, 4)),
    "drdos-mssql": Family("MSSQL: browser answers of 200 to 650 bytes", 1434, ((200, 650),), (1, 2)),
    "drdos-netbios": Family("NetBIOS: name tables of 150 to 300 bytes", 137, ((157, 301),), (1, 2), (4, 60)),
    "tftp": Family("TFTP: blocks of 516 bytes, sent again and again", 0, ((516, 516),), (2, 6), gap_s=1e-3),
    "portmap": Family("Portmap: lists of 68 to 490 bytes", 111, ((68, 200), (300, 490)), (1, 2), (4, 60)),
}  # fmt: skip


def reflection(recorder: Recorder, rng: Random, kind: int, start: float, family: Family) -> None:
    """One reflector and its victim."""
    outside, victim = outside_host(rng, [LINUX], [1]), inside_host(rng)
    port = family.port or rng.randrange(32768, 61000)
    asked_as = rng.choice([80, 443, rng.randrange(1024, 65536)])
    flow = Flow(recorder, rng, kind, outside, victim, (port, asked_as), attack=True)
    low, high = rng.choice(family.sizes)
    now = start
    for _ in range(rng.randint(*family.questions)):
        for number in range(rng.randint(*family.burst)):
            flow.udp(now + number * family.gap_s, False, rng.randint(low, high), family.content)
        now += rng.lognormvariate(0, 1.0) * family.pause_s


_SERVICES = (17, 19, 53, 69, 111, 123, 137, 161, 389, 427, 500, 520, 1434, 1900, 3283, 3478, 3702, 4500,
             5060, 5353, 5683, 6881, 10001, 11211, 17185, 27015, 37810)  # fmt: skip
"""UDP ports that answer with more than they were asked, of those that floods have come from."""


def many_reflectors(recorder: Recorder, rng: Random, kind: int, start: float) -> None:
    """One victim, and up to a thousand reflectors of a few services, most of which answer once or twice: a
    flood by its number, as real ones are. No reflector by itself sends more than an honest server.
    """
    victim, length = inside_host(rng), rng.lognormvariate(0, 1.0)
    services = []
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        port = rng.choice(_SERVICES) if rng.random() < 0.8 else rng.randrange(1, 65536)
        least = round(2 ** rng.uniform(5, 11))
        most = min(4000, least + rng.choice([0, rng.randrange(64), least]))
        services.append((port, (least, most), records(rng.randrange(1 << 16))))
    asked_as, answers = rng.choice([0, 53, 80, 443, rng.randrange(1024, 65536)]), rng.choice([0, 0, 0.5])
    for _ in range(_reflectors(rng)):
        port, sizes, content = rng.choice(services)
        outside = outside_host(rng, [LINUX], [1])
        ports = (port, asked_as or rng.randrange(1024, 65536))
        flow = Flow(recorder, rng, kind, outside, victim, ports, attack=True)
        now = start + length * rng.random()
        for _ in range(min(64, 1 + int(rng.lognormvariate(answers, 1.0))) if answers else 1):
            flow.udp(now, False, rng.randint(*sizes), content)
            now += rng.expovariate(20 / length)


def tcp_reflection(recorder: Recorder, rng: Random, kind: int, start: float) -> None:
    """Servers that answer SYNs which somebody else sent in the victim's name, and ask again when they hear
    nothing.
    """
    victim, length = inside_host(rng), rng.lognormvariate(0, 1.0)
    ports = rng.sample([21, 22, 23, 25, 53, 80, 110, 179, 443, 445, 3389, 8080, 8443], rng.randint(1, 6))
    flags = rng.choices([SYN | ACK, RST | ACK, RST], [8, 1, 1])[0]
    asked_as, again = rng.choice([0, 80, rng.randrange(1024, 65536)]), rng.choice([1, 1, 2, 5])
    same_port = rng.random() < 0.25  # some tools ask from the port that they ask for
    for _ in range(_reflectors(rng)):
        outside, port = outside_host(rng, SERVERS, SERVER_WEIGHTS), rng.choice(ports)
        mine = port if same_port else asked_as or rng.randrange(1024, 65536)
        flow = Flow(recorder, rng, kind, outside, victim, (port, mine), attack=True)
        now = start + length * rng.random()
        for number in range(again if flags & SYN else 1):
            flow.tcp(now, False, flags)
            now += 2.0**number


def _reflectors(rng: Random) -> int:
    """20 to 1,000, as many of each magnitude."""
    return round(10 ** rng.uniform(1.3, 3.0))


def udp_flood(recorder: Recorder, rng: Random, kind: int, start: float) -> None:
    """One bot: datagrams of one size to random or fixed ports, as fast as it can."""
    bot, victim = outside_host(rng, CLIENTS, CLIENT_WEIGHTS), inside_host(rng)
    size, fixed = rng.choice([0, 32, 512, 1024, 1400]), rng.random() < 0.5
    source, port = rng.randrange(1024, 65536), rng.choice([53, 80, 443, rng.randrange(1024, 65536)])
    pace, now = rng.lognormvariate(-8.0, 1.0), start
    flow = Flow(recorder, rng, kind, bot, victim, (source, port), attack=True)
    for _ in range(rng.randint(20, 400)):
        if not fixed:
            flow.ports[True] = rng.randrange(1, 65536)
        flow.udp(now, False, size)
        now += pace * rng.uniform(0.5, 1.5)


def syn_connections(recorder: Recorder, rng: Random, kind: int, start: float) -> None:
    """One bot with a real stack that asks for connections it never completes, from port after port."""
    bot, victim = outside_host(rng, CLIENTS, CLIENT_WEIGHTS), inside_host(rng)
    source, port = rng.randrange(1024, 60000), rng.choice([80, 443, 443, 22, 25565])
    pace, now = rng.lognormvariate(-6.0, 1.2), start
    for number in range(rng.randint(10, 200)):
        ports = (1024 + (source + number) % 64512, port)
        flow = Flow(recorder, rng, kind, bot, victim, ports, attack=True)
        flow.tcp(now, False, SYN)
        if rng.random() < 0.2:
            flow.tcp(now + 1.0, False, SYN)
        now += pace * rng.uniform(0.2, 1.8)
