# SPDX-License-Identifier: Apache-2.0
"""The same packets through every plane: one set of verdicts, one set of flows.

The packets come over a real wire, so at the time they come; the features are those that need no time. What a
plane made of them is asked with the commands that an operator has, and compared with a replay of the same
packets.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from tests.e2e import needs
from tests.e2e.planes import PLANES, can_be_sent, made_of, replayed
from tests.parity.cases import observed_values, with_thresholds
from tests.parity.frames import Fuzzer
from wirewise.compiler import compile
from wirewise.feature_sets import FeatureSet
from wirewise.models.random import random_tree_ensemble

pytestmark = [*needs.marks(), pytest.mark.xdist_group("planes")]

CLASSES = ["web", "bulk", "scan"]
FEATURES = [
    "length", "ttl", "protocol", "source_port", "destination_port", "tcp_flags", "direction",
    "count", "sum(payload_length)", "mean(length)", "max(length)", "variance(length)",
]  # fmt: skip
PACKETS = int(os.environ.get("WIREWISE_PLANES_PACKETS", "4000"))
LONGEST = 1514


@cache
def frames(count: int, seed: str = "planes") -> list[bytes]:
    random = Random(seed)
    drawn = (frame for _, frame in Fuzzer(random, damage=0.1, strangers=0.005).packets(count * 2))
    whole = [frame for frame in drawn if can_be_sent(frame, LONGEST)]
    assert len(whole) >= count
    return whole[:count]


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


@pytest.fixture(scope="module")
def of_the_first(bundle: Path) -> tuple[dict[str, Any], list[str]]:
    return made_of("xdp-native", bundle, frames(PACKETS))


@pytest.mark.parametrize("plane", PLANES)
def test_the_same_packets_get_the_same_verdicts(
    plane: str, bundle: Path, expected: dict[str, Any], of_the_first: tuple[dict[str, Any], list[str]]
) -> None:
    statistics, listed = made_of(plane, bundle, frames(PACKETS))
    assert statistics == expected
    assert len(listed) > 10
    assert listed == of_the_first[1]


@pytest.mark.parametrize("plane", ["xdp-native", "tc-ingress"])
def test_both_directions_of_an_interface_meet_in_one_table(
    plane: str, bundle: Path, expected: dict[str, Any], of_the_first: tuple[dict[str, Any], list[str]]
) -> None:
    """Every other portion goes out, of the same flows: as if one direction had brought all."""
    assert made_of(plane, bundle, frames(PACKETS), "--outgoing") == (expected, of_the_first[1])
