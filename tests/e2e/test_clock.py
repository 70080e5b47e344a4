# SPDX-License-Identifier: Apache-2.0
"""Times between packets, as a live program measures them, against this process's clock."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import pytest

from tests.e2e import needs
from tests.e2e.sending import send_all
from tests.e2e.test_cpus import A, B, udp
from wirewise import agent
from wirewise.compiler import compile
from wirewise.demo.network import inside_namespace, wire, within
from wirewise.demo.sender import open_sender
from wirewise.feature_sets import FeatureSet
from wirewise.models.tree import LEAF, Tree, TreeEnsemble

pytestmark = needs.marks()

PAUSES_S = (0.0, 0.03, 0.001, 0.08)
ROUNDING_US = 1


@pytest.mark.parametrize("sharing", ["shared", "per-cpu"])
def test_times_between_packets_are_those_of_the_wire(sharing: str, tmp_path: Path) -> None:
    """Whichever way the data path reads its clock, before or after it has the flow's entry."""
    features = ["sum(iat)", "max(iat)", "min(iat)", "sum(iat, window=1h)"]
    feature_set = FeatureSet("times", features, sharing=sharing)
    trees = tuple(
        Tree((index, LEAF, LEAF), (0, 0, 0), (1, LEAF, LEAF), (2, LEAF, LEAF), ((), (0,), (0,)))
        for index in range(len(features))
    )
    model = TreeEnsemble(len(features), 2, "majority", trees, 2, (0, 0))
    bundle = tmp_path / "times.wirewise"
    compile(model, feature_set, name="times", classes=["a", "b"], verify="never").bundle.write(bundle)
    moments: list[tuple[int, int]] = []
    with wire() as made:
        agent.call("run", "--interface", made.receiver, "--bundle", bundle, within=within(made.inside))

        def act() -> None:
            with open_sender(made.sender) as sender:
                for pause_s in PAUSES_S:
                    time.sleep(pause_s)
                    before = time.monotonic_ns()
                    send_all(made.sender, sender, [udp(A, B)], burst=1)
                    moments.append((before, time.monotonic_ns()))

        inside_namespace(made.outside, act)
        found = agent.call("flows", "--interface", made.receiver, "--state", within=within(made.inside))
    (flow,) = (flow for flow in found["flows"] if flow["source"] == A[0])
    state = flow["state"]
    assert flow["packets"] == len(PAUSES_S)
    # The packet was seen between the two moments that belong to it.
    times = [
        ((later[0] - earlier[1]) // 1000 - ROUNDING_US, (later[1] - earlier[0]) // 1000 + ROUNDING_US)
        for earlier, later in pairwise(moments)
    ]
    least, most = ([each[end] for each in times] for end in (0, 1))
    assert max(least) <= state["max_iat"] <= max(most)
    assert min(least) <= (1 << 32) - 1 - state["inverted_min_iat"] <= min(most)
    assert sum(least) <= state["sum_iat"] <= sum(most)
    assert state["current_1h.sum_iat"] == state["sum_iat"]
