# SPDX-License-Identifier: Apache-2.0
"""The whole data path under policies: reference against the object in the kernel, packet by packet."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import needs
from tests.multiplicity import few
from tests.parity.harness import PLANES, described
from wirewise import agent
from wirewise.abi import Outcome, Status
from wirewise.compiler import compile
from wirewise.datapath import DataPath, Decision
from wirewise.datasets import CapturedPacket, read_ethernet, write_capture
from wirewise.feature_sets import FeatureSet
from wirewise.feature_sets.flow import seed_from
from wirewise.models import random_tree_ensemble
from wirewise.policy import Policy
from wirewise.traffic import generate

pytestmark = [
    pytest.mark.xdist_group("policies"),
    needs.root,
]

CLASSES = ["benign", "flood", "scan", "other"]
FEATURES = FeatureSet.from_dict(
    {
        "name": "mixed",
        "key": "five-tuple-bidirectional",
        "features": ["length", "mean(length)", "max(iat)", "direction", "count(window=100ms)"],
    }
)
RULES = "classes: {flood: drop, scan: {action: rate-limit, rate: 300/s, burst: 5}, other: count}"
POLICIES = {
    "nothing": "",
    "every": RULES,
    "packets": RULES + "\ntrigger: {packets: [2, 4, 8, 64, 1023]}",
    "interval": RULES + "\ntrigger: {interval: 50ms}",
    "first-n": RULES + "\ntrigger: {first-n: 3}",
    "headers": RULES
    + "\ntrigger: {any: [{port: 53}, {source_port: tcp/443}, {tcp_flags: [syn, not-ack]}, {protocol: icmp}],"
    + " every: 10}",
    "every second": RULES + "\ntrigger: {every: 2}",
    "prefixes": RULES + '\nallow: {prefixes: [0.0.0.0/2, 192.0.2.0/24, "2001:db8::/33"]}',
    "ports": RULES + "\nallow: {ports: [443, tcp/80, udp/53]}",
    "source ports": RULES + "\nallow: {source_ports: [udp/53, tcp/443, 123]}",
    "essential": RULES + "\nessential: drop",
    "established": RULES + "\nallow: {established: true}",
    "denied": RULES
    + "\nallow: {prefixes: [202.0.0.0/8]}"
    + '\ndeny: {prefixes: [128.0.0.0/1, 202.11.0.0/16, "2001:db8:8000::/33"], ports: [tcp/80, 53]}',
    "denied, established": RULES + "\nallow: {established: true}\ndeny: {ports: [443]}",
    "an empty deny list": RULES + "\ndeny: {}",
    "malformed": RULES + "\nmalformed: drop",
    "banned": "classes: {flood: {ban: {by: source, for: 300ms}}, other: count}",
    "banned, spoofable": "classes: {flood: {ban: {by: source, for: 300ms, spoofable: true}},"
    " scan: {action: rate-limit, rate: 300/s, burst: 5, ban: {by: pair, for: 1s, spoofable: true}}}"
    "\nallow: {prefixes: [202.0.0.0/8]}\ndeny: {ports: [53]}",
    "metadata": RULES.replace("other: count", "other: {action: count, after: 2}")
    + "\nmetadata: true\nverdicts: true\ntrigger: {packets: [2, 3, 5, 6, 8]}",
}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = random_tree_ensemble(np.random.default_rng(7), n_features=5, n_classes=4, n_trees=4, depth=5)
    path = tmp_path_factory.mktemp("policies") / "mixed.wirewise"
    compile(model, FEATURES, name="mixed", classes=CLASSES, verify="never").bundle.write(path)
    return path


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[CapturedPacket]]:
    """Generated traffic, one packet in ten cut off or with changed bytes in its headers."""
    rng = np.random.default_rng(11)
    packets = []
    for packet in generate(seed=3, duration_s=5, packets=6000):
        frame = bytearray(packet.frame)
        if rng.random() < 0.05:
            frame = frame[: rng.integers(14, 60)]
        elif rng.random() < 0.05:
            for _ in range(rng.integers(1, 4)):
                frame[rng.integers(12, min(len(frame), 54))] = rng.integers(256)
        packets.append((10**18 + packet.time_ns, bytes(frame)))
        if rng.random() < 0.1:
            packets.append((10**18 + packet.time_ns, _special(rng)))
    path = tmp_path_factory.mktemp("policies") / "mixed.pcap"
    write_capture(path, packets)
    return path, list(read_ethernet(path))


def _special(rng: np.random.Generator) -> bytes:
    """A packet that is essential to a host, or nearly: IPv4 or IPv6 over UDP or ICMP."""
    ports = np.array([53, 66, 67, 68, 123, 443, 546, 547])
    udp = rng.choice(ports, 2).astype(">u2").tobytes() + b"\x00\x28\x00\x00" + bytes(32)
    icmp = bytes([rng.choice([2, 3, 8, 132, 133, 135, 137, 138]), rng.choice([0, 3, 4])]) + bytes(38)
    is_udp, hops = bool(rng.random() < 0.5), int(rng.choice([64, 255]))
    payload = udp if is_udp else icmp
    if rng.random() < 0.5:
        offset = int(rng.choice([0, 0, 0, 1]))
        header = bytes([0x45, 0, 0, 60, 0, 0, 0, offset, hops, 17 if is_udp else 1, 0, 0])
        return bytes(12) + b"\x08\x00" + header + bytes([10, 0, 0, rng.integers(9), 10, 0, 0, 9]) + payload
    header = bytes([0x60, 0, 0, 0, 0, 40, 17 if is_udp else 58, hops])
    return bytes(12) + b"\x86\xdd" + header + bytes(15) + bytes([rng.integers(9)]) + bytes(16) + payload


@pytest.fixture(scope="module")
def reference(
    bundle: Path, capture: tuple[Path, list[CapturedPacket]]
) -> Callable[[str, str], list[dict[str, Any]]]:
    """What the reference makes of the packets under a policy in a mode: once, for all planes."""
    from wirewise.formats.bundle import Bundle

    model = Bundle.read(bundle).model

    @cache
    def run(name: str, mode: str) -> list[dict[str, Any]]:
        path = DataPath(
            FEATURES, model, Policy.parse(_text(name), CLASSES),
            enforce=mode == "enforce", hash_seed=seed_from(5), table_size=256,
        )  # fmt: skip
        return [_as_traced(path.process(captured.frame, captured.time_ns)) for captured in capture[1]]

    return run


def _text(name: str) -> str:
    return f"version: 1\n{POLICIES[name]}\n"


def _as_traced(said: Decision) -> dict[str, Any]:
    flow = said.observation
    return {
        "status": said.status,
        "inferred": said.inferred,
        "class_id": said.class_id or 0,
        "action": said.action or 0,
        "outcome": said.outcome or 0,
        "refused": bool(flow and flow.refused),
        "packets": flow.packets if flow else 0,
        "xdp_return": 1 if said.drops else 2,
        "feature": list(flow.features or []) if flow and said.inferred else [0] * len(FEATURES.features),
        "score": said.scores or [0] * 4,
        **described(said, both_ways=True),
    }


@pytest.mark.parametrize(
    ("name", "mode", "plane"), few(list(POLICIES), ["observe", "enforce"], PLANES, times=2)
)
def test_reference_and_object_agree(
    bundle: Path,
    capture: tuple[Path, list[CapturedPacket]],
    reference: Callable[[str, str], list[dict[str, Any]]],
    tmp_path: Path,
    name: str,
    mode: str,
    plane: str,
) -> None:
    path, packets = capture
    policy = tmp_path / "policy.yaml"
    policy.write_text(_text(name))
    traced = agent.trace(
        path, bundle, n_features=len(FEATURES.features), policy=policy, mode=mode, seed=5, table_size=256,
        plane=plane,
    )  # fmt: skip
    expected = reference(name, mode)
    assert len(traced) == len(expected) == len(packets) > 6000
    differences = []
    columns = {key: traced[key].tolist() for key in expected[0]}
    for number, ours in enumerate(expected):
        theirs = {key: column[number] for key, column in columns.items()}
        if ours != theirs:
            differences.append((number + 1, {k: (ours[k], theirs[k]) for k in ours if ours[k] != theirs[k]}))
    assert not differences, f"{len(differences)} of {len(packets)} differ, the first: {differences[:3]}"
    seen = {(Status(ours["status"]), ours["xdp_return"] == 1) for ours in expected}
    _check_the_policy_did_something(name, mode, seen)


@pytest.mark.parametrize("plane", PLANES)
def test_a_class_observes_for_its_time(
    bundle: Path, capture: tuple[Path, list[CapturedPacket]], tmp_path: Path, plane: str
) -> None:
    """As `wirewised mode` has it: the rest of the policy is enforced all the time."""
    from wirewise.formats.bundle import Bundle

    path, packets = capture
    text = "version: 1\nclasses: {flood: drop, other: {action: rate-limit, rate: 2/s, burst: 1}}\n"
    (tmp_path / "policy.yaml").write_text(text)
    kernel = agent.trace(
        path, bundle, n_features=len(FEATURES.features), policy=tmp_path / "policy.yaml", mode="enforce",
        seed=5, table_size=256, plane=plane, observe=["flood=2s", "other"],
    )  # fmt: skip
    reference = DataPath(
        FEATURES, Bundle.read(bundle).model, Policy.parse(text, CLASSES), enforce=True,
        hash_seed=seed_from(5), table_size=256, observe={"flood": 2 * 10**9, "other": None},
    )  # fmt: skip
    said = [reference.process(captured.frame, captured.time_ns).outcome or 0 for captured in packets]
    assert kernel["outcome"].tolist() == said
    is_late = np.array([packet.time_ns - packets[0].time_ns >= 2 * 10**9 for packet in packets])
    flood, outcomes = kernel["class_id"] == 1, kernel["outcome"]
    assert set(outcomes[flood & ~is_late & (kernel["status"] == 0)]) == {Outcome.WOULD_DROP}
    assert set(outcomes[flood & is_late & (kernel["status"] == 0)]) == {Outcome.DROP}
    assert Outcome.WOULD_LIMIT in outcomes and Outcome.LIMITED not in outcomes


def _check_the_policy_did_something(name: str, mode: str, seen: set[tuple[Status, bool]]) -> None:
    """A comparison of packets that all pass would show nothing."""
    statuses = {status for status, _ in seen}
    drops = {status for status, dropped in seen if dropped}
    assert Status.MALFORMED_IP in statuses and Status.CLASSIFIED in statuses
    assert (Status.ALLOWED_PREFIX in statuses) == (name in ("prefixes", "denied", "banned, spoofable"))
    assert (Status.DENIED_PREFIX in statuses) == (name == "denied")
    assert (Status.DENIED_PORT in statuses) == (name.startswith("denied") or name == "banned, spoofable")
    # Nobody completes a handshake here, so of those who may be forged nobody is banned.
    assert (Status.BANNED in drops) == (name == "banned, spoofable" and mode == "enforce")
    assert (Status.ALLOWED_PORT in statuses) == (name in ("ports", "source ports"))
    assert (Status.ALLOWED_ESSENTIAL in statuses) == (name not in ("nothing", "essential"))
    assert (Status.UNDECIDED in statuses) == (name in ("packets", "headers", "every second", "metadata"))
    assert (Status.CLASSIFIED in drops) == (name != "nothing" and mode == "enforce")
    assert (Status.MALFORMED_IP in drops) == (name == "malformed" and mode == "enforce")
