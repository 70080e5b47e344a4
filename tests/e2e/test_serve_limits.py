# SPDX-License-Identifier: Apache-2.0
"""What one address may ask: others, and the control socket, do not feel it."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import pytest

from tests.e2e import needs
from tests.e2e.certificates import authority
from tests.e2e.serving import PATIENCE_S, Lab, Local, asked, token, until
from tests.ports import free_port

pytestmark = needs.marks()

ATTEMPTS = 10_000
WORKERS = 8
HELD = 100
"""Connections that each worker holds at a time."""


class Served:
    def __init__(self, lab: Lab, **more: object) -> None:
        self.lab, self.port = lab, free_port()
        self.secret, may_read = token("reader", "read")
        lab.write(listen=f"127.0.0.1:{self.port}", tokens=[may_read], **more)
        self.process = lab.start()

    def ask(self, origin: int, secret: str) -> tuple[int, int]:
        """The status, and after how many seconds to ask again. origin : the last byte of the address."""
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.port, timeout=PATIENCE_S, source_address=(f"127.0.0.{origin}", 0)
        )
        connection.request("GET", "/api/v1/state", headers={"Authorization": f"Bearer {secret}"})
        response = connection.getresponse()
        response.read()
        connection.close()
        return response.status, int(response.headers.get("Retry-After", 0))

    def answered(self, origin: int) -> bool:
        return self.ask(origin, self.secret)[0] == 200


def test_who_asks_too_often_waits(lab: Lab) -> None:
    served = Served(lab, limits={"requests_per_second": 5})
    answers: list[tuple[int, int]] = []
    until("it is too much", lambda: answers.append(served.ask(1, served.secret)) or answers[-1][0] == 429)
    assert answers[0] == (200, 0)
    assert answers[-1] == (429, 1)
    assert served.answered(2), "another address has its own limit"
    assert all(asked(Local(lab.socket), "GET", "/api/v1/state")[0] == 200 for _ in range(50))
    until("it may ask again", lambda: served.answered(1))


def test_no_token_is_found_by_trying(lab: Lab) -> None:
    served = Served(lab, limits={"failures_per_minute": 1})
    wrong = "0" * 64
    assert [served.ask(1, wrong) for _ in range(2)] == [(401, 0)] * 2
    shut = time.monotonic() + 59
    code, seconds = served.ask(1, served.secret)
    if time.monotonic() < shut:
        assert code == 429 and 1 <= seconds <= 60, "the right one learns nothing either"
    assert served.answered(2)
    assert "audit" not in lab.log.read_text()


def test_after_wrong_tokens_it_is_let_in_again(lab: Lab) -> None:
    served = Served(lab, limits={"failures_per_minute": 60})
    until("it is shut out", lambda: served.ask(1, "0" * 64)[0] == 429)
    until("it is let in", lambda: served.answered(1))


def attempts(port: int, worker: int) -> Iterator[int]:
    """Connects, says something or nothing, and holds on for a while; yields after each."""
    said = (
        b"",
        b"GET /metrics HTTP/1.1\r\nHost: a\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\x16\x03",
    )
    held: list[socket.socket] = []
    try:
        for number in range(ATTEMPTS):
            origin = (f"127.0.1.{worker * 16 + number % 16 + 1}", 0)
            each = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S, source_address=origin)
            # Closed by a reset, so that no port waits.
            each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            held.append(each)
            # Closed at once where there are enough of them.
            with contextlib.suppress(OSError):
                each.sendall(said[number % len(said)])
            if len(held) == HELD:
                held.pop(0).close()
            yield number
    finally:
        for each in held:
            each.close()


@pytest.mark.parametrize("encrypted", [False, True])
def test_ten_thousand_connections_leave_nothing(lab: Lab, encrypted: bool) -> None:
    tls: dict[str, object] = {}
    if encrypted:
        made = authority(lab.folder, "own")
        tls = {"tls": {"certificate": str(made.certificate), "key": str(made.key)}}
    served = Served(lab, **tls)
    opened = Path(f"/proc/{served.process.pid}/fd")
    before = len(list(opened.iterdir()))

    def work(worker: int) -> int:
        made = 0
        for made in islice(attempts(served.port, worker), ATTEMPTS // WORKERS):
            if made % 250 == 0:
                assert lab.answers(), "the control socket answers meanwhile"
                assert len(list(opened.iterdir())) < before + 80
        return made + 1

    with ThreadPoolExecutor(WORKERS) as workers:
        assert sum(workers.map(work, range(WORKERS))) == ATTEMPTS
    until("they are let go", lambda: len(list(opened.iterdir())) <= before)
    assert served.process.poll() is None
    log = lab.log.read_text()
    assert "panicked" not in log
    assert len(log.splitlines()) < 20
    if encrypted:
        unchecked = ssl._create_unverified_context()
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            "127.0.0.1", served.port, timeout=PATIENCE_S, context=unchecked
        )
        assert asked(connection, "GET", "/metrics", served.secret)[0] == 200
    else:
        assert served.answered(1)
