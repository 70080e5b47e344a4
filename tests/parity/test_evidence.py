# SPDX-License-Identifier: Apache-2.0
"""Classes that count only where there is enough evidence against who sends the flow, on every plane."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.multiplicity import few, seeds
from tests.parity.cases import Case, model_of_kind, random_fuzzer, with_evidence
from tests.parity.frames import TimedFrame, ethernet, ipv4, udp
from tests.parity.harness import Run, assert_agree, needs_kernel
from wirewise.feature_sets import FeatureSet
from wirewise.feature_sets.feature_set import SHARINGS
from wirewise.models.tree import LEAF, Tree, TreeEnsemble

SECOND = 10**9
FEATURES = FeatureSet.from_dict(
    {"name": "evidence", "key": "five-tuple-bidirectional", "features": ["length"]}
)
# IP lengths of packets that the model takes for benign, and for an attack.
LENGTHS = {"-": 60, "x": 150}
CLIENT, SERVER = 9, 1


def case(shape: str, sharing: str, **evidence: Any) -> Case:
    tree = Tree((0, LEAF, LEAF), (100, 0, 0), (1, LEAF, LEAF), (2, LEAF, LEAF), ((), (0,), (1,)))
    model = TreeEnsemble(1, 2, "majority", (tree,), 2, (0, 0))
    policy = {"version": 1, "classes": {"c1": "drop"}, "evidence": evidence}
    return Case("evidence", replace(FEATURES, sharing=sharing), model, policy, "enforce", shape)


def packet(
    said: str, port: int, time_ns: int, *, client: int = CLIENT, server: int = SERVER, reply: bool = False
) -> TimedFrame:
    """A packet between port `port` of a client and port 80 of a server, with this verdict."""
    ends, ports = (bytes((10, 0, 0, client)), bytes((10, 0, 0, server))), (port, 80)
    if reply:
        ends, ports = ends[::-1], ports[::-1]
    payload = udp(*ports, LENGTHS[said] - 20) + bytes(LENGTHS[said] - 28)
    return time_ns, ethernet(ipv4(*ends, 17, payload), 0x0800)


def flows(said: str, *, start: int = 0, apart_ns: int = SECOND, **ends: Any) -> list[TimedFrame]:
    """A packet each of as many flows of a client."""
    return [
        packet(one, 1000 + start + number, SECOND + (start + number) * apart_ns, **ends)
        for number, one in enumerate(said)
    ]


def dropped(case: Case, frames: list[TimedFrame], folder: Path) -> str:
    """Which packets were dropped, on all planes as by the reference."""
    runs: list[Run] = []
    assert_agree(case, frames, folder, seen=runs.append)
    return "".join("x" if action == 1 else "-" for action in runs[0].heads[:, 3])


SEQUENCES: list[tuple[str, dict[str, Any], str]] = [
    # One flow alone is not enough, however sure the model is.
    ("x", {}, "-"),
    # Half of three flows at least: the second makes two of three.
    ("xxxx", {}, "-xxx"),
    ("x-x-x", {}, "--x-x"),
    # A proxy: one client in ten attacks.
    ("---------x---------x", {}, "-" * 20),
    # A sender that begins to attack after twenty benign flows needs about as many as `last` asks for.
    ("-" * 4 + "x" * 6, {"last": 4, "flows": 1}, "-" * 6 + "xxxx"),
    ("xx", {"flows": 1, "last": 1}, "xx"),
    ("x-x", {"threshold": "100%"}, "---"),
    ("xxx", {"threshold": "100%"}, "--x"),
]
"""The model's verdict on each flow of a sender, the policy's evidence, and which flows are dropped."""


@needs_kernel
@pytest.mark.parametrize(("sequence", "shape", "sharing"), few(SEQUENCES, ["inline", "tail-calls"], SHARINGS))
def test_flows_of_a_sender_decide_together(
    tmp_path: Path, sequence: tuple[str, dict[str, Any], str], shape: str, sharing: str
) -> None:
    said, evidence, expected = sequence
    assert dropped(case(shape, sharing, **evidence), flows(said), tmp_path) == expected


@needs_kernel
def test_another_sender_is_another_matter(tmp_path: Path) -> None:
    frames = [*flows("xxx"), *flows("x", start=3, client=8)]
    assert dropped(case("inline", "shared"), frames, tmp_path) == "-xx-"


@needs_kernel
def test_pairs_and_services_have_evidence_of_their_own(tmp_path: Path) -> None:
    frames = [*flows("xxx"), *flows("x", start=3, server=2), *flows("x", start=4, client=8)]
    assert dropped(case("inline", "shared", by="pair"), frames, tmp_path) == "-xx--"
    assert dropped(case("inline", "shared", by="service"), frames, tmp_path) == "-xx-x"


@needs_kernel
def test_a_flow_counts_once_with_its_latest_verdict(tmp_path: Path) -> None:
    same = [packet(said, 1000, SECOND + n) for n, said in enumerate("xxxxxx")]
    assert dropped(case("inline", "shared"), same, tmp_path) == "------"
    # The first flow turns out to be benign, so the second has nothing beside it.
    frames = [
        packet("x", 1000, SECOND), packet("-", 1000, SECOND + 1), packet("x", 1001, SECOND + 2),
        packet("x", 1000, SECOND + 3), packet("x", 1001, SECOND + 4),
    ]  # fmt: skip
    assert dropped(case("inline", "shared"), frames, tmp_path) == "---xx"


@needs_kernel
def test_replies_are_evidence_against_the_client(tmp_path: Path) -> None:
    """The server of an attacked service is not condemned by the flows of its attackers."""
    frames = [
        *(packet("x", 1000 + n, SECOND + n, reply=bool(again)) for n in range(3) for again in (0, 1)),
        packet("x", 80, 2 * SECOND, client=SERVER, server=7),
    ]
    assert dropped(case("inline", "shared"), frames, tmp_path) == "--xxxx-"


@needs_kernel
def test_evidence_is_forgotten(tmp_path: Path) -> None:
    kept = flows("xxx", apart_ns=10 * SECOND)
    late = packet("x", 2000, SECOND + 20 * SECOND + 11 * SECOND)
    assert dropped(case("inline", "shared", within="11s"), [*kept, late], tmp_path) == "-xxx"
    late = packet("x", 2000, SECOND + 20 * SECOND + 11 * SECOND + 10**6)
    assert dropped(case("inline", "shared", within="11s"), [*kept, late], tmp_path) == "-xx-"


@needs_kernel
@pytest.mark.parametrize("days", [1, 26, 51, 5_000])
def test_what_is_forgotten_does_not_come_back(days: int, tmp_path: Path) -> None:
    late = packet("x", 2000, days * 24 * 3600 * SECOND)
    assert dropped(case("inline", "shared", flows=2), [*flows("xxx"), late], tmp_path) == "-xx-"


@needs_kernel
@pytest.mark.parametrize("seed", seeds(1, of=4))
@pytest.mark.parametrize("key", ["five-tuple", "five-tuple-bidirectional", "source-destination", "source"])
def test_planes_agree_on_any_packets(key: str, seed: int, tmp_path: Path) -> None:
    random = Random(f"evidence {key} {seed}")
    feature_set = FeatureSet.from_dict(
        {
            "name": "evidence", "key": key, "features": ["length", "ttl", "count"],
            "table_size": random.choice((4, 64)), "idle_timeout": random.choice(("40ms", "1h")),
            "flow_table": {"sharing": random.choice(SHARINGS)},
        }
    )  # fmt: skip
    frames = random_fuzzer(random, feature_set).packets(1200)
    model = model_of_kind("majority", random, feature_set, frames)
    policy: dict[str, Any] = {
        "version": 1,
        "classes": {
            f"c{index}": random.choice(("drop", "count", "pass", {"action": "drop", "after": 2}))
            for index in range(1, model.n_classes)
        },
        "trigger": random.choice(("every", {"packets": [1, 3]})),
    }
    while "evidence" not in policy:
        policy = with_evidence(random, policy, key)
    case = Case("evidence", feature_set, model, policy, "enforce", "inline")
    assert_agree(case, frames, tmp_path)
