# SPDX-License-Identifier: Apache-2.0
"""Ordinary traffic of a small network that serves web sites and uses the Internet.

Each function plays one conversation that starts at `start` seconds. Sizes and times follow the usual shapes:
lognormal objects and think times, round trips of 8 to 250 ms.
"""

from __future__ import annotations

from random import Random

from .frames import ACK, PSH, SYN, Content
from .hosts import CLIENT_WEIGHTS, CLIENTS, SERVER_WEIGHTS, SERVERS, Flow, Recorder, inside_host, outside_host


def _round_trip(rng: Random) -> float:
    return min(0.25, max(0.008, rng.lognormvariate(-3.2, 0.7)))


def _between(recorder: Recorder, rng: Random, kind: int, ports: list[int], *, from_inside: bool) -> Flow:
    """A flow whose client uses a free port, and whose server listens on one of ports."""
    client_port, server_port = rng.randrange(32768, 61000), rng.choice(ports)
    inside = inside_host(rng)
    if from_inside:
        server = outside_host(rng, SERVERS, SERVER_WEIGHTS)
        return Flow(recorder, rng, kind, server, inside, (server_port, client_port))
    client = outside_host(rng, CLIENTS, CLIENT_WEIGHTS)
    return Flow(recorder, rng, kind, client, inside, (client_port, server_port))


def web(recorder: Recorder, rng: Random, kind: int, start: float) -> None:
    """HTTPS and HTTP: pages, connections left idle, chatty sockets, checks and failures."""
    from_inside = rng.random() < 0.4
    flow = _between(recorder, rng, kind, [443, 443, 443, 80], from_inside=from_inside)
    round_trip = _round_trip(rng)
    fate = rng.random()
    if fate < 0.04 and not from_inside:  # nobody listens or answers: looks like a scan or a flood
        flow.ports[True] = rng.choice([25, 8080, 8443, 445, 5222, 993, 22, 3389])
        for delay in (0, 1, 3, 7)[: rng.randint(1, 4)]:
            flow.tcp(start + delay, False, SYN)
        return
    now = flow.open(start, from_inside, round_trip)
    if fate < 0.08:  # a health check
        flow.close(now + 1e-4, from_inside, round_trip)
        return
    now = flow.send(now + 3e-4, from_inside, rng.randint(190, 700), round_trip, Content.REQUEST)
    if fate < 0.20:
        _small_messages(flow, rng, now, from_inside, round_trip)
        return
    now = flow.send(now + round_trip / 2, not from_inside, rng.randint(900, 4500), round_trip)
    for _ in range(1 + min(12, int(rng.expovariate(0.4)))):
        now += round_trip / 2 + min(8.0, rng.lognormvariate(-1.2, 1.4))
        size = rng.randint(1500, 9000) if rng.random() < 0.1 else rng.randint(90, 900)
        now = flow.send(now, from_inside, size, round_trip)
        now = flow.send(
            now + round_trip / 2 + rng.uniform(0.002, 0.05), not from_inside, _object(rng), round_trip
        )
    if rng.random() < 0.35:  # kept open: nothing but keep-alives
        for _ in range(rng.randint(1, 4)):
            now += rng.choice([1.0, 5.0, 10.0, 15.0])
            flow.tcp(now, from_inside, ACK)
            flow.tcp(now + round_trip / 2, not from_inside, ACK)
        return
    flow.close(now + rng.uniform(0.01, 1.5), from_inside, round_trip)


def _object(rng: Random) -> int:
    """Bytes of a web object."""
    return int(min(400_000, max(180, rng.lognormvariate(9.0, 1.4))))


def _small_messages(flow: Flow, rng: Random, now: float, from_inside: bool, round_trip: float) -> None:
    """A socket for chat or telemetry: small messages now and then, which is what slow HTTP looks like too."""
    pause = rng.uniform(0.2, 6)
    for _ in range(rng.randint(3, 25)):
        now += pause * rng.lognormvariate(0, 0.8)
        from_client = rng.random() < 0.55
        side = from_inside == from_client
        flow.tcp(now, side, PSH | ACK, max(4, int(rng.lognormvariate(4.0, 0.9))))
        flow.tcp(now + round_trip / 2 + 2e-3, not side, ACK)


