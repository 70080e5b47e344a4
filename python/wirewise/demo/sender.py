# SPDX-License-Identifier: Apache-2.0
"""Sending packets on time.

tcpreplay was measured first: on a veth pair it adds its own cost to every gap, so that 5 seconds at 30,000
packets/s became 6 to 9. Features read the time between packets, so what is sent must keep the schedule: each
packet has its absolute time, and what is late is sent at once. That took 5.00 seconds, and half of the
packets were within 40 microseconds.
"""

from __future__ import annotations

import gc
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

_SLEEP_FROM_NS = (
    100_000  # shorter waits are spent polling: a sleep takes about 60 microseconds longer than asked
)


@dataclass(frozen=True)
class Sent:
    """packets : sent. seconds : from the first to the last. late_ns : how late packets were, 99th
    percentile.
    """

    packets: int
    seconds: float
    late_ns: int


def open_sender(interface: str) -> socket.socket:
    """A packet socket to send on; open it inside the interface's namespace."""
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    opened.bind((interface, 0))
    return opened


def send(
    sender: socket.socket,
    packets: Sequence[tuple[int, bytes]],
    progress: Callable[[int], None] = lambda sent: None,
) -> Sent:
    """Send frames at their times.

    packets : (time_ns from the start, frame), in time order. progress : called about five times a second
    with the number sent so far.
    """
    clock, put = time.monotonic_ns, sender.send
    late: list[int] = []
    told = 0
    with one_cpu(), _uncollected():
        start = clock()
        for number, (due_ns, frame) in enumerate(packets):
            wait = start + due_ns - clock()
            while wait > 0:
                if wait > _SLEEP_FROM_NS:
                    time.sleep(wait / 1e9)
                wait = start + due_ns - clock()
            put(frame)
            if number % 64 == 0:
                late.append(-wait)
                if due_ns - told > 200_000_000:
                    told = due_ns
                    progress(number)
        seconds = (clock() - start) / 1e9
    late.sort()
    return Sent(len(packets), seconds, late[len(late) * 99 // 100] if late else 0)


@contextmanager
def one_cpu() -> Iterator[None]:
    """The calling thread stays on one CPU.

    A veth pair has no receive hash: packets are handled on the CPU they were sent from. Where a program keeps
    flows by CPU, as receive scaling on a real card would have it, and where packets must arrive in the order
    they were sent, the sender must not wander.
    """
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def _uncollected() -> Iterator[None]:
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
