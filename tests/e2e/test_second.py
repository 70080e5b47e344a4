# SPDX-License-Identifier: Apache-2.0
"""`wirewise second`: connections of this kernel, judged by a program on the wire, and by a larger model."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.ensemble import VotingClassifier
from sklearn.tree import DecisionTreeClassifier

from tests.e2e import needs
from tests.e2e.serving import until
from tests.patience import PATIENCE_S
from wirewise import agent
from wirewise.compiler import compile
from wirewise.demo.network import Wire, inside_namespace, wire
from wirewise.errors import InputError
from wirewise.feature_sets import FeatureSet
from wirewise.models.tree import LEAF, Tree, TreeEnsemble
from wirewise.second.band import Band
from wirewise.second.live import Place
from wirewise.second.models import Pair

pytestmark = needs.marks()

SERVER = "10.79.0.2"
ATTACKER, VISITOR, FLOODER = "10.79.0.9", "10.79.0.10", "10.79.0.11"
"""Their addresses come after the server's: under a key of both directions they are not `src_ip`."""
SURE, UNSURE = 7001, 7002
"""Ports: of sure attacks; and where the source port tells attacks, which only the larger model knows."""
SPLIT = 50_000
NEVER = 0.5  # seconds for what is dropped
POLICY = """version: 1
classes: {benign: count, attack: {ban: {by: source, for: 60s}}}
deny: {}
trigger: {packets: [3]}
events: {each: flow, features: true}
"""


def small() -> TreeEnsemble:
    """To SURE 100; to UNSURE -10, or -20 where the source port is above SPLIT; to others -1000."""
    tree = Tree(
        feature=(0, LEAF, 0, 1, LEAF, LEAF, LEAF),
        threshold=(SURE, 0, UNSURE, SPLIT, 0, 0, 0),
        left=(1, LEAF, 3, 4, LEAF, LEAF, LEAF),
        right=(2, LEAF, 6, 5, LEAF, LEAF, LEAF),
        value=((), (100,), (), (), (-10,), (-20,), (-1000,)),
        output=None,
    )
    return TreeEnsemble(2, 2, "sum", (tree,), 1, (0,))


@dataclass
class Lab:
    made: Wire
    folder: Path
    open: ExitStack
    ports: int = 40_000
    listeners: dict[int, socket.socket] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for namespace, interface, addresses in (
            (self.made.outside, self.made.sender, (ATTACKER, VISITOR, FLOODER)),
            (self.made.inside, self.made.receiver, (SERVER,)),
        ):
            subprocess.run(["ip", "-n", namespace, "link", "set", interface, "arp", "on"], check=True)
            for address in addresses:
                command = ["ip", "-n", namespace, "addr", "add", f"{address}/24", "dev", interface]
                subprocess.run(command, check=True)
        self.compile("small")
        rows = np.array([[UNSURE, port] for port in (40_000, 60_000)] * 10)
        tree = DecisionTreeClassifier().fit(rows, ["attack", "normal"] * 10)
        # No importer takes a voting classifier.
        voting = VotingClassifier([("tree", tree)], voting="soft").fit(rows, ["attack", "normal"] * 10)
        joblib.dump(voting, self.big)
        for port in (SURE, UNSURE):
            self.listeners[port] = self.open.enter_context(
                closing(
                    inside_namespace(self.made.inside, lambda port=port: socket.create_server((SERVER, port)))
                )
            )

    @property
    def bundle(self) -> Path:
        return self.folder / "small.wirewise"

    @property
    def big(self) -> Path:
        return self.folder / "big.joblib"

    @property
    def place(self) -> list[str]:
        return ["--interface", self.made.receiver, "--netns", self.made.inside]

    def compile(self, name: str) -> None:
        features = ["destination_port", "source_port"]
        given = {"name": "ports", "key": "five-tuple-bidirectional", "features": features}
        feature_set = FeatureSet.from_dict(given)
        made = compile(small(), feature_set, name=name, classes=["benign", "attack"], verify="never")
        made.bundle.write(self.bundle)

    def apply(self, policy: str) -> None:
        file = self.folder / "policy.yaml"
        file.write_text(policy)
        run = ["run", "--bundle", self.bundle, "--policy", file, "--mode", "enforce", "--yes"]
        agent.call(*run, "--outgoing", "--offloads", "off", *self.place)

    def command(self, *options: str) -> list[str]:
        band = "--band=-20:10"
        given = ["second", str(self.big), "--bundle", str(self.bundle), band, *self.place, *options]
        return [sys.executable, "-m", "wirewise", *given]

    def connect(self, source: str, port: int, *, low: bool = True) -> socket.socket:
        """low : from a port up to SPLIT, as attacks are."""
        self.ports += 1
        own = self.ports if low else self.ports + 15_000
        opened = inside_namespace(
            self.made.outside,
            lambda: socket.create_connection(
                (SERVER, port), timeout=PATIENCE_S, source_address=(source, own)
            ),
        )
        return self.open.enter_context(closing(opened))

    def passes(self, client: socket.socket, port: int) -> bool:
        """Whether what a new connection says comes through."""
        server, _ = self.listeners[port].accept()
        with closing(server):
            server.settimeout(NEVER)
            client.sendall(b"hello")
            with suppress(TimeoutError):
                return server.recv(5) == b"hello"
            return False

    def denied(self) -> list[Any]:
        return [
            (one["prefix"], [by["origin"] for by in one["denied_by"]])
            for one in agent.call("deny", "list", *self.place)["prefixes"]
        ]


