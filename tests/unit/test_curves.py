# SPDX-License-Identifier: Apache-2.0
"""Curves over thresholds, against their definitions; which class is benign; what no other model beats."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import auc

from tests.examples import examples
from wirewise.evaluate.comparison import front
from wirewise.evaluate.curves import MOST_POINTS, curves
from wirewise.evaluate.evaluation import Judged

scored = st.lists(st.tuples(st.booleans(), st.integers(-5, 5)), min_size=2, max_size=60)


@examples(100)
@given(scored)
def test_areas_are_what_they_are_defined_as(flows: list[tuple[bool, int]]) -> None:
    attack, score = (np.array(part) for part in zip(*flows, strict=True))
    found = curves(attack, score, score > 0)
    if found is None:
        assert attack.all() or not attack.any()
        return
    pairs = [(a > b) + (a == b) / 2 for a in score[attack] for b in score[~attack]]
    assert found.auc == pytest.approx(float(np.mean(pairs)))
    average, before = 0.0, 0.0
    for threshold in sorted(set(score.tolist()), reverse=True):
        flagged = score >= threshold
        recall = float((flagged & attack).sum() / attack.sum())
        average += (recall - before) * float((flagged & attack).sum() / flagged.sum())
        before = recall
    assert found.average_precision == pytest.approx(average)
    assert found.roc[0] == (0, 0) and found.roc[-1] == (1, 1)
    flagged, recall, _ = found.at
    assert (flagged, recall) == pytest.approx((np.mean(score[~attack] > 0), np.mean(score[attack] > 0)))
    assert found.thresholds == len(set(score.tolist()))


def test_long_curves_are_thinned_and_keep_their_shape() -> None:
    rng = np.random.default_rng(0)
    attack = rng.random(20_000) < 0.5
    score = np.rint(1e6 * (rng.normal(size=20_000) + attack)).astype(np.int64)
    found = curves(attack, score, score > 0)
    assert found is not None
    for points in (found.roc, found.precision_recall):
        assert 20 < len(points) <= MOST_POINTS
        assert points == sorted(points, key=lambda point: point[0])
    assert auc(*np.array(found.roc).T) == pytest.approx(found.auc, abs=0.002)


rows = st.lists(st.tuples(*[st.integers(-9, 9)] * 3), min_size=1, max_size=30)


@examples(60)
@given(rows, st.permutations(["benign", "flood", "scan"]))
def test_benign_is_class_0_wherever_the_model_has_it(given: list[tuple[int, ...]], names: list[str]) -> None:
    scores = np.array(given)
    said, truth = scores.argmax(axis=1), np.arange(len(scores)) % 3
    judged, ordered = Judged.of(pl.DataFrame(), truth, said, scores, names)
    assert ordered[0] == "benign" and sorted(ordered) == sorted(names)
    assert [ordered[number] for number in judged.said] == [names[number] for number in said]
    assert [ordered[number] for number in judged.truth] == [names[number] for number in truth]
    assert judged.scores is not None
    assert (judged.said[judged.scores > 0] > 0).all() and (judged.said[judged.scores < 0] == 0).all()


@pytest.mark.parametrize("names", [["benign", "attack"], ["attack", "benign"]])
def test_a_single_score_is_turned_towards_attack(names: list[str]) -> None:
    scores = np.array([[-3], [0], [1], [7]])
    said = (scores[:, 0] > 0).astype(np.int64)
    judged, _ = Judged.of(pl.DataFrame(), said, said, scores, names)
    assert judged.scores is not None
    assert ((judged.scores > 0) == (judged.said > 0)).all()


points = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=12)


@examples(100)
@given(points)
def test_the_front_is_what_nothing_beats(given: list[tuple[int, int]]) -> None:
    on = front([(float(price), float(f1)) for price, f1 in given])
    assert any(on)
    for (price, f1), efficient in zip(given, on, strict=True):
        better = [p <= price and f >= f1 and (p, f) != (price, f1) for p, f in given]
        assert efficient != any(better)
