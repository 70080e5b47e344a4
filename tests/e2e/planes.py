# SPDX-License-Identifier: Apache-2.0
"""A bundle on any plane of a wire, for the tests that treat all planes alike."""

from __future__ import annotations

import json
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e import needs
from tests.patience import PATIENCE_S
from wirewise import agent
from wirewise.demo.network import Wire, inside_namespace, wire, within
from wirewise.demo.sender import one_cpu, open_sender

MTU = 1500
SHORTEST = 14  # bytes of a frame that an interface sends
LONGEST = MTU + SHORTEST
AT_ONCE = 256  # packets that every queue has room for
PLANES = [plane["name"] for plane in agent.call("planes")["planes"]] if not needs.missing() else []


@contextmanager
def running(
    plane: str, bundle: Path, made: Wire, *options: str, driver: str = "net_af_xdp", mtu: int = MTU
) -> Iterator[tuple[Callable[..., dict[str, Any]], subprocess.Popen[str] | None]]:
    """The bundle on a plane of the wire; yields what asks the agent, and the agent where it carries packets.

    driver : of DPDK, if that is the plane. Over the raw socket it has the kernel put fragments together, and
    sees none that lacks a part. mtu : of the wire.
    """
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
            yield ask, None
        finally:
            ask("detach")
        return
    run += ["--workers", "1"] if plane == "af-packet" else []  # so that one order of packets is judged
    run += ["--driver", driver] if plane == "dpdk" else []
    if (plane, driver) == ("dpdk", "net_af_xdp"):
        run += ["--to", _sink(namespace, mtu)]
    with carried([*there, str(agent.find()), *run, "--json"]) as carrier:
        yield ask, carrier


@contextmanager
def carried(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """An agent that carries packets, from when it does until it has ended by itself."""
    carrier = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        # It says what it does when packets are carried.
        assert carrier.stdout is not None and carrier.stderr is not None
        first = carrier.stdout.readline()
        assert first, carrier.stderr.read()
        yield carrier
    finally:
        carrier.terminate()
        carrier.communicate(timeout=PATIENCE_S)
    assert carrier.returncode == 0


def _sink(namespace: str, mtu: int) -> str:
    """A second interface that takes frames as large, and says nothing by itself."""
    ip = ["ip", "-n", namespace, "link"]
    subprocess.run([*ip, "add", "wwsink0", "type", "veth", "peer", "name", "wwsink1"], check=True)
    for end in ("wwsink0", "wwsink1"):
        subprocess.run([*ip, "set", end, "mtu", str(mtu), "addrgenmode", "none", "up"], check=True)
    return "wwsink0"


def can_be_sent(frame: bytes, longest: int = LONGEST) -> bool:
    """Whether an interface sends a frame, and every plane sees it."""
    return SHORTEST <= len(frame) <= longest and not _cut_in_tag(frame)


def _cut_in_tag(frame: bytes) -> bool:
    """Only XDP sees such a frame: the kernel takes tags off, and drops what has not two bytes behind."""
    return len(frame) < SHORTEST + 4 + 2 and frame[12:14] in (b"\x81\x00", b"\x88\xa8")


def replayed(bundle: Path, packets: Sequence[bytes]) -> dict[str, Any]:
    """What a replay says of the packets."""
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


def send(ends: Sequence[tuple[str, str]], packets: Sequence[bytes], seen: Callable[[], int]) -> None:
    """In portions, each after the last was seen: no queue on the way runs over. ends: the namespaces and
    interfaces that send them, in turn.
    """
    for number, start in enumerate(range(0, len(packets), AT_ONCE)):
        namespace, interface = ends[number % len(ends)]
        part = packets[start : start + AT_ONCE]

        def act(interface: str = interface, part: Sequence[bytes] = part) -> None:
            with open_sender(interface) as sender, one_cpu():
                for frame in part:
                    sender.send(frame)

        inside_namespace(namespace, act)
        deadline = time.monotonic() + PATIENCE_S
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


def made_of(
    plane: str, bundle: Path, packets: Sequence[bytes], *options: str, mtu: int = MTU
) -> tuple[dict[str, Any], list[str]]:
    """What a plane says of packets that are sent to it, with options of `run`: statistics, and flows."""
    with wire() as made:
        for namespace, interface in ((made.outside, made.sender), (made.inside, made.receiver)):
            subprocess.run(["ip", "-n", namespace, "link", "set", interface, "mtu", str(mtu)], check=True)
        ends = [(made.outside, made.sender)]
        if "--outgoing" in options:
            ends.append((made.inside, made.receiver))
        with running(plane, bundle, made, *options, mtu=mtu) as (ask, _):
            send(ends, packets, lambda: total(ask("stats")))
            return told(ask("stats")), flows(ask)
