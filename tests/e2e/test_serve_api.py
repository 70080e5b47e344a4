# SPDX-License-Identifier: Apache-2.0
"""The API does what its description says, whatever is asked; and many who ask, or ask slowly, do no harm."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests import needs as packages
from tests.e2e import needs
from tests.e2e.serving import PATIENCE_S, UNLIMITED, Lab, Local, asked, token, until
from tests.multiplicity import first
from tests.ports import free_port

packages.package("schemathesis")
pytestmark = needs.marks()


class Served:
    """A service that listens, with a token of each role."""

    def __init__(self, lab: Lab) -> None:
        self.port = free_port()
        self.reader, may_read = token("reader", "read")
        self.operator, may_operate = token("operator", "operate")
        self.fixed: dict[str, object] = {
            "listen": f"127.0.0.1:{self.port}",
            "tokens": [may_read, may_operate],
            "limits": UNLIMITED,
        }
        lab.write(lab.entry(), **self.fixed)
        self.process = lab.start()
        until("it is kept", lab.kept)

    def ask(self, method: str, path: str, secret: str | None = None) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        return asked(connection, method, path, secret)


@pytest.mark.parametrize("per_operation", first([8, 40]))
def test_answers_are_as_described(lab: Lab, per_operation: int) -> None:
    """per_operation: requests drawn for each at most; those that follow from the schema come on top."""
    served = Served(lab)
    path = "/api/v1/openapi.json"
    assert served.ask("GET", path) == (401, "")
    code, document = served.ask("GET", path, served.reader)
    assert code == 200
    schema = lab.folder / "openapi.json"
    schema.write_text(document)
    operations = {(method, path) for path, item in json.loads(document)["paths"].items() for method in item}
    assert len(operations) == 22
    for method, path in operations:
        assert served.ask(method.upper(), path) == (401, ""), path

    for secret, more in (
        (served.operator, ["--checks", "all"]),
        # What is not described is refused to this role before it is looked at.
        (
            served.reader,
            ["--checks", "all", "--exclude-checks", "unsupported_method", "--include-method", "GET"],
        ),
    ):
        # A token is not to be seen in the list of processes.
        (lab.folder / "schemathesis.toml").write_text(f'[headers]\nAuthorization = "Bearer {secret}"\n')
        done = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli"),
                *("--config-file", lab.folder / "schemathesis.toml", "--no-color"),
                *("run", schema, "--url", f"http://127.0.0.1:{served.port}"),
                # It never ends; the test below has it.
                *("--exclude-path", "/api/v1/events"),
                *("--max-examples", str(per_operation), "--seed", "1", "--generation-deterministic"),
                *("--workers", "1", *more),
            ],
            capture_output=True,
            text=True,
            check=False,
            cwd=lab.folder,
            env={**os.environ, "HYPOTHESIS_STORAGE_DIRECTORY": str(lab.folder / "hypothesis")},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        (generated,) = re.findall(r"([\d,]+) generated", done.stdout)
        assert 5 * per_operation < int(generated.replace(",", "")) < 2000
    assert served.process.poll() is None
    assert lab.kept()
    assert served.reader not in lab.log.read_text()


def test_the_policy_is_that_of_the_status(lab: Lab) -> None:
    served = Served(lab)
    lab.write(lab.entry(policy="drop.yaml", mode="enforce"), **served.fixed)
    assert lab.reload()[0] == 200
    code, answer = served.ask("GET", f"/api/v1/policy?interface={lab.made.receiver}", served.reader)
    assert code == 200
    (policy,) = json.loads(answer)["attachments"]
    assert [it["action"] for it in policy["classes"]] == ["pass", "drop"]
    assert policy["mode"] == "enforce"
    assert policy["policy"]["file"] == str(lab.folder / "drop.yaml")
    (status,) = json.loads(served.ask("GET", "/api/v1/status", served.reader)[1])["attachments"]
    assert policy == {name: status[name] for name in policy}
    assert served.ask("GET", "/api/v1/policy?interface=nosuch", served.reader)[0] == 404


def test_who_is_allowed_is_listed_until_that_is_lifted(lab: Lab) -> None:
    served = Served(lab)
    place = f"interface={lab.made.receiver}&netns={lab.made.inside}"
    add, lift = f"/api/v1/allow?{place}", f"/api/v1/lift?{place}&list=allowed"

    def listed() -> list[tuple[str, str]]:
        _, said = served.ask("GET", f"/api/v1/lists?interface={lab.made.receiver}", served.reader)
        (lists,) = json.loads(said)["attachments"]
        return [(it["prefix"], it["allowed_by"][0]["origin"]) for it in lists["allowed"]["first"]]

    assert served.ask("POST", f"{add}&prefix=192.0.2.7", served.reader)[0] == 403
    assert served.ask("POST", f"{add}&prefix=192.0.2.7&seconds=0", served.operator)[0] == 400
    assert served.ask("POST", f"{add}&prefix=192.0.2.7/33", served.operator)[0] == 409
    for prefix in ("192.0.2.7", "2001:db8::/32"):
        assert served.ask("POST", f"{add}&prefix={prefix}&seconds=600", served.operator)[0] == 200
    assert listed() == [("192.0.2.7/32", "hand"), ("2001:db8::/32", "hand")]
    assert served.ask("POST", f"{lift}&prefix=192.0.2.7", served.operator)[0] == 200
    assert served.ask("POST", f"{lift}&prefix=192.0.2.7", served.operator)[0] == 409
    assert listed() == [("2001:db8::/32", "hand")]
    assert "/api/v1/allow" in lab.log.read_text()


def test_events_are_a_stream(lab: Lab) -> None:
    served = Served(lab)
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE_S)
    connection.request("GET", "/api/v1/events", headers={"Authorization": f"Bearer {served.reader}"})
    response = connection.getresponse()
    assert (response.status, response.headers["Content-Type"]) == (200, "text/event-stream")
    connection.close()
    code, said = served.ask("GET", "/api/v1/events?since=1&until=2", served.reader)
    assert code == 400
    assert "until" in json.loads(said)["error"]["message"]


def test_a_thousand_connections_and_slow_ones_do_no_harm(lab: Lab) -> None:
    served = Served(lab)
    descriptors = Path(f"/proc/{served.process.pid}/fd")
    before = len(list(descriptors.iterdir()))
    held: list[socket.socket] = []
    try:
        for number in range(1000):
            each = socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE_S)
            held.append(each)
            try:
                # Every other one begins a head, and never ends it.
                if number % 2:
                    each.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\nX: ")
            except OSError:
                continue  # closed at once, because there are enough
            if number % 100 == 0:
                assert asked(Local(lab.socket), "GET", "/api/v1/state")[0] == 200
                assert len(list(descriptors.iterdir())) < before + 80

        # Those who are slow are let go, and whoever asks properly is answered, while others still hold on.
        def answered() -> bool:
            try:
                return served.ask("GET", "/metrics", served.reader)[0] == 200
            except (OSError, http.client.HTTPException):
                return False

        until("it is answered", answered)
    finally:
        for each in held:
            each.close()
    until("they are let go", lambda: len(list(descriptors.iterdir())) <= before + 1)


WAVES, WAVE = 20, 500
"""10,000 connections; as many at a time as this process may have open."""

PER_ADDRESS = 25
"""Fewer than one address may have, so that it is the service's own limit that counts."""

