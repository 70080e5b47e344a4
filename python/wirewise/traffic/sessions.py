# SPDX-License-Identifier: Apache-2.0
"""Sessions by what they need of a network: talking (interactive), moving much (bulk), and watching (video).

Sizes and times are typical: packets of a call every 20 ms, keys as people press them, video in segments.
"""

from __future__ import annotations

from random import Random

from .benign import _between, _round_trip
from .frames import ACK, PSH, Content
from .hosts import Recorder
from .mobile import adaptive_video


def call(recorder: Recorder, rng: Random, kind: int, start: float) -> None:
    """A call: both sides send a datagram every 10 to 60 ms, audio alone or with a small picture."""
    flow = _between(recorder, rng, kind, [3478, 5004, 16384, 19302, 443], from_inside=rng.random() < 0.5)
    every, size = rng.choice([0.01, 0.02, 0.02, 0.03, 0.06]), rng.randint(40, 220)
    picture = rng.random() < 0.3
    for side in (False, True):
        now = start + rng.uniform(0, every)
        for number in range(rng.randint(40, 600)):
            flow.udp(now + abs(rng.gauss(0, every / 10)), side, max(24, int(rng.gauss(size, size / 12))))
            if picture and number % 2:
                for part in range(rng.randint(1, 4)):
                    flow.udp(now + 1e-4 * (part + 1), side, rng.randint(500, 1150))
            now += every


def shell(recorder: Recorder, rng: Random, kind: int, start: float) -> None:
    """A shell, a remote desktop or a game: small messages at once when somebody does something."""
    from_inside, round_trip = rng.random() < 0.5, _round_trip(rng)
    flow = _between(recorder, rng, kind, [22, 22, 3389, 5900, 23, 443], from_inside=from_inside)
    now = flow.open(start, from_inside, round_trip)
    for _ in range(rng.randint(20, 200)):
        now += min(3.0, rng.lognormvariate(-2.0, 1.0))
        flow.tcp(now, from_inside, PSH | ACK, rng.choice([36, 36, 44, 52, rng.randint(20, 120)]))
        answer = rng.randint(200, 1400) if rng.random() < 0.15 else rng.randint(36, 160)
        flow.tcp(now + round_trip / 2 + 2e-3, not from_inside, PSH | ACK, answer)
        flow.tcp(now + round_trip, from_inside, ACK)


def transfer(recorder: Recorder, rng: Random, kind: int, start: float) -> None:
    """A file, a backup or an update: full segments one way, as fast as can be, over TCP or QUIC."""
    from_inside, round_trip = rng.random() < 0.5, _round_trip(rng)
    flow = _between(recorder, rng, kind, [443, 80, 22, 445, 873, 5001], from_inside=from_inside)
    sender, size = rng.random() < 0.4, int(rng.lognormvariate(13.5, 1.0))
    if rng.random() < 0.25:
        full, now = rng.choice([1200, 1252, 1350]), start
        flow.udp(now, from_inside, full)
        for number in range(max(20, size // full)):
            now += rng.uniform(1.5e-5, 3e-4) + (round_trip / 2 if number % 40 == 39 else 0)
            flow.udp(now, sender, full)
            if number % 4 == 0:
                flow.udp(now + round_trip / 2, not sender, rng.randint(30, 60))
        return
    now = flow.open(start, from_inside, round_trip)
    now = flow.send(now + 1e-3, from_inside, rng.randint(300, 2000), round_trip)
    now = flow.send(now + round_trip, sender, size, round_trip, flow.content)
    flow.close(now + 0.01, from_inside, round_trip)


def video(recorder: Recorder, rng: Random, kind: int, start: float) -> None:
    """Video in segments, over QUIC or TCP: a request, a burst of full packets, a pause until the next."""
    from_inside, round_trip = rng.random() < 0.7, _round_trip(rng)
    flow = _between(recorder, rng, kind, [443], from_inside=from_inside)
    if rng.random() < 0.5:
        for at, asks, size in adaptive_video(rng, start):
            flow.udp(at, from_inside if asks else not from_inside, size)
            if not asks and rng.random() < 0.2:
                flow.udp(at + round_trip / 2, from_inside, rng.randint(30, 60))
        return
    now, rate = flow.open(start, from_inside, round_trip), rng.choice([0.8e6, 2.5e6, 5e6, 8e6])
    segment = rng.choice([1.0, 2.0, 4.0])
    for _ in range(rng.randint(2, 6)):
        began = now
        now = flow.send(now, from_inside, rng.randint(200, 900), round_trip, Content.REQUEST)
        size = int(rate * segment / 8 * rng.uniform(0.6, 1.4))
        now = flow.send(now + round_trip / 2, not from_inside, size, round_trip)
        now = max(now, began + segment)
