# SPDX-License-Identifier: Apache-2.0
"""The same packets through every plane: one set of verdicts, one set of flows.

The packets come over a real wire, so at the time they come; the features are those that need no time. What a
plane made of them is asked with the commands that an operator has, and compared with a replay of the same
packets.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from tests.e2e import needs
from tests.parity.cases import observed_values, with_thresholds
from tests.parity.frames import Fuzzer
from wirewise import agent
from wirewise.compiler import compile
from wirewise.demo.network import Wire, inside_namespace, wire, within
from wirewise.demo.sender import open_sender
from wirewise.feature_sets import FeatureSet
from wirewise.models.random import random_tree_ensemble

pytestmark = needs.marks()

CLASSES = ["web", "bulk", "scan"]
FEATURES = [
    "length", "ttl", "protocol", "source_port", "destination_port", "tcp_flags", "direction",
    "count", "sum(payload_length)", "mean(length)", "max(length)", "variance(length)",
]  # fmt: skip
PACKETS = int(os.environ.get("WIREWISE_PLANES_PACKETS", "4000"))
SHORTEST = 14  # bytes of a frame that an interface sends
LONGEST = 1514
AT_ONCE = 256  # packets that every queue has room for
PATIENCE = 20  # seconds without any packet
PLANES = [plane["name"] for plane in agent.call("planes")["planes"]] if not needs.missing() else []


@cache
def frames(count: int, seed: str = "planes") -> list[bytes]:
    random = Random(seed)
    drawn = (frame for _, frame in Fuzzer(random, damage=0.1, strangers=0.005).packets(count * 2))
    whole = [frame for frame in drawn if SHORTEST <= len(frame) <= LONGEST and not cut_in_tag(frame)]
    assert len(whole) >= count
    return whole[:count]


def cut_in_tag(frame: bytes) -> bool:
    """Only XDP sees such a frame: the kernel takes tags off, and drops what has not two bytes behind."""
    return len(frame) < SHORTEST + 4 + 2 and frame[12:14] in (b"\x81\x00", b"\x88\xa8")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    feature_set = FeatureSet.from_dict(
        {
            "name": "timeless",
            "key": "five-tuple-bidirectional",
            # No bucket runs full: who is pushed out would depend on the secret of each run's hash.
            "table_size": 1 << (16 if PACKETS <= 10_000 else 20),
            "idle_timeout": "1h",
            "features": FEATURES,
        }
    )
    timed = [(number, frame) for number, frame in enumerate(frames(1000, "thresholds"))]
    model = random_tree_ensemble(
        np.random.default_rng(7), n_features=len(FEATURES), n_classes=len(CLASSES), n_trees=5, depth=6
    )
    model = with_thresholds(Random(7), model, observed_values(feature_set, timed))
    path = tmp_path_factory.mktemp("planes") / "timeless.wirewise"
    compile(model, feature_set, name="timeless", classes=CLASSES, verify="never").bundle.write(path)
    return path


@pytest.fixture(scope="module")
def expected(bundle: Path) -> dict[str, Any]:
    """What a replay says of the packets: status and class of each packet, and the flows."""
    return replayed(bundle, frames(PACKETS))


def replayed(bundle: Path, packets: Sequence[bytes]) -> dict[str, Any]:
    capture = bundle.with_suffix(".pcap")
    with capture.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for number, frame in enumerate(packets):
            file.write(struct.pack("<IIII", 1_700_000_000, number // 1000, len(frame), len(frame)) + frame)
    summary = agent.call("replay", capture, "--bundle", bundle)
    return told(summary)


def told(statistics: dict[str, Any]) -> dict[str, Any]:
    classes = {row["name"]: (row["packets"], row["bytes"]) for row in statistics["classes"]}
    status = {row["status"]: row["packets"] for row in statistics["status"] if row["packets"]}
    return {"classes": classes, "status": status, "new": statistics["flows"]["new"]}


@contextmanager
def running(
    plane: str, bundle: Path, made: Wire, options: Sequence[str] = ()
) -> Iterator[Callable[..., dict[str, Any]]]:
    """The bundle on a plane of the wire; yields what asks the agent."""
    outgoing = plane == "tc-egress"
    namespace, interface = (made.outside, made.sender) if outgoing else (made.inside, made.receiver)
    there = within(namespace)

    def ask(command: str, *options: str) -> dict[str, Any]:
        return agent.call(command, "--interface", interface, *options, within=there)

    run = ["run", "--bundle", str(bundle), "--interface", interface, "--plane", plane, "--yes", *options]
    described = next(it for it in agent.call("planes")["planes"] if it["name"] == plane)
    if described["sees_merged"] or "--outgoing" in options:
        run += ["--offloads", "off"]
    if described["runs_in"] == "the kernel":
        agent.call(*run, within=there)
        try:
            yield ask
        finally:
            ask("detach")
        return
    run += ["--workers", "1"] if plane == "af-packet" else []  # so that one order of packets is judged
    if plane == "af-xdp":  # beside a second interface it sees all, else ARP and the like stay in the kernel
        ip = ["ip", "-n", namespace, "link"]
        subprocess.run([*ip, "add", "wwsink0", "type", "veth", "peer", "name", "wwsink1"], check=True)
        for end in ("wwsink0", "wwsink1"):  # which says nothing by itself
            subprocess.run([*ip, "set", end, "addrgenmode", "none", "up"], check=True)
        run += ["--to", "wwsink0"]
    carrier = subprocess.Popen(
        [*there, agent.find(), *run, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        # It says what it does when packets are carried.
        assert carrier.stdout is not None and carrier.stderr is not None
        first = carrier.stdout.readline()
        assert first, carrier.stderr.read()
        yield ask
    finally:
        carrier.terminate()
        carrier.communicate(timeout=PATIENCE)
    assert carrier.returncode == 0


def send(ends: Sequence[tuple[str, str]], packets: Sequence[bytes], seen: Callable[[], int]) -> None:
    """In portions, each after the last was seen: no queue on the way runs over. ends: the namespaces and
    interfaces that send them, in turn.
    """
    for number, start in enumerate(range(0, len(packets), AT_ONCE)):
        namespace, interface = ends[number % len(ends)]
        part = packets[start : start + AT_ONCE]

        def act(interface: str = interface, part: Sequence[bytes] = part) -> None:
            with open_sender(interface) as sender:
                for frame in part:
                    sender.send(frame)

        inside_namespace(namespace, act)
        deadline = time.monotonic() + PATIENCE
        while seen() < start + len(part):
            assert time.monotonic() < deadline, f"{seen()} of {start + len(part)}"
            time.sleep(0.005)


def total(statistics: dict[str, Any]) -> int:
    unclassified = (row["packets"] for row in statistics["status"] if row["status"] != "classified")
    return sum(row["packets"] for row in statistics["classes"]) + sum(unclassified)


def flows(ask: Callable[..., dict[str, Any]]) -> list[str]:
    """Every flow with its packets, its features and its class; not where it lies, nor its times."""
    kept = (
        "ip_version",
        "source",
        "destination",
        "source_port",
        "destination_port",
        "protocol",
        "packets",
        "class",
    )
    found = ask("flows", "--limit", "100000")["flows"]
    return sorted(json.dumps({key: flow.get(key) for key in kept}) for flow in found)


@pytest.fixture(scope="module")
def of_the_first(bundle: Path) -> tuple[dict[str, Any], list[str]]:
    return made_of("xdp-native", bundle)


def made_of(plane: str, bundle: Path, *options: str) -> tuple[dict[str, Any], list[str]]:
    with wire() as made, running(plane, bundle, made, options) as ask:
        ends = [(made.outside, made.sender)]
        if "--outgoing" in options:
            ends.append((made.inside, made.receiver))
        send(ends, frames(PACKETS), lambda: total(ask("stats")))
        return told(ask("stats")), flows(ask)


@pytest.mark.parametrize("plane", PLANES)
def test_the_same_packets_get_the_same_verdicts(
    plane: str, bundle: Path, expected: dict[str, Any], of_the_first: tuple[dict[str, Any], list[str]]
) -> None:
    statistics, listed = made_of(plane, bundle)
    assert statistics == expected
    assert len(listed) > 10
    assert listed == of_the_first[1]


@pytest.mark.parametrize("plane", ["xdp-native", "tc-ingress"])
def test_both_directions_of_an_interface_meet_in_one_table(
    plane: str, bundle: Path, expected: dict[str, Any], of_the_first: tuple[dict[str, Any], list[str]]
) -> None:
    """Every other portion goes out, of the same flows: as if one direction had brought all."""
    assert made_of(plane, bundle, "--outgoing") == (expected, of_the_first[1])
