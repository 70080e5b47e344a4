# SPDX-License-Identifier: Apache-2.0
"""Frames into a veth pair, no more at once than its queue holds."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable
from pathlib import Path

from tests.patience import PATIENCE_S
from wirewise.demo.sender import one_cpu

BURST = 100
"""Frames; the queue of a veth holds 256 (VETH_RING_SIZE)."""


def send_all(interface: str, sender: socket.socket, frames: Iterable[bytes], *, burst: int = BURST) -> None:
    """From this thread's network namespace, and one CPU; waits after each burst until the other end has taken
    it.
    """
    before = _gone(interface)
    with one_cpu():
        for sent, frame in enumerate(frames, start=1):
            sender.send(frame)
            if sent % burst == 0:
                until = time.monotonic() + PATIENCE_S
                while _gone(interface) - before < sent:
                    assert time.monotonic() < until, f"{interface}: the other end takes no frames"
                    time.sleep(0.001)


def _gone(interface: str) -> int:
    """Frames that the other end has taken, and those that it had no room for: its driver counts them here."""
    lines = Path("/proc/thread-self/net/dev").read_text().splitlines()
    (counters,) = (line.split(":")[1].split() for line in lines if line.strip().startswith(f"{interface}:"))
    return int(counters[9]) + int(counters[11])
