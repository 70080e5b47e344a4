# SPDX-License-Identifier: Apache-2.0
"""Models that know what they do not know: their meaning, their file, their bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from wirewise.datasets import Table
from wirewise.errors import InputError
from wirewise.evaluate.held_out import Parts
from wirewise.evaluate.open_set import choose_from
from wirewise.feature_sets import FeatureSet
from wirewise.models import UNKNOWN, Bound, Bounded, load, random_quantized_mlp, random_tree_ensemble


def model(seed: int = 1, **options: Any) -> Bounded:
    inside = random_tree_ensemble(np.random.default_rng(seed), n_features=3, n_classes=3, **options)
    return Bounded(inside, (Bound(0, 5, 100), Bound(2, 0, 7)))


@examples(50)
@given(st.lists(st.tuples(*[st.integers(-5, 1500)] * 3), min_size=1, max_size=20))
def test_it_says_unknown_outside_and_the_models_class_inside(rows: list[tuple[int, int, int]]) -> None:
    bounded = model()
    classes, scores = bounded.predict(np.array(rows, np.int64))
    inside, same = bounded.model.predict(np.array(rows, np.int64))
    assert (scores == same).all()
    for row, class_id, otherwise in zip(rows, classes, inside, strict=True):
        unknown = not (5 <= row[0] <= 100 and 0 <= row[2] <= 7)
        assert class_id == (3 if unknown else otherwise)
        assert bounded.predict_one(row)[0] == class_id


def test_its_file_gives_it_back() -> None:
    for inside in (model().model, random_quantized_mlp(np.random.default_rng(1), n_features=3)):
        bounded = Bounded(inside, (Bound(1, 0, 0),))
        assert load(bounded.to_dict()) == bounded
        assert load(bounded.to_dict()).digest == bounded.digest != inside.digest
        assert bounded.used_features == tuple(sorted({*inside.used_features, 1}))
        assert "unknown outside the bounds of 1 feature" in bounded.describe()


@pytest.mark.parametrize(
    ("bounds", "part"),
    [
        ([], "missing"),
        ([[1, 0, 5], [0, 0, 5]], "order"),
        ([[0, 0, 5], [0, 0, 5]], "order"),
        ([[3, 0, 5]], "does not exist"),
        ([[0, 6, 5]], "not ascending"),
        ([[0, -1, 5]], "not ascending"),
        ([[0, 0, 1 << 63]], "not ascending"),
        ([[0, 0]], "feature, low and high"),
        ([[0, True, 5]], "not ascending"),
        ("much", "feature, low and high"),
    ],
)
def test_bad_bounds(bounds: object, part: str) -> None:
    with pytest.raises(InputError, match=part):
        load({**model().to_dict(), "bounds": bounds})
    with pytest.raises(InputError, match="family"):
        load({**model().to_dict(), "model": model().to_dict()})


def test_bounds_are_those_of_what_was_learned_and_measured_on_the_rest() -> None:
    feature_set = FeatureSet.from_dict({"name": "x", "features": ["length", "ttl", "tos"]})

    def table(lengths: list[int], labels: list[str]) -> Table:
        frame = pl.DataFrame(
            {
                "capture": ["a.pcap"] * len(lengths), "flow": list(range(len(lengths))), "label": labels,
                "length": lengths, "ttl": [64] * len(lengths), "tos": [0] * len(lengths),
            }
        )  # fmt: skip
        return Table(frame, feature_set)

    learned = table([60, 100, 900], ["benign", "benign", "flood"])
    rest = table([59, 60, 70, 80, 901], ["benign", "benign", "benign", "benign", "flood"])
    inside = random_tree_ensemble(np.random.default_rng(1), n_features=3, n_classes=2, tested=[0, 1])
    parts = Parts(learned, rest, rest, "t", "kept apart", "capture")
    found = choose_from(inside, ["benign", "flood"], parts, quantised=False)
    assert found.bounds == (Bound(0, 60, 900), Bound(1, 64, 64))
    assert (found.rows, found.benign, found.attack) == (3, 0.25, 1.0)
    with pytest.raises(InputError, match="rename it"):
        choose_from(inside, ["benign", UNKNOWN], parts, quantised=False)
