# SPDX-License-Identifier: Apache-2.0
"""Flows whose packets meet two CPUs, over a veth pair: packets are received by the CPU that sends them.

Each case runs with tables that CPUs share, where a flow is one flow, and with a table for each CPU, where it
is not: so each would notice if the packets did not meet both.
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import needs
from tests.e2e.sending import send_all
from tests.patience import PATIENCE_S
from wirewise import agent
from wirewise.compiler import compile
from wirewise.demo.network import Wire, inside_namespace, wire, within
from wirewise.demo.sender import open_sender
from wirewise.feature_sets import FeatureSet
from wirewise.models.tree import LEAF, Tree, TreeEnsemble

COUNT = 60
LATE = 11  # packets 50 to 60 of a flow are attack
CLASSES = ["benign", "attack"]


def above(packets: int) -> TreeEnsemble:
    """Attack from the packet after this one of a flow on."""
    tree = Tree((0, LEAF, LEAF), (packets, 0, 0), (1, LEAF, LEAF), (2, LEAF, LEAF), ((), (0,), (1,)))
    return TreeEnsemble(1, 2, "majority", (tree,), 2, (0, 0))


CPUS = sorted(os.sched_getaffinity(0))[:2]


pytestmark = needs.marks(cpus=2)


@dataclass(frozen=True)
class Lab:
    """A bundle attached to one end of a wire. warned: what `run --dry-run` said of its flow tables."""

    made: Wire
    warned: dict[str, Any]

    def look(self, command: str, *options: str) -> dict[str, Any]:
        return agent.call(
            command, "--interface", self.made.receiver, *options, within=within(self.made.inside)
        )

    def attacks(self) -> int:
        return int(self.look("stats")["classes"][1]["packets"])

    def on_cpus(self, shares: Sequence[Sequence[bytes]]) -> None:
        """Sends each share of the frames from a CPU of its own, one after the other."""
        for cpu, frames in zip(CPUS, shares, strict=True):
            self.send(cpu, frames)

    def send(self, cpu: int, frames: Sequence[bytes]) -> None:
        def act() -> None:
            os.sched_setaffinity(0, {cpu})  # of the thread that enters the namespace
            with open_sender(self.made.sender) as sender:
                send_all(self.made.sender, sender, frames)

        inside_namespace(self.made.outside, act)


def write_bundle(path: Path, model: TreeEnsemble, key: str, sharing: str) -> None:
    feature_set = FeatureSet.from_dict(
        {"name": "count", "key": key, "features": ["count"], "flow_table": {"sharing": sharing}}
    )
    compile(model, feature_set, name=path.stem, classes=CLASSES, verify="never").bundle.write(path)


@contextmanager
def lab(folder: Path, key: str, sharing: str) -> Iterator[Lab]:
    bundle, policy = folder / f"{sharing}.wirewise", folder / "policy.yaml"
    write_bundle(bundle, above(COUNT - LATE), key, sharing)
    policy.write_text("version: 1\nclasses: {attack: drop}\n")
    with wire() as made:
        there = within(made.inside)
        run = [
            "run",
            "--bundle",
            bundle,
            "--interface",
            made.receiver,
            "--policy",
            policy,
            "--mode",
            "enforce",
            "--yes",
        ]
        findings = agent.call(*run, "--dry-run", within=there)["findings"]
        agent.call(*run, within=there)
        yield Lab(made, next(f for f in findings if f["check"] == "flow tables"))


def udp(source: tuple[str, int], destination: tuple[str, int]) -> bytes:
    ports = struct.pack(">HHHH", source[1], destination[1], 8 + 20, 0) + bytes(20)
    addresses = socket.inet_aton(source[0]) + socket.inet_aton(destination[0])
    header = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(ports), 0, 0, 64, 17, 0) + addresses
    return bytes((2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1)) + b"\x08\x00" + header + ports


A, B = ("10.77.0.1", 4000), ("10.77.0.2", 53)


def both_directions() -> list[list[bytes]]:
    return [[udp(A, B)] * 30, [udp(B, A)] * 30]


def moved() -> list[list[bytes]]:
    return [[udp(A, B)] * 45, [udp(A, B)] * 15]


def many_connections() -> list[list[bytes]]:
    frames = [udp((A[0], 4000 + number), B) for number in range(COUNT)]
    return [frames[::2], frames[1::2]]


@pytest.mark.parametrize(
    ("key", "traffic"),
    [
        ("five-tuple-bidirectional", both_directions),
        ("five-tuple", moved),
        ("source", many_connections),
    ],
)
def test_a_flow_on_two_cpus_is_one_flow(
    key: str, traffic: Callable[[], list[list[bytes]]], tmp_path: Path
) -> None:
    for sharing, attacks, level in (("shared", LATE, "ok"), ("per-cpu", 0, "warning")):
        with lab(tmp_path, key, sharing) as made:
            made.on_cpus(traffic())
            assert made.attacks() == attacks, sharing
            flows = made.look("flows")["flows"]
            assert [flow["packets"] for flow in flows] == [COUNT] if sharing == "shared" else len(flows) == 2
            assert all((flow["cpu"] is None) == (sharing == "shared") for flow in flows)
            assert made.look("stats")["flows"]["missed"] == 0
            assert made.warned["level"] == level, made.warned
            assert ("sharing: shared" in made.warned.get("remedy", "")) == (level == "warning")


def test_models_follow_each_other_on_a_shared_table(tmp_path: Path) -> None:
    """Swapped in the middle of a flow, and beside each other (`--shadow`)."""
    later = tmp_path / "later.wirewise"
    write_bundle(later, above(54), "five-tuple", "shared")
    with lab(tmp_path, "five-tuple", "shared") as made:
        made.on_cpus([[udp(A, B)] * 15] * 2)
        made.look("swap", "--bundle", str(later))
        made.on_cpus([[udp(A, B)] * 15] * 2)
        assert made.attacks() == 6  # packets 55 to 60
        assert [flow["packets"] for flow in made.look("flows")["flows"]] == [60]
        made.look("swap", "--shadow", "--bundle", str(tmp_path / "shared.wirewise"))
        made.on_cpus([[udp(A, B)] * 20] * 2)
        shadow = made.look("stats")["shadow"]
        # The shadow's tables are new: to it the flow has 40 packets.
        assert (shadow["agree"], shadow["disagree"]) == (0, 40)
        made.look("swap", "--promote")
        made.on_cpus([[udp(A, B)] * 5, [udp(A, B)] * 15])
        assert [flow["packets"] for flow in made.look("flows")["flows"]] == [120]
        assert made.look("stats")["flows"]["missed"] == 0


def test_connections_that_move_between_cpus_are_each_one_flow(tmp_path: Path) -> None:
    """TCP of this kernel; its sender changes the CPU with each write."""
    connections = 5
    for sharing in ("shared", "per-cpu"):
        with lab(tmp_path, "five-tuple", sharing) as made:
            talk(made.made, connections)
            flows = made.look("flows", "--limit", "0")["flows"]
            keys = {(flow["source"], flow["source_port"]) for flow in flows}
            assert len(keys) == connections
            assert (len(flows) == connections) == (sharing == "shared"), sharing


def talk(made: Wire, connections: int) -> None:
    ends = ((made.outside, made.sender, "10.78.0.1/24"), (made.inside, made.receiver, "10.78.0.2/24"))
    for namespace, interface, address in ends:
        for words in (("link", "set", interface, "arp", "on"), ("addr", "add", address, "dev", interface)):
            subprocess.run(["ip", "-n", namespace, *words], check=True)
    listener = inside_namespace(made.inside, lambda: socket.create_server(("10.78.0.2", 7000)))

    def serve() -> None:
        for _ in range(connections):
            with listener.accept()[0] as peer:
                while peer.recv(1 << 16):
                    pass

    def connect() -> None:
        for _ in range(connections):
            with socket.create_connection(("10.78.0.2", 7000), timeout=PATIENCE_S) as client:
                for number in range(10):  # fewer packets than are dropped
                    os.sched_setaffinity(0, {CPUS[number % 2]})
                    client.sendall(bytes(100))

    server = threading.Thread(target=serve, daemon=True)
    server.start()
    inside_namespace(made.outside, connect)
    server.join(10)
    listener.close()
    assert not server.is_alive()
