# SPDX-License-Identifier: Apache-2.0
"""Simulated rounds as real probes: over a cable between two network namespaces, to a bundle that runs there.

No network is congested here. A probe comes at once and says that it was sent so long ago as the simulated one
took, in units that are longer than the simulation's, so that the cable's own time does not matter.
"""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from examples.tomography.table import DELAYS, LARGEST, UNIT_SLOTS
from examples.tomography.topology import PROBES
from wirewise import agent
from wirewise.demo.kernel_stats import time_runs
from wirewise.demo.network import Wire, inside_namespace, wire, within
from wirewise.demo.sender import open_sender
from wirewise.errors import InputError
from wirewise.feature_sets.probes import PORT, Probe
from wirewise.formats.bundle import Bundle
from wirewise.models import BinaryBank

SLOT_NS = 12_000
ROUND_NS = 10_000_000
KEPT_EVENTS = 2000  # of a CPU, that the agent still finds when all is sent
POLICY = "version: 1\nclasses: {congested: count}\nevents: {rate: 10000/s, burst: 1000}\n"


@dataclass(frozen=True)
class Live:
    """events : of the agent, oldest first. expected : which networks say yes, each time that this changes, by
    the reference. told : the same, by the events. answers : by the reference, (rounds, networks).
    inferred : rounds that the program judged. took_ns : of probes run by hand afterwards, first those that
    make no round whole, then those that do.
    """

    names: tuple[str, ...]
    events: list[dict[str, Any]]
    expected: list[list[str]]
    told: list[list[str]]
    answers: NDArray[np.bool_]
    packets: int
    inferred: int
    took_ns: tuple[list[int], list[int]]


def read_bank(path: Path) -> BinaryBank:
    """Raises InputError unless the bundle has a bank over this example's features."""
    bundle = Bundle.read(path)
    if not isinstance(bundle.model, BinaryBank):
        raise InputError(str(path), "its model is no bank of networks", "compile a folder of .bnn files")
    if bundle.manifest.feature_names != DELAYS or len(bundle.feature_set.paths) != len(DELAYS):
        raise InputError(
            str(path), "reads other features", "compile it with -f examples/tomography/features.yaml"
        )
    return bundle.model


def play(path: Path, delays: NDArray[np.int64], slower: int) -> Live:
    """Sends rounds 10 ms apart and says what became of them. delays : (rounds, 19)."""
    bank = read_bank(path)
    answers = bank.predict(delays)[1] > 0
    with wire() as cable, TemporaryDirectory() as folder:
        policy = Path(folder, "policy.yaml")
        policy.write_text(POLICY, encoding="utf-8")
        interface, there = ["--interface", cable.receiver], within(cable.inside)
        attached = agent.call(
            "run",
            "--bundle",
            path,
            *interface,
            "--plane",
            "xdp-native",
            "--policy",
            policy,
            "--yes",
            within=there,
        )
        try:
            packets = _send(cable, delays, slower)
            events = _events(interface, there)
            stats = agent.call("stats", *interface, within=there)
            took = _timed(Path(attached["status"]["pins"]) / "prog", delays, slower)
        finally:
            agent.call("detach", *interface, within=there)
    return Live(
        names=bank.names,
        events=events,
        expected=_changes(bank.names, answers),
        told=[event["wirewise"]["answers"]["yes"] for event in events],
        answers=answers,
        packets=packets,
        inferred=stats["inferred"],
        took_ns=took,
    )


def _changes(names: Sequence[str], answers: NDArray[np.bool_]) -> list[list[str]]:
    found, before = [], [False] * len(names)
    for row in answers.tolist():
        if row != before:
            found.append([name for name, yes in zip(names, row, strict=True) if yes])
        before = row
    return found


def _send(cable: Wire, delays: NDArray[np.int64], slower: int) -> int:
    """How many probes; what has the largest delay is lost."""
    unit_ns = UNIT_SLOTS * SLOT_NS * slower
    sender = inside_namespace(cable.outside, lambda: open_sender(cable.sender))
    sent, start = 0, time.monotonic_ns()
    with sender:
        for number, row in enumerate(delays.tolist()):
            time.sleep(max(0, start + number * ROUND_NS - time.monotonic_ns()) / 1e9)
            for route, delay in enumerate(row):
                if delay < LARGEST:
                    sent += _probe(sender, number + 1, route, delay, unit_ns)
        # What is missing of the last round is known to be lost when the next one begins.
        return sent + _probe(sender, len(delays) + 1, 0, 0, unit_ns)


def _timed(program: Path, delays: NDArray[np.int64], slower: int) -> tuple[list[int], list[int]]:
    """The rounds once more, none lost, so that each is whole with its last probe."""
    unit_ns, first = UNIT_SLOTS * SLOT_NS * slower, len(delays) + 2
    frames = (
        _frame(first + number, route, delay, unit_ns)
        for number, row in enumerate(delays.tolist())
        for route, delay in enumerate(row)
    )
    took = time_runs(program, frames)
    at = len(PROBES) - 1
    return [ns for index, ns in enumerate(took) if index % len(PROBES) != at], took[at :: len(PROBES)]


def _probe(sender: socket.socket, number: int, route: int, delay: int, unit_ns: int) -> int:
    sender.send(_frame(number, route, delay, unit_ns))
    return 1


def _frame(number: int, route: int, delay: int, unit_ns: int) -> bytes:
    # In the middle of the unit.
    sent_ns = time.monotonic_ns() - delay * unit_ns - unit_ns // 2
    payload = Probe(number, unit_ns, route, sent_ns % (1 << 64)).to_bytes()
    udp = struct.pack(">HHHH", 40_000, PORT, 8 + len(payload), 0) + payload
    ip = struct.pack(
        ">BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, _address(PROBES[route]), _address(0)
    )
    return bytes.fromhex("020000000001 020000000002 0800") + ip + udp


def _address(host: int) -> bytes:
    return bytes((10, 0, 0, host + 1))


def _events(interface: list[str], there: list[str]) -> list[dict[str, Any]]:
    command = [*there, str(agent.find()), "events", *interface, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]
