# SPDX-License-Identifier: Apache-2.0
"""Odd packets of real captures through every plane: malformed, truncated, fragmented, in tunnels. Each gets
the verdict that a replay gives it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random

import numpy as np
import pytest

from tests.e2e import needs
from tests.e2e.planes import LONGEST, MTU, PLANES, SHORTEST, can_be_sent, made_of, replayed
from tests.parity.cases import observed_values, with_thresholds
from tests.parity.test_captures import CAPTURES
from wirewise.compiler import compile
from wirewise.datasets import read_capture
from wirewise.feature_sets import FeatureSet
from wirewise.feature_sets.packet import TUNNELS
from wirewise.models.random import random_tree_ensemble

pytestmark = [
    *needs.marks(),
    pytest.mark.skipif(not CAPTURES.is_dir(), reason="captures: ../shared/data/captures is not there"),
]
FOLDERS = ("odd/", "gtp/")
LARGE_MTU = 3400  # what a driver's frame has room for with native XDP
ONE_BUFFER = ("dpdk",)  # its planes receive what one of its buffers holds
CLASSES = ["web", "bulk", "scan"]
FEATURES = [
    "length", "ttl", "protocol", "source_port", "destination_port", "tcp_flags", "direction",
    "count", "sum(payload_length)", "mean(length)", "max(length)", "variance(length)",
]  # fmt: skip


@cache
def frames() -> tuple[bytes, ...]:
    """Of all captures of Ethernet in those folders, one after the other."""
    manifest = json.loads((CAPTURES / "manifest.json").read_text())
    files = sorted(
        entry["path"]
        for entry in manifest
        if entry["link_type"] == "ETHERNET" and entry["path"].startswith(FOLDERS)
    )
    found = (packet.frame for path in files for packet in read_capture(CAPTURES / path))
    return tuple(frame for frame in found if can_be_sent(frame, LARGE_MTU + SHORTEST))


def for_plane(plane: str) -> tuple[Sequence[bytes], int]:
    """The frames that a plane can carry, and the MTU they need."""
    if plane in ONE_BUFFER:
        return [frame for frame in frames() if len(frame) <= LONGEST], MTU
    return frames(), LARGE_MTU


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    feature_set = FeatureSet.from_dict(
        {
            "name": "odd",
            "key": "five-tuple-bidirectional",
            "decapsulate": list(TUNNELS),
            "table_size": 1 << 16,  # no flow is pushed out
            "idle_timeout": "1h",
            "features": FEATURES,
        }
    )
    model = random_tree_ensemble(
        np.random.default_rng(11), n_features=len(FEATURES), n_classes=len(CLASSES), n_trees=5, depth=6
    )
    timed = [(number, frame) for number, frame in enumerate(frames()[:3000])]
    model = with_thresholds(Random(11), model, observed_values(feature_set, timed))
    path = tmp_path_factory.mktemp("odd") / "odd.wirewise"
    compile(model, feature_set, name="odd", classes=CLASSES, verify="never").bundle.write(path)
    return path


@pytest.fixture(scope="module")
def listed_by_the_first(bundle: Path) -> dict[int, list[str]]:
    """By the number of packets: the flows that the first plane lists."""
    return {}


@pytest.mark.parametrize("plane", PLANES)
def test_odd_packets_get_the_verdicts_of_a_replay(
    plane: str, bundle: Path, listed_by_the_first: dict[int, list[str]]
) -> None:
    packets, mtu = for_plane(plane)
    statistics, listed = made_of(plane, bundle, packets, mtu=mtu)
    assert statistics == replayed(bundle, packets)
    assert len(statistics["status"]) >= 4 and len(listed) > 100
    assert listed == listed_by_the_first.setdefault(len(packets), listed)
