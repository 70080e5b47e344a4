# SPDX-License-Identifier: Apache-2.0
"""The attacks of CIC-IDS2017 as the seven classes of hara2023 group them; port scans are in attacks.py.

T. Hara, "On Practicality of Kernel Packet Processing Empowered by Lightweight Neural Network and Decision
Tree" (2023), section V-A: normal, botnet, brute force, DoS, infiltration, port scan, web attack.
"""

from __future__ import annotations

from random import Random

from .attacks import slow_http
from .frames import ACK, PSH, RST, SYN, Content
from .hosts import CLIENT_WEIGHTS, CLIENTS, LINUX, Flow, Recorder, inside_host, outside_host


def _flow(recorder: Recorder, rng: Random, kind: int, port: int, *, from_inside: bool = False) -> Flow:
    client = rng.randrange(32768, 61000)
    outside = outside_host(rng, [LINUX] if from_inside else CLIENTS, [1] if from_inside else CLIENT_WEIGHTS)
    ports = (port, client) if from_inside else (client, port)
    return Flow(recorder, rng, kind, outside, inside_host(rng), ports, attack=True)


def botnet(recorder: Recorder, rng: Random, kind: int, start: float) -> None:
    """An inside host that asks its controller for orders at even intervals, and sends what it was told to."""
    flow = _flow(recorder, rng, kind, rng.choice([8080, 80, 443]), from_inside=True)
    round_trip, pause, now = rng.uniform(0.03, 0.2), rng.uniform(1, 10), start
    now = flow.open(now, True, round_trip)
    for _ in range(rng.randint(3, 20)):
        now = flow.send(now + 1e-3, True, rng.randint(150, 320), round_trip, Content.REQUEST)
        now = flow.send(now + round_trip, False, rng.choice([90, 130, rng.randint(200, 3000)]), round_trip)
        now += pause * rng.uniform(0.97, 1.03)
    flow.close(now, True, round_trip)


def brute_force(recorder: Recorder, rng: Random, kind: int, start: float) -> None:
    """One login after the other by SSH or FTP, each a connection with a few tries."""
    port, round_trip, now = rng.choice([22, 22, 21]), rng.uniform(0.01, 0.15), start
    for _ in range(rng.randint(2, 12)):
        flow = _flow(recorder, rng, kind, port)
        then = flow.open(now, False, round_trip)
        if port == 22:  # versions and keys, before anything is tried
            then = flow.send(then, False, 22, round_trip)
            then = flow.send(then + round_trip, False, rng.randint(1000, 1500), round_trip)
            then = flow.send(then + round_trip / 2, True, rng.randint(900, 1700), round_trip)
        for _ in range(rng.randint(1, 6)):
            then = flow.send(then + rng.uniform(0.05, 0.4), False, rng.randint(12, 148), round_trip)
            then = flow.send(then + rng.uniform(0.1, 2.5), True, rng.randint(20, 96), round_trip)
        flow.close(then, True, round_trip)
        now += rng.uniform(0.05, 1.0)


def dos(recorder: Recorder, rng: Random, kind: int, start: float) -> None:
    """Requests without end to one server (Hulk, GoldenEye), or as slow as it tolerates (Slowloris)."""
    if rng.random() < 0.3:
        slow_http(recorder, rng, kind, start)
        return
    round_trip, now = rng.uniform(0.005, 0.08), start
    for _ in range(rng.randint(4, 30)):
        flow = _flow(recorder, rng, kind, rng.choice([80, 80, 443]))
        then = flow.open(now, False, round_trip)
        for _ in range(rng.randint(1, 3)):
            then = flow.send(then + 2e-4, False, rng.randint(280, 450), round_trip, Content.REQUEST)
            then = flow.send(then + rng.uniform(0.01, 1.0), True, rng.randint(300, 12_000), round_trip)
        if rng.random() < 0.5:
            flow.tcp(then, False, RST | ACK)
        else:
            flow.close(then, False, round_trip)
        now += rng.expovariate(80)


def infiltration(recorder: Recorder, rng: Random, kind: int, start: float) -> None:
    """A download that should not have been opened, then a shell that its sender works in."""
    flow = _flow(recorder, rng, kind, 443, from_inside=True)
    round_trip = rng.uniform(0.04, 0.2)
    now = flow.open(start, True, round_trip)
    now = flow.send(now, True, rng.randint(300, 600), round_trip)
    now = flow.send(now + round_trip, False, rng.randint(60_000, 400_000), round_trip)
    flow.close(now, True, round_trip)
    shell = _flow(recorder, rng, kind, rng.choice([4444, 443, 8443]), from_inside=True)
    now = shell.open(now + rng.uniform(1, 4), True, round_trip)
    for _ in range(rng.randint(5, 40)):
        shell.tcp(now, False, PSH | ACK, rng.randint(5, 180))
        now = shell.send(now + round_trip, True, int(rng.lognormvariate(6, 1.5)) % 20_000 + 30, round_trip)
        now += rng.lognormvariate(0, 1.2)


def web_attack(recorder: Recorder, rng: Random, kind: int, start: float) -> None:
    """Forms sent again and again: passwords guessed, scripts and SQL tried, one after the other."""
    flow = _flow(recorder, rng, kind, rng.choice([80, 80, 443]))
    round_trip = rng.uniform(0.02, 0.15)
    now = flow.open(start, False, round_trip)
    for _ in range(rng.randint(4, 40)):
        now = flow.send(
            now + rng.uniform(0.01, 0.6), False, rng.randint(450, 900), round_trip, Content.REQUEST
        )
        now = flow.send(now + rng.uniform(0.02, 0.2), True, rng.choice([350, 420, 5200, 5400]), round_trip)
    flow.close(now, False, round_trip)


def other_flags(recorder: Recorder, rng: Random, kind: int, start: float) -> None:
    """One bot that floods with segments of no connection: ACK, SYN-ACK, RST, FIN or PSH-ACK."""
    bot, victim = outside_host(rng, CLIENTS, CLIENT_WEIGHTS), inside_host(rng)
    flags, port = rng.choice([ACK, SYN | ACK, RST, 1, PSH | ACK]), rng.choice([80, 443, 22])
    pace, now = rng.lognormvariate(-7.0, 1.2), start
    length = rng.choice([0, 0, 0, 120, 1000]) if flags & PSH else 0
    for _ in range(rng.randint(10, 200)):
        flow = Flow(recorder, rng, kind, bot, victim, (rng.randrange(1024, 65536), port), attack=True)
        flow.tcp(now, False, flags, length, window=rng.choice([0, 512, rng.randrange(1, 65536)]))
        now += pace * rng.uniform(0.3, 1.7)
