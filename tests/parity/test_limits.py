# SPDX-License-Identifier: Apache-2.0
"""Where things end: sums and times that saturate, a flow table under a flood, models cut into many parts."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest

from tests.parity import frames as packets
from tests.parity.cases import HASH_SEED, SMALL_LIMITS, Case, chain, random_fuzzer, reading_all_features
from tests.parity.frames import TimedFrame
from tests.parity.harness import Run, assert_agree, needs_kernel
from wirewise.errors import InputError
from wirewise.feature_sets import PRESETS, FeatureSet
from wirewise.feature_sets.accumulators import SQUARE_MAX, SUM_MAX
from wirewise.feature_sets.fields import IAT_MAX
from wirewise.models import TreeEnsemble
from wirewise.models.random import random_tree_ensemble
from wirewise.targets import ebpf
from wirewise.targets.ebpf import shapes

HOUR = 3600 * 10**9
PASS = {"version": 1}


def _model(feature_set: FeatureSet) -> TreeEnsemble:
    rng, n = np.random.default_rng(3), len(feature_set.features)
    model = random_tree_ensemble(rng, n_features=n, n_classes=2, n_trees=1, depth=2)
    return reading_all_features(Random(3), model)


def _gtp(teid: int) -> bytes:
    a, b = bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2])
    inner = packets.ipv4(a, b, packets.UDP, packets.udp(1, 2))
    header = b"\x30\xff" + len(inner).to_bytes(2, "big") + teid.to_bytes(4, "big")
    size = 8 + len(header) + len(inner)
    outer = packets.ipv4(a, b, packets.UDP, packets.udp(2152, 2152, size) + header + inner)
    return packets.ethernet(outer, packets.IPV4)


@needs_kernel
def test_sums_squares_and_times_saturate(tmp_path: Path) -> None:
    feature_set = FeatureSet.from_dict(
        {
            "name": "saturation",
            "idle_timeout": "10000h",
            "decapsulate": ["gtp-u"],
            "features": [
                "sum(teid)", "mean(teid)", "variance(teid)", "mean_abs_deviation(teid)",
                "deviation_from_mean(teid)", "sum(iat)", "max(iat)", "variance(iat)", "duration",
                "sum(duration, window=2h, previous)",
            ],
        }
    )  # fmt: skip
    low, high = _gtp(0), _gtp(0xFFFFFFFF)
    frames = [(index * 2 * HOUR, high if index % 3 else low) for index in range(50_000)]

    def check(run: Run) -> None:
        last = run.features[-1].tolist()
        assert last[0] == last[5] == SUM_MAX
        assert last[1] == (SUM_MAX << 16) // 50_000
        assert last[6] == last[8] == IAT_MAX
        state = next(iter(run.flows.values()))["state"]
        assert state["squares_teid"] == state["deviations_teid"] == SQUARE_MAX

    assert_agree(Case("saturation", feature_set, _model(feature_set), PASS), frames, tmp_path, seen=check)


@needs_kernel
def test_first_and_last_moments_of_time(tmp_path: Path) -> None:
    """Time 0, time running backwards, and the latest time a capture can hold."""
    feature_set = FeatureSet.from_dict(
        {
            "name": "moments",
            "idle_timeout": "71m",
            "features": [
                "iat",
                "iat_or_zero",
                "duration",
                "mean(iat, window=1s)",
                "count(window=1s, previous)",
                "count",
            ],
        }
    )
    last = (1 << 32) * 10**9 - 1
    times = [
        0,
        0,
        1,
        0,
        10**9 - 1,
        10**9,
        10**9 + 1,
        5,
        last,
        last,
        0,
        last - 71 * 60 * 10**9,
        last,
        3 * 10**9,
    ]
    frame = packets.ethernet(packets.ipv4(bytes(4), bytes(4), packets.UDP, packets.udp(1, 2)), packets.IPV4)
    frames = [(time_ns, frame) for time_ns in times]
    assert_agree(Case("moments", feature_set, _model(feature_set), PASS), frames, tmp_path)


def _syn(address: int, port: int) -> bytes:
    network = packets.ipv4(
        address.to_bytes(4, "big"), bytes([10, 0, 0, 1]), packets.TCP, packets.tcp(port, 80, 2)
    )
    return packets.ethernet(network, packets.IPV4)


@needs_kernel
def test_a_flood_evicts_no_established_flow(tmp_path: Path) -> None:
    """The table entry by entry, after a flood of spoofed flows 40 times its size within the grace time."""
    feature_set = FeatureSet.from_dict(
        {
            "name": "flood",
            "table_size": 1024,
            "grace": "10s",
            "features": ["count", "mean(length)", "max(iat)"],
        }
    )
    random = Random(1)
    established = [(0x0A000000 + number, 1000 + number) for number in range(64)]
    frames: list[TimedFrame] = [(number, _syn(*flow)) for number, flow in enumerate(established * 4)]
    frames += [
        (10**6 + number * 200_000, _syn(random.getrandbits(32) | 1 << 31, random.getrandbits(16)))
        for number in range(40_000)
    ]

    def check(run: Run) -> None:
        kept = {(flow["source"], flow["source_port"]) for flow in run.flows.values() if flow["packets"] >= 4}
        assert {(f"10.0.0.{address & 255}", port) for address, port in established} <= kept
        assert len(run.flows) == 1024
        assert run.heads[:, 5].sum() == 0  # refused: no bucket holds four established flows, with this seed

    assert_agree(
        Case(f"flood/{HASH_SEED}", feature_set, _model(feature_set), PASS), frames, tmp_path, seen=check
    )


def full_table(*, proven_packets: int) -> tuple[FeatureSet, TreeEnsemble, list[TimedFrame]]:
    """Six flows of five packets each, one after the other, and room for four."""
    feature_set = FeatureSet.from_dict(
        {
            "name": "full",
            "table_size": 4,
            "proven_packets": proven_packets,
            "features": ["count", "mean(length)"],
        }
    )
    flows = [_syn(0x0A000000 + number, 1000) for number in range(6)]
    frames = [(number * 1000, flow) for number, flow in enumerate(flow for flow in flows for _ in range(5))]
    return feature_set, _model(feature_set), frames


@needs_kernel
def test_more_established_flows_than_fit_are_refused(tmp_path: Path) -> None:
    feature_set, model, frames = full_table(proven_packets=4)

    def check(run: Run) -> None:
        assert run.heads[20:, 5].tolist() == [1] * 10
        assert run.heads[20:, 6].tolist() == [1] * 10  # each is the first packet of its flow

    assert_agree(Case("full", feature_set, model, PASS), frames, tmp_path, seen=check)


@needs_kernel
@pytest.mark.parametrize("votes", ["majority", "sum"])
def test_a_model_over_several_programs(votes: str, tmp_path: Path) -> None:
    feature_set = FeatureSet.from_dict(
        {"name": "programs", "features": ["length", "count", "ttl", "tcp_window"]}
    )
    model = random_tree_ensemble(
        np.random.default_rng(1),
        n_features=4,
        n_classes=9,
        n_trees=30,
        depth=6,
        votes=votes,
        one_output_trees=False,
    )  # type: ignore[call-overload]
    case = Case(f"programs/{votes}", feature_set, model, PASS, shape="tail-calls", small_limits=True)
    frames = [
        (number * 1000, frame)
        for number, frame in enumerate(_syn(0x0A000000 + number % 7, number % 3) for number in range(500))
    ]
    comparison = assert_agree(case, frames, tmp_path)
    assert comparison.programs > 4


def test_too_many_nested_functions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SMALL_LIMITS.items():
        monkeypatch.setattr(shapes, name, value)
    feature_set = FeatureSet.from_dict({"name": "chain", "features": ["length"]})
    model = chain(Random(1), 1, depth=200, n_classes=2)
    with pytest.raises(InputError, match="functions inside each other"):
        ebpf.emit(model, feature_set, shape="functions")


@needs_kernel
def test_a_lone_tree_of_64_classes(tmp_path: Path) -> None:
    """Its votes, one of 64, once took more stack than there is."""
    feature_set = PRESETS["hara2026"]
    frames = random_fuzzer(Random(1), feature_set).packets(500)
    model = random_tree_ensemble(
        np.random.default_rng(1), n_classes=64, n_trees=1, depth=7, votes="majority", full=True
    )
    assert len({value for value in model.trees[0].value if value}) > 48
    comparison = assert_agree(Case("lone tree", feature_set, model, PASS), frames, tmp_path)
    assert comparison.shape == "inline"
