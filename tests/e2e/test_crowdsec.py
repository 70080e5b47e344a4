# SPDX-License-Identifier: Apache-2.0
"""`wirewised deny sync` beside CrowdSec's local API, as Debian has it, and beside answers that are none."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import crowdsec, needs
from tests.e2e.crowdsec import KEY, LocalApi
from tests.e2e.sending import send_all
from tests.e2e.serving import PATIENCE_S, until
from tests.e2e.test_cpus import A, B, udp
from wirewise import agent
from wirewise.demo.network import Wire, inside_namespace, wire, within
from wirewise.demo.sender import open_sender

SENDER = A[0]

pytestmark = [*needs.marks(), crowdsec.is_there]


@dataclass
class Lab(LocalApi):
    """A program with a deny list inside, and a local API outside."""

    made: Wire = field(kw_only=True)

    @property
    def place(self) -> list[str]:
        """Options of the agent. Pins have a directory of their own, so that no test waits for another, and
        says so.
        """
        pins = f"/sys/fs/bpf/ww-{self.made.receiver}"
        return ["--interface", self.made.receiver, "--netns", self.made.inside, "--pin-root", pins]

    def words(self, *options: str, scheme: str = "http") -> list[str]:
        of_api = ["--crowdsec", f"{scheme}://127.0.0.1:8080", "--key-file", str(self.folder / "key")]
        return [str(agent.find()), "deny", "sync", *of_api, *self.place, *options]

    def follow(self) -> subprocess.Popen[bytes]:
        return self.spawn(*self.words("--interval", "200ms"))

    def once(self, *options: str, scheme: str = "http") -> subprocess.CompletedProcess[str]:
        command = [*within(self.made.outside), *self.words(*(options or ("--once",)), scheme=scheme)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)

    def look(self, command: str, *options: str) -> dict[str, Any]:
        return agent.call(*command.split(), *options, *self.place)

    def denied(self) -> dict[str, int]:
        """Prefixes, and for how many seconds."""
        listed = self.look("deny list", "--origin", "crowdsec")["prefixes"]
        return {it["prefix"]: it["denied_by"][0]["for_s"] for it in listed}

    def dropped(self) -> int:
        """How many of three packets of SENDER are denied."""

        def counted() -> dict[str, int]:
            return {row["status"]: row["packets"] for row in self.look("stats")["status"]}

        def act() -> None:
            with open_sender(self.made.sender) as sender:
                send_all(self.made.sender, sender, [udp(A, B)] * 3, burst=1)

        before = counted()
        inside_namespace(self.made.outside, act)
        until("all are counted", lambda: sum(counted().values()) - sum(before.values()) >= 3)
        return counted()["denied_prefix"] - before["denied_prefix"]

    def end(self) -> None:
        super().end()
        subprocess.run([agent.find(), "detach", *self.place], check=False, capture_output=True)


@pytest.fixture
def lab(tmp_path: Path, bundles: Path) -> Iterator[Lab]:
    policy = tmp_path / "policy.yaml"
    policy.write_text("version: 1\nclasses: {}\ndeny: {}\n")
    with wire() as made:
        subprocess.run(["ip", "-n", made.outside, "link", "set", "lo", "up"], check=True)
        lab = Lab(tmp_path, made.outside, made=made)
        try:
            lab.look(
                "run", "--bundle", str(bundles / "first.wirewise"), "--policy", str(policy),
                "--plane", "xdp-native", "--mode", "enforce", "--yes",
            )  # fmt: skip
            yield lab
        finally:
            lab.end()


def test_decisions_are_followed_until_the_last_about_an_address_is_gone(lab: Lab) -> None:
    lab.start()
    lab.decide(SENDER, "4h")
    lab.decide("192.0.2.9", "4h", "--type", "captcha")
    assert lab.dropped() == 0
    sync = lab.follow()
    until("who was banned before is denied", lambda: list(lab.denied()) == [f"{SENDER}/32"])
    assert lab.dropped() == 3

    lab.decide("2001:db8::1/32", "1h")
    until("a range is denied", lambda: "2001:db8::/32" in lab.denied())
    lab.decide("192.0.2.7", "1h")
    lab.decide("192.0.2.7", "4h")
    until("the longer holds", lambda: lab.denied().get("192.0.2.7/32", 0) > 7200)
    rows = json.loads(lab.cscli("decisions", "list", "--ip", "192.0.2.7", "--output", "json"))
    decisions = [it for row in rows for it in row["decisions"]]
    (longer,) = [it["id"] for it in decisions if it["duration"].startswith("3h")]
    lab.cscli("decisions", "delete", "--id", str(longer))
    until("the shorter holds", lambda: 0 < lab.denied()["192.0.2.7/32"] <= 3601)
    lab.cscli("decisions", "delete", "--ip", "192.0.2.7")
    lab.cscli("decisions", "delete", "--ip", SENDER)
    until("they are let in again", lambda: list(lab.denied()) == ["2001:db8::/32"])
    assert lab.dropped() == 0

    sync.send_signal(signal.SIGTERM)
    assert sync.wait(PATIENCE_S) == 0
    assert list(lab.denied()) == ["2001:db8::/32"], "it stays"
    log = lab.log.read_text()
    assert "stays denied until it expires" in log
    assert KEY not in log


def test_what_is_denied_expires_without_the_local_api(lab: Lab) -> None:
    api = lab.start()
    lab.decide(SENDER, "20s")
    lab.decide("192.0.2.7", "4h")
    said = lab.once("--dry-run", "--json")
    assert (said.returncode, lab.denied()) == (0, {}), said.stderr
    told = json.loads(said.stdout)
    assert (told["decisions"], told["changes"]["added"], told["dry_run"]) == (2, 2, True)
    said = lab.once()
    assert said.returncode == 0, said.stderr
    assert "2 added" in said.stdout
    assert lab.dropped() == 3
    api.kill()
    api.wait(PATIENCE_S)
    said = lab.once()
    assert (said.returncode, said.stderr.count("\n")) == (1, 1), said.stderr
    assert "127.0.0.1:8080" in said.stderr
    until("one expires", lambda: list(lab.denied()) == ["192.0.2.7/32"])
    assert lab.dropped() == 0


def test_a_local_api_may_go_and_come_again(lab: Lab) -> None:
    api = lab.start()
    lab.decide(SENDER, "4h")
    lab.follow()
    until("it is denied", lambda: bool(lab.denied()))
    api.kill()
    api.wait(PATIENCE_S)
    until("it is said", lambda: "trying again in" in lab.log.read_text())
    assert lab.dropped() == 3
    lab.start()
    lab.decide("192.0.2.7", "4h")
    until("the new one is denied too", lambda: list(lab.denied()) == [f"{SENDER}/32", "192.0.2.7/32"])
    until("it is said", lambda: "answers again" in lab.log.read_text())
    # As if the program was attached anew.
    lab.look("deny remove", "--origin", "crowdsec")
    until("the list is mended", lambda: list(lab.denied()) == [f"{SENDER}/32", "192.0.2.7/32"])


def test_a_wrong_key_says_how_to_get_one(lab: Lab) -> None:
    lab.start()
    (lab.folder / "key").write_text("another")
    for options in (("--once",), ("--interval", "200ms")):
        said = lab.once(*options)
        assert (said.returncode, said.stderr.count("\n")) == (2, 1), said.stderr
        assert "cscli bouncers add" in said.stderr
        assert str(lab.folder / "key") in said.stderr
        assert "another" not in said.stderr
    (lab.folder / "key").write_text("two\nlines")
    said = lab.once()
    assert (said.returncode, "holds no key" in said.stderr) == (2, True), said.stderr


def test_https_wants_a_certificate_that_is_known(lab: Lab) -> None:
    api = lab.start()
    lab.decide(SENDER, "4h")
    api.kill()
    api.wait(PATIENCE_S)
    key, certificate = lab.folder / "tls.key", lab.folder / "tls.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=api"]
    made += ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]
    subprocess.run([*made, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    lab.start(cert_file=str(certificate), key_file=str(key))
    said = lab.once("--once", scheme="https")
    assert (said.returncode, lab.denied()) == (1, {})
    assert "certificate" in said.stderr
    said = lab.once("--once", "--ca-file", str(certificate), scheme="https")
    assert said.returncode == 0, said.stderr
    assert list(lab.denied()) == [f"{SENDER}/32"]


@pytest.mark.slow
def test_a_hundred_thousand_decisions_are_in_force_in_one_go(lab: Lab) -> None:
    lab.start()
    many = lab.folder / "many.csv"
    addresses = (f"{10 + i // 65536}.{i // 256 % 256}.{i % 256}.7" for i in range(100_000))
    many.write_text("duration,scope,value\n" + "".join(f"24h,ip,{address}\n" for address in addresses))
    lab.cscli("decisions", "import", "-i", str(many))
    began = time.monotonic()
    said = lab.once("--once", "--json")
    took = time.monotonic() - began
    assert said.returncode == 0, said.stderr
    assert json.loads(said.stdout)["changes"]["added"] == 100_000
    assert len(lab.denied()) == 100_000
    began = time.monotonic()
    assert json.loads(lab.once("--once", "--json").stdout)["changes"]["added"] == 0
    print(f"100,000 decisions in force after {took:.1f} s; again {time.monotonic() - began:.1f} s")


BAN: dict[str, object] = {"id": 1, "duration": "4h", "scope": "Ip", "value": SENDER, "type": "ban"}
Answer = Callable[[BaseHTTPRequestHandler], None]


def decisions(*new: dict[str, object]) -> bytes:
    return json.dumps({"new": new, "deleted": None}).encode()


def body(content: bytes, status: int = 200, *, length: int | None = None, location: str = "") -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(content) if length is None else length))
        if location:
            handler.send_header("Location", location)
        handler.end_headers()
        handler.wfile.write(content)

    return answer


def endless(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(b" " * (1 << 20))


HOSTILE: dict[str, tuple[Answer, str]] = {
    "junk": (body(b"\x00\xff\x1b[2Jjunk"), "does not answer as"),
    "another server": (body(b"<html>welcome</html>"), "does not answer as"),
    "no decisions": (body(b"{}"), "does not answer as"),
    "deleted is missing": (body(json.dumps({"new": [BAN]}).encode()), "does not answer as"),
    "wrong types": (body(decisions({**BAN, "id": "x"})), "invalid type"),
    "deep": (body(b'{"new":' + b"[" * 100_000), "does not answer as"),
    "cut": (body(decisions(BAN), length=999), "127.0.0.1"),
    "an error": (body(b"", 500), "500"),
    "elsewhere": (body(b"", 302, location="http://127.0.0.1:8080/other"), "302"),
    "endless": (endless, "too much"),
}  # fmt: skip


@contextmanager
def answering(lab: Lab, answer: Answer) -> Iterator[list[str]]:
    """Who answers like this in the place of the local API, and the paths that it is asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            try:
                answer(self)
            except ConnectionError:
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            """Is not wanted."""

    server = inside_namespace(lab.made.outside, lambda: ThreadingHTTPServer(("127.0.0.1", 8080), Handler))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_hostile_answers_are_said_and_change_nothing(lab: Lab) -> None:
    (lab.folder / "key").write_text(KEY)
    with answering(lab, body(decisions(BAN))):
        assert lab.once().returncode == 0
    before = list(lab.denied())
    assert before == [f"{SENDER}/32"]
    for name, (answer, why) in HOSTILE.items():
        with answering(lab, answer) as asked:
            said = lab.once()
        assert (said.returncode, said.stderr.count("\n")) == (1, 1), (name, said.stderr)
        assert why in said.stderr, name
        assert "\x1b" not in said.stderr, name
        assert KEY not in said.stderr, name
        assert len(asked) == 1, (name, "nobody else gets the key")
        assert list(lab.denied()) == before, name
    odd = [
        {**BAN, "id": n, "value": value} for n, value in enumerate(["\x1b[2J", "x" * 10_000, "10.0.0.0/99"])
    ]
    with answering(lab, body(json.dumps({"new": [BAN, *odd], "deleted": None}).encode())):
        said = lab.once()
    assert said.returncode == 0, said.stderr
    assert "3 decisions cannot be read" in said.stderr
    assert "\x1b" not in said.stderr
    assert list(lab.denied()) == before