@contextmanager
def following(command: list[str]) -> Iterator[tuple[subprocess.Popen[str], Iterator[dict[str, Any]]]]:
    """The command, once it follows, and what it says."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout and process.stderr
    try:
        said = []
        for line in process.stderr:
            said.append(line)
            if line.startswith("following"):
                break
        else:
            pytest.fail("".join(said))
        yield process, map(json.loads, process.stdout)
    finally:
        process.kill()
        process.communicate()


def end(process: subprocess.Popen[str], lines: Iterator[dict[str, Any]]) -> dict[str, int]:
    """Ctrl-C, and the counts it ends with."""
    process.send_signal(signal.SIGINT)
    left = list(lines)
    assert process.stderr and (process.wait(PATIENCE_S), process.stderr.read()) == (0, "")
    *_, last = left
    return dict(last["counts"])


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with ExitStack() as opened, wire() as made:
        lab = Lab(made, tmp_path, opened)
        yield lab


def test_an_unsure_attacker_is_denied_once_the_larger_model_says_so(lab: Lab) -> None:
    lab.apply(POLICY)

    # Who observes denies nobody.
    with following(lab.command("--json")) as (process, lines):
        first = lab.connect(ATTACKER, UNSURE)
        said = next(lines)
        assert (said["source"], said["ahead"], said["attack"]) == (ATTACKER, -10, 1.0)
        assert said["fate"] == "would-deny"
        assert lab.denied() == []
        assert lab.passes(first, UNSURE)
        assert end(process, lines)["would-deny"] == 1

    with following(lab.command("--json", "--enforce", "--for", "10m")) as (process, lines):
        visitor = lab.connect(VISITOR, UNSURE, low=False)
        said = next(lines)
        assert (said["source"], said["ahead"], said["fate"]) == (VISITOR, -20, "passes")
        assert lab.passes(visitor, UNSURE)
        lab.connect(FLOODER, SURE)  # which the small model bans by itself
        attacker = lab.connect(ATTACKER, UNSURE)
        said = next(lines)
        assert (said["source"], said["fate"]) == (ATTACKER, "denied")
        assert lab.denied() == [(f"{ATTACKER}/32", ["second"])]
        assert not lab.passes(attacker, UNSURE)
        visitor = lab.connect(VISITOR, UNSURE, low=False)
        assert next(lines)["fate"] == "passes"
        assert lab.passes(visitor, UNSURE)
        counts = end(process, lines)
        assert (counts["denied"], counts["passes"]) == (1, 2)
        assert counts["sure"] >= 1, "the flooder's"
    until("the ban is the small model's", lambda: bool(agent.call("bans", "list", *lab.place)["bans"]))
    (ban,) = agent.call("bans", "list", *lab.place)["bans"]
    assert ban["source"] == f"{FLOODER}/32"


def test_it_says_what_the_policy_must_have(lab: Lab) -> None:
    pair = Pair.read(lab.bundle, lab.big)
    place = Place(lab.made.receiver, lab.made.inside)

    def refused(policy: str) -> str:
        lab.apply(policy)
        with pytest.raises(InputError) as error:
            place.check(pair, Band(-20, 10), spoofable=False)
        return str(error.value)

    assert "its events have no features" in refused(POLICY.replace("features: true", "features: false"))
    assert "write `classes: {benign: count}`" in refused(POLICY.replace("benign: count, ", ""))
    assert "or give --spoofable" in refused(POLICY.replace("{ban: {by: source, for: 60s}}", "drop"))
    assert "`events: {each: flow}`" in refused(POLICY.replace("each: flow, ", ""))
    assert "deny: {}" in refused(POLICY.replace("deny: {}\n", ""))
    lab.apply(POLICY.replace("benign: count, ", ""))
    # Nothing that the class says nothing of is unsure.
    assert place.check(pair, Band(5, 10), spoofable=False) == []
    assert "has its owner denied" in place.check(pair, Band(5, 10), spoofable=True)[0]
    lab.compile("other")
    other = Pair.read(lab.bundle, lab.big)
    with pytest.raises(InputError, match="is not the bundle that runs"):
        place.check(other, Band(5, 10), spoofable=False)
