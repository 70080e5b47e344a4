# SPDX-License-Identifier: Apache-2.0
"""Traffic of a 5G core, in GTP-U tunnels: the two slices of galvao2026.

J. S. da S. Galvão et al., "Leveraging eBPF/XDP for Real-Time Machine Learning Traffic Classification in 5G
User Plane Networks" (2026), section 4: uplink traffic of an adaptive video stream (eMBB), and of a generator
that imitates the control of a robot's arm (URLLC). Sizes and rates are typical of such traffic; the paper
gives none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from .hosts import LINUX, Flow, Recorder, inside_host, outside_host

URLLC_PORTS = [4840, 30002, 34964]
EMBB_PORT = 443
UE_MTU = 1400
"""Bytes of a packet inside a tunnel, so that it fits outside of it."""


def _session(recorder: Recorder, rng: Random, kind: int, port: int) -> Flow:
    device = replace(outside_host(rng, [LINUX], [1]), vlan=0)
    flow = Flow(recorder, rng, kind, device, inside_host(rng), (rng.randrange(32768, 61000), port))
    flow.version = 4
    flow.tunnel = rng.randrange(1, 1 << 32)
    return flow


Event = tuple[float, bool, int]
"""Seconds, whether it is the network's answer, bytes of the datagram's payload."""


def control_loop(rng: Random, start: float = 0.0) -> Iterator[Event]:
    """A robot's arm under control, in cycles of 1 to 10 ms: small datagrams, hardly any jitter, an answer to
    each.
    """
    cycle, size, now = rng.choice([0.001, 0.002, 0.004, 0.01]), rng.randint(32, 120), start
    for _ in range(rng.randint(100, 800)):
        yield now + abs(rng.gauss(0, cycle / 50)), False, size
        yield now + cycle / 3, True, rng.randint(24, 64)
        now += cycle


def adaptive_video(rng: Random, start: float = 0.0) -> Iterator[Event]:
    """Video in segments of 1 to 4 s: bursts of full datagrams, whose number follows the rate chosen."""
    segment, now, rate = rng.choice([1.0, 2.0, 4.0]), start, rng.choice([0.8e6, 2.5e6, 5e6, 8e6])
    for _ in range(rng.randint(2, 6)):
        then = now
        for _ in range(max(2, int(rate * segment / 8 / 1350 * rng.uniform(0.7, 1.3)))):
            yield then, False, rng.choice([1350, 1350, 1350, rng.randint(200, 1350)])
            then += rng.lognormvariate(-8.3, 0.8)
        yield then + 0.01, True, rng.randint(40, 90)
        now = max(then, now + segment)
        rate = min(8e6, max(0.8e6, rate * rng.choice([0.5, 1.0, 1.0, 1.5])))


def urllc(recorder: Recorder, rng: Random, kind: int, start: float) -> None:
    """A control loop, in a tunnel."""
    flow = _session(recorder, rng, kind, rng.choice(URLLC_PORTS))
    for event in control_loop(rng, start):
        flow.udp(*event)


def embb(recorder: Recorder, rng: Random, kind: int, start: float) -> None:
    """A video, in a tunnel."""
    flow = _session(recorder, rng, kind, EMBB_PORT)
    for event in adaptive_video(rng, start):
        flow.udp(*event)
