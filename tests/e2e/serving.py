# SPDX-License-Identifier: Apache-2.0
"""A service over a veth pair, and how to ask it."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.sending import send_all
from tests.e2e.test_cpus import A, B, above, udp
from tests.patience import PATIENCE_S
from wirewise import agent
from wirewise.compiler import compile
from wirewise.demo.network import Wire, inside_namespace, wire
from wirewise.demo.sender import open_sender
from wirewise.feature_sets import FeatureSet

SERVE = Path(agent.find()).with_name("wirewised-serve")


UNLIMITED = {"requests_per_second": 1_000_000, "failures_per_minute": 1_000_000}
"""`limits` for tests that ask as fast as they can."""


class Local(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=PATIENCE_S)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE_S)
        self.sock.connect(str(self.path))


def asked(
    connection: http.client.HTTPConnection, method: str, path: str, token: str | None = None
) -> tuple[int, str]:
    connection.request(method, path, headers={"Authorization": f"Bearer {token}"} if token else {})
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    return response.status, body


def until(what: str, holds: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, f"not within {PATIENCE_S} s: {what}"
        time.sleep(0.02)


def events_in(file: Path) -> list[dict[str, Any]]:
    """Those of a file that a service writes, if there is one. Its last line may not be whole yet."""
    text = file.read_text() if file.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


@dataclass
class Lab:
    made: Wire
    folder: Path
    services: list[subprocess.Popen[bytes]] = field(default_factory=list)
    socket_folder: Path | None = None
    root: list[str | Path] = field(default_factory=list)
    """Where pins are: in a directory of this lab, as a service reports all that it finds there."""

    def __post_init__(self) -> None:
        self.pins = Path("/sys/fs/bpf") / f"ww-{self.made.receiver}"
        self.root = ["--pin-root", self.pins]

    @property
    def place(self) -> list[str | Path]:
        """Options of the agent that name what is attached here."""
        return ["--interface", self.made.receiver, "--netns", self.made.inside, *self.root]

    @property
    def config(self) -> Path:
        return self.folder / "wirewised.yaml"

    @property
    def socket(self) -> Path:
        return (self.socket_folder or self.folder) / "control.sock"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def entry(self, **more: object) -> dict[str, Any]:
        return {
            "interface": self.made.receiver,
            "netns": self.made.inside,
            "bundle": "first.wirewise",
            "plane": "xdp-native",
            **more,
        }

    def write(self, *entries: dict[str, Any], **more: object) -> None:
        wished = {"version": 1, "interfaces": entries, "socket": {"path": str(self.socket)}, **more}
        new = self.folder / "new"
        new.write_text(json.dumps(wished))
        new.replace(self.config)

    def start(
        self,
        *options: str | Path,
        by: Sequence[str | Path] = (),
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """by : a command that becomes the one behind it."""
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [*by, SERVE, "--config", self.config, *self.root, *options],
                stderr=log,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **(environment or {})},
            )
        self.services.append(process)
        until("it answers", lambda: process.poll() is not None or self.answers())
        assert process.poll() is None, self.log.read_text()
        return process

    def answers(self) -> bool:
        try:
            return asked(Local(self.socket), "GET", "/api/v1/state")[0] == 200
        except OSError:
            return False

    def state(self) -> dict[str, Any]:
        code, body = asked(Local(self.socket), "GET", "/api/v1/state")
        assert code == 200
        return dict(json.loads(body))

    def kept(self, *, interface: str | None = None) -> bool:
        places = [it for it in self.state()["places"] if it["interface"] == (interface or self.made.receiver)]
        return bool(places) and all(place["kept"] for place in places)

    def reload(self) -> tuple[int, Any]:
        code, body = asked(Local(self.socket), "POST", "/api/v1/reload")
        return code, json.loads(body)

    def metrics(self) -> dict[str, float]:
        code, body = asked(Local(self.socket), "GET", "/metrics")
        assert code == 200
        assert body.endswith("# EOF\n")
        samples = (line.rsplit(" ", 1) for line in body.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, value in samples}

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples that have these labels."""
        wanted = [
            f'{label}="{value}"' for label, value in {"interface": self.made.receiver, **labels}.items()
        ]
        fitting = (
            value
            for sample, value in self.metrics().items()
            if sample.split("{")[0] == name and all(label in sample for label in wanted)
        )
        return sum(fitting)

    def look(self, command: str, *options: str) -> dict[str, Any]:
        return agent.call(command, *self.place, *options)

    def attached(self) -> dict[str, Any]:
        (found,) = self.look("status")["attachments"]
        return dict(found)

    def send(self, count: int) -> None:
        def act() -> None:
            with open_sender(self.made.sender) as sender:
                send_all(self.made.sender, sender, [udp(A, B)] * count, burst=1)

        inside_namespace(self.made.outside, act)

    def end(self) -> None:
        for process in self.services:
            if process.poll() is None:
                process.terminate()
                process.wait(PATIENCE_S)
        if self.config.exists():
            for namespace, interface in (
                (self.made.inside, self.made.receiver),
                (self.made.outside, self.made.sender),
            ):
                ps = [shutil.which("pkill") or "pkill", "-KILL", "-f", f"run --interface {interface} "]
                subprocess.run(ps, check=False)
                command = [agent.find(), "detach", "--interface", interface, "--netns", namespace, *self.root]
                subprocess.run(command, check=False, capture_output=True)
        shutil.rmtree(self.pins, ignore_errors=True)


def make_bundles(folder: Path) -> None:
    """Two bundles with the same state, and one with another."""
    for name, features, border in (
        ("first", ["count"], 10),
        ("second", ["count"], 5),
        ("other", ["sum(length)"], 10),
    ):
        feature_set = FeatureSet("counted", features, sharing="shared")
        made = compile(above(border), feature_set, name=name, classes=["benign", "attack"], verify="never")
        made.bundle.write(folder / f"{name}.wirewise")


@contextmanager
def lab_in(folder: Path, bundles: Path) -> Iterator[Lab]:
    for file in bundles.iterdir():
        shutil.copy(file, folder)
    (folder / "drop.yaml").write_text("version: 1\nclasses: {attack: drop}\n")
    (folder / "wrong.yaml").write_text("version: 1\nclasses: {atack: drop}\n")
    with wire() as made:
        lab = Lab(made, folder)
        try:
            yield lab
        finally:
            lab.end()


def token(name: str, role: str) -> tuple[str, dict[str, str]]:
    command = [SERVE, "--config", "/nonexistent", "--new-token", name, "--role", role]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    (secret,) = re.findall(r"once: ([0-9a-f]{64})$", said, re.MULTILINE)
    (digest,) = re.findall(r"sha256: ([0-9a-f]{64})", said)
    return secret, {"name": name, "role": role, "sha256": digest}
