# SPDX-License-Identifier: Apache-2.0
"""What a flow's first packets were, one by one, and what its ends sent again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest

from tests.multiplicity import few
from tests.parity.cases import Case, reading_all_features
from tests.parity.frames import IPV4, IPV6, TCP, TimedFrame, ethernet, ipv4, ipv6, tcp
from tests.parity.harness import Run, assert_agree, needs_kernel
from wirewise.feature_sets import FeatureSet
from wirewise.feature_sets.accumulators import PLACES
from wirewise.feature_sets.sampling import DIRECTIONS
from wirewise.models.random import random_tree_ensemble

MS = 10**6


def conversations(random: Random, packets: int) -> list[TimedFrame]:
    """Four clients talk to a server. Sequence numbers begin anywhere; some segments come again, some late."""
    heads = [
        [random.choice((0, 2**31 - 99, 2**32 - 99, random.getrandbits(32))) for _ in "ab"] for _ in range(4)
    ]
    sent: list[tuple[int, bool, int, int]] = []
    found, time_ns = [], 0
    for _ in range(packets):
        client, back = random.randrange(4), random.random() < 0.4
        size = random.choice((0, 0, 1, 20, 200))
        if sent and random.random() < 0.2:
            client, back, sequence, size = random.choice(sent[-20:])
        else:
            sequence = heads[client][back] = (heads[client][back] + random.choice((0, 0, 0, 200))) % 2**32
            heads[client][back] = (sequence + size) % 2**32
        sent.append((client, back, sequence, size))
        ports = (80, 1000 + client) if back else (1000 + client, 80)
        flags = random.choice((16, 16, 24, 2, 17))
        segment = tcp(*ports, flags, numbers=(sequence, random.getrandbits(32))) + bytes(size)
        if client < 2:
            hosts = (bytes((10, 0, 0, 9)), bytes((10, 0, 0, client)))
            frame = ethernet(ipv4(*(hosts if back else hosts[::-1]), TCP, segment), IPV4)
        else:
            wide = (bytes(15) + b"\x09", bytes(15) + bytes((client,)))
            frame = ethernet(ipv6(*(wide if back else wide[::-1]), TCP, segment), IPV6)
        # Now and then all flows end.
        time_ns += 30_000 * MS if random.random() < 0.004 else random.choice((1000, MS, 60 * MS, 1100 * MS))
        found.append((time_ns, frame))
    return found


def of_place(random: Random) -> list[str]:
    places = sorted(random.sample(PLACES, 4))
    return [
        *(f"at(length, {place})" for place in places),
        *(f"at(payload_length, {place}, direction=backward)" for place in places),
        *(f"at(iat, {place})" for place in (1, 2, 5)),
        "at(length, 2, window=50ms)", "at(ttl, 3, window=1s, previous)",
        "at(length, 2, by=source, window=1s)", "at(own_iat, 2, direction=forward)",
    ]  # fmt: skip


def of_direction(random: Random) -> list[str]:
    windows = ("", ", window=1s", ", window=1s, previous")
    return [
        "own_iat", "max(own_iat)", "mean(own_iat, direction=forward)", "min(own_iat, direction=backward)",
        "variance(own_iat, direction=backward, window=1s)",
        "count(own_iat, direction=forward, window=1s, previous)",
        *(f"repeats(tcp_end, direction={way}{window})" for way in DIRECTIONS for window in windows),
    ]  # fmt: skip


@needs_kernel
@pytest.mark.parametrize(
    ("features_of", "shape", "sharing"),
    few([of_place, of_direction], ["inline", "tail-calls"], ["shared", "per-cpu"], times=2),
)
def test_planes_agree(
    features_of: Callable[[Random], list[str]], shape: str, sharing: str, tmp_path: Path
) -> None:
    random = Random(f"{shape} {sharing}")
    features = features_of(random)
    feature_set = FeatureSet.from_dict(
        {
            "name": "sequences", "key": "five-tuple-bidirectional", "features": features,
            "idle_timeout": "20s", "flow_table": {"sharing": sharing},
        }
    )  # fmt: skip
    rng = np.random.default_rng(random.getrandbits(32))
    drawn = random_tree_ensemble(rng, n_features=len(features), n_classes=2, n_trees=2, depth=3)
    model = reading_all_features(random, drawn)
    case = Case("sequences", feature_set, model, {"version": 1, "classes": {}}, shape=shape)
    runs: list[Run] = []
    assert_agree(case, conversations(random, 3000), tmp_path, seen=runs.append)
    # Each says something.
    assert (runs[0].features.max(axis=0) > 0).all()
