# SPDX-License-Identifier: Apache-2.0
"""What the agent compares live flows with: which rows, which flows, which bins."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from wirewise.datasets import Table
from wirewise.evaluate.reference import _edges, reference_of
from wirewise.feature_sets import FeatureSet
from wirewise.models import random_tree_ensemble
from wirewise.targets.ebpf.target import flow_record

MODEL = random_tree_ensemble(np.random.default_rng(1), n_features=3, n_classes=2, tested=[0, 1, 2])
ONE, OTHER = "6 10.0.0.1|80 10.0.0.2|999", "6 10.0.0.1|80 10.0.0.3|999"


def table(key: str = "five-tuple", **options: Any) -> Table:
    """Five packets of two conversations, in both directions."""
    feature_set = FeatureSet.from_dict(
        {"name": "x", "key": key, "features": ["count", "max(length)", "length"], **options}
    )
    frame = pl.DataFrame(
        {
            "capture": ["a"] * 5, "flow": [ONE, ONE, OTHER, ONE, ONE], "sender": [1, 2, 1, 1, 2],
            "label": ["benign"] * 5, "count": [1, 1, 1, 2, 2], "max_length": [60, 70, 80, 90, 100],
            "length": [60, 70, 80, 90, 100],
        }
    )  # fmt: skip
    return Table(frame, feature_set)


@pytest.mark.parametrize(
    ("key", "last"),
    [
        ("five-tuple", [80, 90, 100]),
        ("five-tuple-bidirectional", [80, 100]),
        ("source", [90, 100]),
        ("destination", [80, 90, 100]),
        ("source-destination", [80, 90, 100]),
    ],
)
def test_each_flow_counts_once_as_of_its_last_packet(key: str, last: list[int]) -> None:
    rows = table(key)
    found = reference_of(rows, MODEL, flow_record(rows.feature_set, MODEL))
    assert found is not None
    classes = MODEL.predict(rows.frame.select(rows.feature_set.feature_names).to_numpy())[0]
    assert found.packets == np.bincount(classes, minlength=2).tolist()
    assert sum(found.flows) == len(last)
    count, longest = found.features
    assert longest.name == "max_length", "the length of one packet is not of a flow's state"
    assert (longest.low, longest.high) == (min(last), max(last))
    for histogram in (count, longest):
        assert [sum(bins) for bins in histogram.counts] == found.flows
    # As many values as bins: each has its own.
    assert np.sum(longest.counts, axis=0).tolist() == [1] * len(last)


def test_flows_that_cannot_be_told_apart_give_none() -> None:
    blind = table()
    blind = Table(blind.frame.drop("sender"), blind.feature_set)
    both = table("five-tuple-bidirectional")
    both = Table(both.frame.drop("sender"), both.feature_set)
    tunnels = table(decapsulate=["gtp-u"])
    empty = Table(table().frame.clear(), table().feature_set)
    for rows, known in ((blind, False), (both, True), (tunnels, False), (empty, False)):
        found = reference_of(rows, MODEL, flow_record(rows.feature_set, MODEL))
        assert (found is not None) == known


@examples(200)
@given(st.lists(st.integers(-5, 40) | st.integers(-(2**62), 2**62), min_size=1, max_size=300))
def test_edges_ascend_within_the_range(values: list[int]) -> None:
    edges = _edges(np.array(values, np.int64))
    assert edges == sorted(set(edges)) and len(edges) < 32
    assert all(min(values) < edge <= max(values) for edge in edges)
    assert np.bincount(np.searchsorted(edges, values, side="right")).min() > 0, "no bin is empty"
    # Of many different values, no bin has much more than its quantile.
    if len(set(values)) == len(values) >= 100:
        bins = np.bincount(np.searchsorted(edges, values, side="right"))
        assert bins.max() <= len(values) / 10 + 1


def test_a_value_that_most_flows_have_gets_a_bin_of_its_own() -> None:
    assert _edges(np.array([0] * 95 + [7, 8, 9, 10, 11])) == [7]
    assert _edges(np.array([5] * 10)) == []
