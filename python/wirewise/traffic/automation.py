# SPDX-License-Identifier: Apache-2.0
"""Programs that ask a server again and again: calls of an API, checks, scrapes, polls, look-ups.

Their sessions resemble each other and come at even gaps, as those of attack tools do. What is drawn once for
a program, such as sizes and the pause, holds for all its sessions. None logs in: whoever learns that repeated
logins are benign finds none that are guessed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from .benign import _round_trip
from .frames import ACK, PSH, SYN, Content, records
from .hosts import CLIENT_WEIGHTS, CLIENTS, SERVER_WEIGHTS, SERVERS, Flow, Recorder, inside_host, outside_host

_SESSIONS = 160
_LONGEST_S = 60.0
"""From a program's first session to about its last, and from a poll's first question."""


@dataclass(frozen=True)
class _Program:
    """What its sessions have in common. asks : whether the inside host does. asked, answer : bytes of a
    question and of its answer. steps : questions of a session. think : seconds until an answer. content :
    where payloads begin; TLS without.
    """

    rng: Random
    asks: bool
    round_trip: float
    asked: int
    answer: int
    steps: int
    think: float
    content: int | None

    def near(self, size: int) -> int:
        """A size that differs a little from one session to the next."""
        return max(1, round(size * self.rng.uniform(0.95, 1.05)))

    def answering(self) -> float:
        """Seconds from a question's arrival to its answer."""
        return self.think * self.rng.uniform(0.7, 1.5)


def _calls(of: _Program, flow: Flow, now: float) -> None:
    """A connection for a call or a few: a request, a header, the rest. Either side closes."""
    trip = of.round_trip
    answer = of.content
    now = flow.open(now, of.asks, trip) + 3e-4
    if of.content == Content.REQUEST:
        answer = Content.HEADER_LINE
    else:  # what TLS needs before
        for side, size in ((of.asks, 320), (not of.asks, 2600), (of.asks, 80)):
            now = flow.send(now, side, size, trip) + trip / 2
    for _ in range(of.steps):
        now = flow.send(now, of.asks, of.near(of.asked), trip, of.content) + trip / 2 + of.answering()
        left = of.near(of.answer)
        if left > 400 and of.rng.random() < 0.5:
            header = of.rng.choice([17, 19, 160, 400])
            now = flow.send(now, not of.asks, header, trip, answer) + 1e-3
            left -= header
        now = flow.send(now, not of.asks, left, trip, answer) + trip / 2
    flow.close(now + 1e-3, of.asks != (of.rng.random() < 0.4), trip)


def _check(of: _Program, flow: Flow, now: float) -> None:
    """Whether anybody listens."""
    now = flow.open(now, of.asks, of.round_trip)
    flow.close(now + 1e-4, of.asks, of.round_trip)


def _poll(of: _Program, flow: Flow, now: float) -> None:
    """One connection, with a small question and answer in it again and again."""
    now = flow.open(now, of.asks, of.round_trip)
    pause = of.rng.choice([0.05, 0.2, 1, 1, 2, 5])
    for _ in range(min(of.rng.randint(5, 40 * of.steps), 1 + int(_LONGEST_S / pause))):
        flow.tcp(now, of.asks, PSH | ACK, of.near(of.asked), of.content)
        answered = now + of.answering()
        flow.tcp(answered, not of.asks, PSH | ACK, min(1400, of.near(of.answer)), of.content)
        flow.tcp(answered + of.round_trip, of.asks, ACK)
        now += pause * of.rng.uniform(0.9, 1.1)


def _questions(of: _Program, flow: Flow, now: float) -> None:
    """Datagrams, each with an answer."""
    for _ in range(of.steps):
        flow.udp(now, of.asks, of.near(of.asked), of.content)
        now += of.round_trip + of.answering()
        flow.udp(now, not of.asks, min(1400, of.near(of.answer)), of.content)
        now += 1e-3


@dataclass(frozen=True)
class _Job:
    """A kind of program. session : plays one. asked, steps : least and most, as of `_Program`. answer,
    pause : of the logarithms of an answer's bytes and of the seconds between sessions, mean and deviation.
    contents : where payloads may begin, None for TLS; empty: messages of one of many services.
    """

    session: Callable[[_Program, Flow, float], None]
    ports: list[int]
    asked: tuple[int, int]
    answer: tuple[float, float]
    steps: tuple[int, int]
    pause: tuple[float, float]
    contents: tuple[Content | None, ...] = ()


_WEB = (Content.REQUEST, Content.REQUEST, None)
_JOBS = (
    _Job(_calls, [80, 80, 443, 8080, 8123, 5000, 9200], (120, 900), (5.8, 1.0), (1, 1), (-1.5, 1.6), _WEB),
    _Job(_calls, [80, 443, 8443, 3000], (120, 900), (6.5, 1.0), (1, 6), (1.0, 1.2), _WEB),
    _Job(_calls, [443, 8080, 9090, 9100], (150, 350), (9.5, 1.0), (1, 1), (2.5, 0.7), _WEB),  # metrics
    _Job(_check, [80, 443, 8080], (1, 1), (1.0, 0.0), (1, 1), (1.2, 0.8)),
    _Job(_poll, [102, 502, 1883, 4840, 8883, 20000, 44818], (12, 80), (3.5, 1.0), (1, 8), (2.0, 1.0)),
    _Job(_questions, [53], (28, 60), (4.8, 1.0), (1, 2), (1.0, 1.5), (Content.DNS,)),
    _Job(_questions, [123, 161, 47808], (12, 90), (4.0, 1.0), (1, 8), (2.0, 1.0)),
)


def automation(recorder: Recorder, rng: Random, kind: int, start: float) -> None:
    """One program and its server, near or far; some servers are down."""
    job = rng.choice(_JOBS)
    asks, round_trip = rng.random() < 0.6, rng.uniform(2e-4, 6e-3) if rng.random() < 0.6 else _round_trip(rng)
    program = _Program(
        rng, asks, round_trip, rng.randint(*job.asked), 12 + int(rng.lognormvariate(*job.answer)),
        rng.randint(*job.steps), rng.lognormvariate(-4.5, 1.2),
        rng.choice(job.contents) if job.contents else records(rng.randrange(1 << 16)),
    )  # fmt: skip
    outside = outside_host(rng, *((SERVERS, SERVER_WEIGHTS) if asks else (CLIENTS, CLIENT_WEIGHTS)))
    inside, server_port = inside_host(rng), rng.choice(job.ports)
    pause, spread, down = (
        rng.lognormvariate(*job.pause),
        rng.choice([0.005, 0.02, 0.1, 0.5]),
        rng.random() < 0.04,
    )
    now = start
    for _ in range(min(rng.randint(3, _SESSIONS), 2 + int(_LONGEST_S / pause))):
        client_port = rng.randrange(32768, 61000)
        ports = (server_port, client_port) if asks else (client_port, server_port)
        flow = Flow(recorder, rng, kind, outside, inside, ports)
        if down:
            flow.tcp(now, asks, SYN)
        else:
            job.session(program, flow, now)
        now += pause * max(0.1, rng.gauss(1, spread))
