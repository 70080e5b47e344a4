# SPDX-License-Identifier: Apache-2.0
"""`allow: {established: true}`: connections of the host pass where every packet's class is dropped.

With sockets of this kernel: the program sits on the `inside` end of the wire, the world is outside.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import needs
from wirewise import agent
from wirewise.compiler import compile
from wirewise.demo.network import Wire, inside_namespace, wire, within
from wirewise.feature_sets import FeatureSet
from wirewise.models.tree import LEAF, Tree, TreeEnsemble

pytestmark = needs.marks()

TREE = Tree((0, LEAF, LEAF), (0, 0, 0), (1, LEAF, LEAF), (2, LEAF, LEAF), ((), (0,), (1,)))
ALL_ATTACK = TreeEnsemble(1, 2, "majority", (TREE,), 2, (0, 0))
ADDRESSES = {4: ("10.78.0.1", "10.78.0.2"), 6: ("fd78::1", "fd78::2")}
PROMPT = 60.0  # seconds for what comes, however busy the machine is
NEVER = 0.5  # for what is dropped
DROP = "classes: {attack: drop}"
LIMIT = "classes: {attack: {action: rate-limit, rate: 1/m, burst: 1}}"


@dataclass(frozen=True)
class Lab:
    made: Wire
    folder: Path
    version: int

    def __post_init__(self) -> None:
        ends = zip((self.made.outside, self.made.inside), (self.made.sender, self.made.receiver), strict=True)
        for (namespace, interface), address in zip(ends, ADDRESSES[self.version], strict=True):
            switch = Path("/proc/sys/net/ipv6/conf", interface, "disable_ipv6")
            if self.version == 6:
                inside_namespace(namespace, partial(switch.write_text, "0"))
            length = 24 if self.version == 4 else 64
            address_of = ("addr", "add", f"{address}/{length}", "dev", interface)
            nodad = ("nodad",) if self.version == 6 else ()
            for words in (("link", "set", interface, "arp", "on"), (*address_of, *nodad)):
                subprocess.run(["ip", "-n", namespace, *words], check=True)

    @property
    def outside(self) -> str:
        return ADDRESSES[self.version][0]

    @property
    def inside(self) -> str:
        return ADDRESSES[self.version][1]

    @property
    def family(self) -> int:
        return socket.AF_INET if self.version == 4 else socket.AF_INET6

    def apply(self, rule: str, allow: str, mode: str) -> None:
        bundle, policy = self.folder / "all.wirewise", self.folder / "policy.yaml"
        if not bundle.exists():
            features = FeatureSet.from_dict({"name": "count", "key": "source", "features": ["count"]})
            made = compile(ALL_ATTACK, features, name="all", classes=["benign", "attack"], verify="never")
            made.bundle.write(bundle)
        policy.write_text(f"version: 1\n{rule}\n{allow}\n")
        self.call("run", "--bundle", bundle, "--policy", policy, "--mode", mode, "--yes")

    def call(self, command: str, *options: str | Path) -> dict[str, Any]:
        return agent.call(
            command, "--interface", self.made.receiver, *options, within=within(self.made.inside)
        )

    def outcomes(self) -> dict[str, int]:
        counts = self.call("stats")["classes"][1]["outcomes"]
        return {name: count["packets"] for name, count in counts.items() if count["packets"]}

    def listen(self, address: str, port: int) -> socket.socket:
        namespace = self.made.inside if address == self.inside else self.made.outside
        listener = inside_namespace(
            namespace, lambda: socket.create_server((address, port), family=self.family)
        )
        listener.settimeout(PROMPT)
        return listener

    def connect(self, address: str, port: int, timeout: float = PROMPT) -> socket.socket:
        namespace = self.made.outside if address == self.inside else self.made.inside
        return inside_namespace(namespace, lambda: socket.create_connection((address, port), timeout))

    def datagrams(self, address: str, port: int) -> socket.socket:
        namespace = self.made.inside if address == self.inside else self.made.outside
        made = inside_namespace(namespace, lambda: socket.socket(self.family, socket.SOCK_DGRAM))
        made.bind((address, port))
        made.settimeout(NEVER)
        return made


@contextmanager
def lab(folder: Path, version: int) -> Iterator[Lab]:
    with wire() as made:
        yield Lab(made, folder, version)


ESTABLISHED = "allow: {established: true}"


def talk(one: socket.socket, other: socket.socket) -> None:
    for sender, receiver in ((one, other), (other, one)):
        receiver.settimeout(PROMPT)
        sender.sendall(b"x" * 3000)
        received = 0
        while received < 3000:
            received += len(receiver.recv(4096))


@pytest.mark.parametrize("rule", [DROP, LIMIT], ids=["drop", "rate-limit"])
@pytest.mark.parametrize("version", [4, 6])
def test_connections_of_the_host_pass_and_others_do_not(tmp_path: Path, version: int, rule: str) -> None:
    with lab(tmp_path, version) as made:
        made.apply(rule, ESTABLISHED, "observe")
        with closing(made.listen(made.inside, 7000)) as listener:
            accepted_of = made.connect(made.inside, 7000)
            accepted, _ = listener.accept()
            talk(accepted_of, accepted)
            seen = made.outcomes()
            # The SYN, and the ACK that ends the handshake, are of no connection yet.
            would = "would-drop" if rule == DROP else "would-limit"
            assert seen[would] >= 1 and seen["established"] >= 2 and not {"drop", "limited"} & set(seen)

            made.apply(rule, ESTABLISHED, "enforce")
            with closing(made.listen(made.outside, 7001)) as world:
                own = made.connect(made.outside, 7001)
                own_of, _ = world.accept()
                talk(own, own_of)
                talk(accepted, accepted_of)
                # The host ends it, so that its socket waits (TIME_WAIT) when the other end's FIN comes.
                own.close()
                assert own_of.recv(1) == b""
                own_of.close()
            dropped = "drop" if rule == DROP else "limited"
            before = made.outcomes()
            with pytest.raises(TimeoutError):
                made.connect(made.inside, 7000, timeout=NEVER)
            after = made.outcomes()
            assert after[dropped] > before.get(dropped, 0)
            assert after["established"] == before["established"]
            # IPv6 reports its groups when it likes, which is of no connection.
            if rule == DROP and version == 4:
                assert dropped not in before, "all else was of a connection of the host"
            accepted.close()
            accepted_of.close()


@pytest.mark.parametrize("version", [4, 6])
def test_a_udp_socket_counts_if_it_is_connected(tmp_path: Path, version: int) -> None:
    with lab(tmp_path, version) as made:
        made.apply(DROP, ESTABLISHED, "enforce")
        world, stranger = made.datagrams(made.outside, 5300), made.datagrams(made.outside, 5301)
        connected, bound = made.datagrams(made.inside, 5400), made.datagrams(made.inside, 5401)
        with closing(world), closing(stranger), closing(connected), closing(bound):
            connected.connect((made.outside, 5300))
            for sender, port in ((world, 5401), (stranger, 5400), (stranger, 5401), (world, 5400)):
                sender.sendto(b"from %d" % sender.getsockname()[1], (made.inside, port))
            assert connected.recv(100) == b"from 5300"
            for receiver in (connected, bound):
                with pytest.raises(TimeoutError):
                    receiver.recv(100)
        seen = made.outcomes()
        assert set(seen) == {"established", "drop"} and seen["established"] == 1
        assert seen["drop"] == 3 if version == 4 else seen["drop"] >= 3, "IPv6 reports its groups, too"


def test_without_it_not_even_own_connections_pass(tmp_path: Path) -> None:
    with lab(tmp_path, 4) as made:
        made.apply(DROP, "", "enforce")
        with closing(made.listen(made.outside, 7001)), pytest.raises(TimeoutError):
            made.connect(made.outside, 7001, timeout=NEVER)
        assert set(made.outcomes()) == {"drop"}