def dns(recorder: Recorder, rng: Random, kind: int, start: float) -> None:
    """Our resolver's questions to others, and others' questions to our name servers."""
    size = int(min(1232, max(60, rng.lognormvariate(4.9, 0.55))))
    if rng.random() < 0.04:  # DNSSEC, TXT: as large as what an amplifier sends
        size = rng.choice([rng.randint(600, 1232), rng.randint(1200, 1232), rng.randint(1500, 2400)])
    from_inside = rng.random() < 0.7
    flow = _between(recorder, rng, kind, [53], from_inside=from_inside)
    if from_inside:  # a resolver asks from any port
        flow.ports[True] = rng.randrange(1024, 65536)
    question = rng.randint(28, 75)
    flow.udp(start, from_inside, question, Content.DNS)
    if rng.random() < 0.03:
        flow.udp(start + 1.0, from_inside, question, Content.DNS)
    flow.udp(start + _round_trip(rng), not from_inside, size, Content.DNS)


def ntp(recorder: Recorder, rng: Random, kind: int, start: float) -> None:
    """Our hosts setting their clocks."""
    flow = _between(recorder, rng, kind, [123], from_inside=True)
    if rng.random() < 0.6:
        flow.ports[True] = 123
    for number in range(rng.choice([1, 1, 1, 4])):
        flow.udp(start + 2 * number, True, 48)
        flow.udp(start + 2 * number + _round_trip(rng), False, 48)


def quic(recorder: Recorder, rng: Random, kind: int, start: float) -> None:
    """Datagrams to and from port 443: padded first flights, bursts of full datagrams, answers, calls."""
    from_inside = rng.random() < 0.7
    flow = _between(recorder, rng, kind, [443], from_inside=from_inside)
    round_trip = _round_trip(rng)
    full = rng.choice([1200, 1250, 1252, 1350, 1357])
    flow.udp(start, from_inside, full)
    now = start + round_trip / 2
    for _ in range(rng.randint(2, 4)):
        flow.udp(now, not from_inside, full)
        now += rng.uniform(2e-5, 4e-4)
    now += round_trip / 2
    if rng.random() < 0.1:  # a call: steady, middle-sized, both ways
        for _ in range(rng.randint(100, 500)):
            flow.udp(now, bool(rng.getrandbits(1)), rng.randint(90, 1150))
            now += rng.uniform(0.004, 0.024)
        return
    for _ in range(1 + int(rng.expovariate(0.5))):
        flow.udp(now, from_inside, rng.randint(60, 600))
        now += round_trip / 2
        for number in range(max(1, _object(rng) // full)):
            flow.udp(now, not from_inside, full)
            if number % 4 == 0:
                flow.udp(now + round_trip / 2, from_inside, rng.randint(30, 60))
            now += rng.uniform(1.5e-5, 3e-4) + (round_trip / 2 if number % 40 == 39 else 0)
        flow.udp(now, not from_inside, rng.randint(40, full))
        now += min(6.0, rng.lognormvariate(-0.7, 1.2))


def ping(recorder: Recorder, rng: Random, kind: int, start: float) -> None:
    """Monitoring, and people who look whether a host answers."""
    flow = _between(recorder, rng, kind, [0], from_inside=rng.random() < 0.5)
    flow.ports = {False: 0, True: 0}
    asking, size, round_trip = rng.random() < 0.5, rng.choice([32, 56, 56, 64, 1400]), _round_trip(rng)
    pause, now = rng.choice([0.2, 1.0, 1.0, 1.0, 5.0]), start
    for _ in range(rng.choice([1, 3, 4, 4, 10, 60])):
        flow.icmp(now, asking, size)
        flow.icmp(now + round_trip, not asking, size, "answer")
        now += pause


def bulk(recorder: Recorder, rng: Random, kind: int, start: float) -> None:
    """Backups, mirrors and uploads: long runs of full segments, or of nothing but acknowledgements."""
    from_inside = rng.random() < 0.5
    flow = _between(recorder, rng, kind, [443, 22, 873, 5001], from_inside=from_inside)
    round_trip = _round_trip(rng)
    now = flow.open(start, from_inside, round_trip)
    now = flow.send(now + 1e-3, from_inside, rng.randint(300, 2000), round_trip)
    sender = rng.random() < 0.3
    now = flow.send(now + round_trip, sender, rng.randint(500_000, 5_000_000), round_trip, flow.content)
    flow.close(now + 0.01, from_inside, round_trip)
