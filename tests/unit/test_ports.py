# SPDX-License-Identifier: Apache-2.0
"""No two servers of tests, and no connection, have the port of another."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ports import free_port

ROOT = Path(__file__).parents[2]
ASK = "from tests.ports import free_port; print(*(free_port() for _ in range(50)))"


def ports_of(worker: str) -> set[int]:
    env = {**os.environ, "PYTEST_XDIST_WORKER": worker, "PYTHONPATH": str(ROOT)}
    said = subprocess.run([sys.executable, "-c", ASK], env=env, check=True, capture_output=True, text=True)
    return set(map(int, said.stdout.split()))


def test_workers_have_ports_of_their_own_that_no_connection_takes() -> None:
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    one, other = ports_of("gw0"), ports_of("gw1")
    assert len(one) == len(other) == 50
    assert not one & other
    assert not [port for port in one | other if first <= port <= last]


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_one_that_is_taken_is_passed_over(kind: socket.SocketKind, monkeypatch: pytest.MonkeyPatch) -> None:
    taken, free = free_port(), free_port()
    monkeypatch.setattr("tests.ports._NEXT", iter([taken, free]))
    with socket.socket(socket.AF_INET, kind) as server:
        server.bind(("127.0.0.1", taken))
        assert free_port() == free
