# SPDX-License-Identifier: Apache-2.0
"""Ports of this machine for servers that a test starts."""

from __future__ import annotations

import os
import socket
from itertools import cycle
from pathlib import Path

_FIRST, _LAST = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
"""Those that the kernel gives to connections."""
_OTHERS = [*reversed(range(1024, _FIRST)), *range(_LAST + 1, 1 << 16)]
_WORKERS = 64
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _WORKERS
_MINE = _OTHERS[_WORKER::_WORKERS]
_NEXT = cycle(_MINE)


def free_port() -> int:
    """A port, of TCP and UDP, that is nobody's until the test's server has it. One that the kernel chose, and
    that was closed again, can be a connection's before the server is there; these are of no connection, and
    no other worker has the same.
    """
    for port, _ in zip(_NEXT, _MINE, strict=False):
        if _is_free(port):
            return port
    raise OSError("no port is free outside of net.ipv4.ip_local_port_range")


def _is_free(port: int) -> bool:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_INET, kind) as one:
            try:
                one.bind(("", port))
            except OSError:
                return False
    return True