HOSTILE = (
    b"",
    b"GET /metrics HTTP/1.1\r\nHost: a\r\nX: ",
    b"POST /api/v1/reload HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n",
    b"GET /" + b"a" * 20_000,
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
    b"GET /api/v1/state HTTP/1.1\r\n" + b"A: b\r\n" * 2_000,
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET /api/v1/flows?limit=1 HTTP/1.1\r\nHost: a\r\n\r\n" * 20,
)


def test_ten_thousand_hostile_connections_leave_nothing_behind(lab: Lab) -> None:
    served = Served(lab)
    process = Path(f"/proc/{served.process.pid}")

    def memory() -> int:
        (kilobytes,) = re.findall(r"^VmRSS:\s+(\d+) kB$", (process / "status").read_text(), re.MULTILINE)
        return int(kilobytes) * 1024

    def descriptors() -> int:
        return len(list((process / "fd").iterdir()))

    def wave(number: int) -> None:
        held: list[socket.socket] = []
        try:
            for each in range(WAVE):
                source = f"127.1.{number}.{each // PER_ADDRESS + 1}"
                address = ("127.0.0.1", served.port)
                held.append(socket.create_connection(address, PATIENCE_S, source_address=(source, 0)))
                with suppress(OSError):  # closed at once, because there are enough
                    held[-1].sendall(HOSTILE[each % len(HOSTILE)])
            # An honest question is answered, and packets are judged, while all of them hold on.
            assert asked(Local(lab.socket), "GET", "/api/v1/state")[0] == 200
            assert descriptors() < at_rest + 2 * 64 + 16
            lab.send(10)
            judged = 10 * (number + 1)
            until("packets are judged", lambda: lab.metric("wirewise_packets_total") >= judged)
        finally:
            for one in held:
                one.close()
        until("they are let go", lambda: descriptors() <= at_rest + 1)

    at_rest = descriptors()
    wave(0)
    before = memory()
    for number in range(1, WAVES):
        wave(number)
    assert memory() < before + (4 << 20)
    assert served.process.poll() is None
    assert served.ask("GET", "/metrics", served.reader)[0] == 200
    assert "panicked" not in lab.log.read_text()
