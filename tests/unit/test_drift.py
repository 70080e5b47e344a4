# SPDX-License-Identifier: Apache-2.0
"""Judged flows against those of training: the numbers of the agent, crates/wirewised/src/reading/drift.rs."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest

from wirewise.datasets import Table
from wirewise.evaluate.drift import Drift, FeatureDrift, Level, _expected, _level, _psi, _verdict, drift
from wirewise.evaluate.reference import reference_of
from wirewise.feature_sets import FeatureSet
from wirewise.formats.manifest import Histogram
from wirewise.models import random_tree_ensemble
from wirewise.targets.ebpf.target import flow_record

FEATURES = FeatureSet.from_dict({"name": "x", "features": ["count", "max(length)"]})
MODEL = random_tree_ensemble(np.random.default_rng(1), n_features=2, n_classes=2, tested=[0, 1])


def table(lengths: list[int]) -> Table:
    """A flow of one packet for each length."""
    numbers = range(len(lengths))
    return Table(
        pl.DataFrame(
            {
                "capture": ["a"] * len(lengths), "flow": [f"6 10.0.0.1|{n} 10.0.0.2|999" for n in numbers],
                "sender": [1] * len(lengths), "count": [1] * len(lengths), "max_length": lengths,
            }
        ),
        FEATURES,
    )  # fmt: skip


def found(learned: list[int], here: list[int]) -> Drift:
    reference = reference_of(table(learned), MODEL, flow_record(FEATURES, MODEL))
    assert reference is not None
    rows = table(here)
    said = MODEL.predict(rows.frame.select("count", "max_length").to_numpy())[0].astype(np.int64)
    drifted = drift(reference, rows, said, "five-tuple")
    assert drifted is not None
    return drifted


def test_psi_is_as_by_hand_and_as_in_the_agent() -> None:
    by_hand = 0.2 * math.log(0.7 / 0.5) - 0.2 * math.log(0.3 / 0.5)
    assert _psi(np.array([0.5, 0.5]), np.array([0.7, 0.3])) == pytest.approx(by_hand)
    assert _psi(np.array([1.0, 0.0]), np.array([0.0, 1.0])) > 18.0
    assert [_level(0.2, 0.0), _level(0.2, 0.25), _level(0.3, 0.05), _level(0.05, 0.0)] == [1, 0, 2, 0]


def test_another_mix_of_classes_is_no_drift() -> None:
    histogram = Histogram(name="mine", low=10, high=99, edges=[50], counts=[[90, 0], [0, 10], [0, 0]])
    shares, _ = _expected(histogram, np.array([50, 150, 0]))
    assert shares.tolist() == [0.25, 0.75]
    shares, spread = _expected(histogram, np.array([0, 0, 5]))
    assert (shares.tolist(), spread) == ([0.9, 0.1], 0.01)


def test_the_verdict_is_that_of_the_agent() -> None:
    def verdict(flows: int, *levels: tuple[Level, float]) -> Level | None:
        features = [FeatureDrift("x", level, 0.0, 0.0, outside, 0, 1) for level, outside in levels]
        return _verdict(features, flows)

    like: tuple[Level, float] = ("like-training", 0.0)
    watch: tuple[Level, float] = ("watch", 0.0)
    out: tuple[Level, float] = ("out-of-depth", 0.0)
    assert verdict(100, like, like) == "like-training"
    assert verdict(100, like, watch) == verdict(100, like, like, out) == "watch"
    assert verdict(100, like, out) == verdict(100, like, like, ("out-of-depth", 0.3)) == "out-of-depth"
    assert verdict(99, out) is None and verdict(100) is None


def test_flows_of_the_same_kind_look_like_training_and_others_do_not() -> None:
    rng = np.random.default_rng(0)
    learned = rng.integers(60, 1500, 2000).tolist()
    assert found(learned, rng.integers(60, 1500, 1000).tolist()).level == "like-training"
    jumbo = found(learned, rng.integers(2000, 9000, 1000).tolist())
    first = jumbo.features[0]
    assert jumbo.level == "out-of-depth" and first.name == "max_length" and first.outside == 1.0
    assert "out of its depth; max_length differs most" in jumbo.sentence
    assert found(learned, learned[:50]).level is None


def test_tunnels_are_not_compared() -> None:
    reference = reference_of(table([60, 70]), MODEL, flow_record(FEATURES, MODEL))
    assert reference is not None
    rows = table([60])
    inner = FeatureSet.from_dict(
        {"name": "x", "features": ["count", "max(length)"], "decapsulate": ["vxlan"]}
    )
    assert drift(reference, Table(rows.frame, inner), np.zeros(1, np.int64), "five-tuple") is None
