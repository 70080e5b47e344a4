# SPDX-License-Identifier: Apache-2.0
"""The script of docs/start.md, as written there: from captures to packets that an interface drops."""

from __future__ import annotations

import ast
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.e2e import needs
from tests.patience import PATIENCE_S
from wirewise import agent
from wirewise.datasets import write_capture
from wirewise.demo.network import Wire, inside_namespace, wire, within
from wirewise.demo.sender import open_sender, send
from wirewise.traffic import BENIGN, generate

pytestmark = needs.marks()

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "start.md").read_text()
SCRIPT = PAGE.split("```python\n")[1].split("```")[0]
SECOND = 1_000_000_000
ETH_P_ALL = 3


@pytest.fixture
def guarded() -> Iterator[Wire]:
    """A wire whose inner end is named as in the script."""
    with wire() as made:
        ip = ["ip", "-n", made.inside, "link", "set"]
        for words in ([made.receiver, "down"], [made.receiver, "name", "eth0"], ["eth0", "up"]):
            subprocess.run([*ip, *words], check=True)
        try:
            yield made
        finally:
            rows = agent.call("status", within=within(made.inside))["attachments"]
            if any(row["attached"] and row["network_namespace"] is None for row in rows):
                agent.call("detach", "--interface", "eth0", within=within(made.inside))
                pytest.fail("the script left its program on the interface")


def files(folder: Path) -> list[tuple[int, bytes]]:
    """The files the script names, and the attack of another day."""
    labels, policy = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (folder / "labels.yaml").write_text(labels)
    (folder / "policy.yaml").write_text(policy)
    learnt, other = (list(generate(seed=seed, duration_s=4, packets=12_000)) for seed in (1, 2))
    for name, packets in (
        ("normal", [packet for packet in learnt if packet.label == BENIGN]),
        ("attack", [packet for packet in learnt if packet.label not in ("", BENIGN)]),
        ("day", other),
    ):
        write_capture(folder / f"{name}.pcap", ((packet.time_ns, packet.frame) for packet in packets))
    attack = [(packet.time_ns, packet.frame) for packet in other if packet.label not in ("", BENIGN)]
    return [(time_ns - attack[0][0], frame) for time_ns, frame in attack]


def test_it_has_twenty_lines_of_code() -> None:
    lines = {line for node in ast.walk(ast.parse(SCRIPT)) if (line := getattr(node, "lineno", 0))}
    assert len(lines) <= 20 and len(SCRIPT.splitlines()) <= 25


def test_it_drops_packets(guarded: Wire, tmp_path: Path) -> None:
    attack = files(tmp_path)
    paths = os.pathsep.join(filter(None, [str(ROOT / "python"), os.environ.get("PYTHONPATH")]))
    with (
        closing(inside_namespace(guarded.outside, lambda: open_sender(guarded.sender))) as sender,
        closing(inside_namespace(guarded.inside, _listen)) as arrived,
        subprocess.Popen(
            [*within(guarded.inside), sys.executable, "-u", "-c", SCRIPT],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": paths},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        ) as script,
    ):
        assert script.stdout
        said = ""
        while "is guarded" not in said:
            line = script.stdout.readline()
            assert line, f"the script ended: {said}"
            said += line
        send(sender, attack)
        stats = agent.call("stats", "--interface", "eth0", within=within(guarded.inside))
        said += script.stdout.read()
        assert script.wait(timeout=PATIENCE_S) == 0
        passed = _count(arrived)
    dropped = sum(row["outcomes"]["drop"]["packets"] for row in stats["classes"])
    assert dropped > 0.7 * len(attack)
    assert passed + dropped == len(attack)  # what was dropped did not arrive, and the rest did
    assert str(dropped) in said


def _listen() -> socket.socket:
    """What comes behind the program."""
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    opened.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
    opened.bind(("eth0", 0))
    opened.setblocking(False)
    return opened


def _count(arrived: socket.socket) -> int:
    count = 0
    while True:
        try:
            arrived.recv(1)
        except BlockingIOError:
            return count
        count += 1
