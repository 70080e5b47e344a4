# SPDX-License-Identifier: Apache-2.0
"""Real captures: the reference and the object, wherever it runs, agree on every Ethernet capture there is.

The files under odd/ are malformed, truncated and otherwise unusual, and are read by both sides from the file
itself, so that their two capture readers are compared as well.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from random import Random

import numpy as np
import pytest

from tests.fields import ALONE
from tests.parity import frames as made
from tests.parity.cases import END_OF_PCAP_NS, Case, reading_all_features, with_thresholds
from tests.parity.cases import observed_values as observed
from tests.parity.frames import TimedFrame
from tests.parity.harness import PLANES, XDP_CODES, Comparison, Run, assert_agree, fail, needs_kernel
from wirewise.abi import Status
from wirewise.datasets import read_capture
from wirewise.errors import InputError
from wirewise.fate import Fate
from wirewise.feature_sets import PRESETS, FeatureSet
from wirewise.feature_sets.packet import TUNNELS, parse
from wirewise.models.random import random_tree_ensemble

CAPTURES = Path(__file__).parents[3] / "shared" / "data" / "captures"
FOLDERS = ("attack", "benign", "gtp", "odd", "p2p")
BEGINNING = 100  # packets of a capture
LONGEST = 2048  # bytes of a frame that are run; headers end before

pytestmark = [
    needs_kernel,
    pytest.mark.skipif(not CAPTURES.is_dir(), reason="captures: ../shared/data/captures is not there"),
]

EVERY_FIELD = FeatureSet.from_dict(
    {
        "name": "every-field",
        "key": "five-tuple-bidirectional",
        "decapsulate": list(TUNNELS),
        "idle_timeout": "1m",
        "table_size": 64,
        "features": [
            *ALONE, "own_iat", "repeats(tcp_end, direction=forward)", "repeats(tcp_end, direction=backward)",
            "count", "mean(length)", "variance(iat)", "mean_abs_deviation(ttl)",
            "first(tcp_flags, window=1s)", "sum(payload_length, window=1s, previous)",
            "count(window=1s, previous)", "deviation_from_mean(iat_or_zero)",
        ],
    }
)  # fmt: skip

IN_TUNNELS = FeatureSet.from_dict(
    {
        "name": "in-tunnels",
        "key": "five-tuple+teid",
        "decapsulate": ["gtp-u"],
        "features": [
            "teid", "qfi", "pdu_type", "pdu_direction", "length", "count", "max(qfi, window=500ms)",
            "sum(pdu_direction, by=destination, window=1s)",
            *(f.spec for f in PRESETS["galvao2026"].features),
        ],
    }
)  # fmt: skip


def _ethernet_files() -> list[str]:
    """Captures whose packets are all Ethernet, relative to CAPTURES."""
    if not CAPTURES.is_dir():
        return []
    manifest = json.loads((CAPTURES / "manifest.json").read_text())
    return sorted(entry["path"] for entry in manifest if entry["link_type"] == "ETHERNET")


FILES = _ethernet_files()


def _packets(file: Path) -> tuple[list[TimedFrame], bool]:
    """The packets up to the end or to where the file breaks off, and whether it does."""
    frames: list[TimedFrame] = []
    try:
        for packet in read_capture(file):
            frames.append((packet.time_ns, packet.frame[:LONGEST]))  # noqa: PERF401
    except InputError:
        return frames, True
    return frames, False


def _case(feature_set: FeatureSet, sample: list[TimedFrame]) -> Case:
    random = Random(f"captures/{feature_set.name}")
    model = random_tree_ensemble(
        np.random.default_rng(7), n_features=len(feature_set.features), n_classes=4, n_trees=4, depth=6
    )
    model = with_thresholds(random, reading_all_features(random, model), observed(feature_set, sample))
    policy = {
        "version": 1,
        "classes": {"c1": "drop", "c2": {"action": "rate-limit", "rate": "50/s", "burst": 3}},
    }
    return Case(f"captures/{feature_set.name}", feature_set, model, policy, mode="enforce", kind="captures")


@cache
def _sample() -> list[TimedFrame]:
    """Packets of many captures, to choose thresholds from."""
    return [frame for file in FILES[::10] for frame in _packets(CAPTURES / file)[0][:50]]


@pytest.fixture(
    scope="module",
    # All read a capture alike; `test_folder` has the same packets in the kernel.
    params=[
        pytest.param(("engine",), id="engine"),
        pytest.param(PLANES, marks=pytest.mark.slow, id="everywhere"),
    ],
)
def every_field(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return Comparison(
        _case(EVERY_FIELD, _sample()), tmp_path_factory.mktemp("every-field"), planes=request.param
    )


@pytest.mark.xdist_group("odd captures")
@pytest.mark.parametrize("name", [name for name in FILES if name.startswith("odd/")])
def test_odd_capture(every_field: Comparison, name: str) -> None:
    file = CAPTURES / name
    frames, broken = _packets(file)
    if broken:
        for plane in every_field.planes:
            with pytest.raises(InputError):
                every_field.traced(file, plane)
    elif every_field.compare(every_field.reference(frames), file) is None:
        return
    if frames and every_field.difference(frames):
        fail(every_field, frames)
    assert broken, "the two sides differ on the file, but not on the packets that Python reads from it"


@pytest.mark.parametrize(
    "feature_set",
    [
        EVERY_FIELD,
        *(pytest.param(f, marks=pytest.mark.slow) for f in PRESETS.values()),
    ],
    ids=lambda f: f.name,
)
@pytest.mark.parametrize(
    "most", [BEGINNING, pytest.param(None, marks=pytest.mark.slow)], ids=["begin", "whole"]
)
@pytest.mark.parametrize("folder", FOLDERS)
def test_folder(folder: str, most: int | None, feature_set: FeatureSet, tmp_path: Path) -> None:
    """All captures of a folder one after the other, flows and times as they come. most: packets of each."""
    names = [name for name in FILES if name.startswith(f"{folder}/")]
    frames = [frame for name in names for frame in _packets(CAPTURES / name)[0][:most]]
    frames = [(time_ns, frame) for time_ns, frame in frames if time_ns < END_OF_PCAP_NS]
    comparison = Comparison(_case(feature_set, _sample()), tmp_path)
    if comparison.difference(frames):
        fail(comparison, frames)


def _gtp_frames() -> list[TimedFrame]:
    return [frame for name in FILES if name.startswith("gtp/") for frame in _packets(CAPTURES / name)[0]]


def test_tunnels_of_other_makers(tmp_path: Path) -> None:
    """With the tunnel in the key: all of them, each cut off at every byte, and each in another tunnel."""
    whole = _gtp_frames()
    assert sum(_teid(frame) > 0 for _, frame in whole) > 20
    distinct = {(len(frame), frame[:64]): frame for _, frame in whole if _teid(frame)}
    frames = list(whole)
    now_ns = whole[-1][0]
    for frame in list(distinct.values())[:40]:
        frames += [(now_ns, frame[:end]) for end in range(14, min(len(frame), 130))]
        gtp = bytes.fromhex("34ff00000000002a0000008501100900") + frame[14:]
        outer = made.ipv4(bytes(4), bytes(4), made.UDP, made.udp(2152, 2152, 8 + len(gtp)) + gtp)
        frames.append((now_ns, made.ethernet(outer, made.IPV4)))

    def seen(run: Run) -> None:
        assert Status.MALFORMED_TUNNEL in run.statuses
        broken = run.heads[:, 0] == Status.MALFORMED_TUNNEL
        assert (run.heads[broken, 7] == XDP_CODES[Fate.PASS]).all()

    assert_agree(_case(IN_TUNNELS, whole), frames, tmp_path, seen=seen)


def _teid(frame: bytes) -> int:
    packet = parse(frame, ("gtp-u",))[1]
    return packet.teid if packet else 0
