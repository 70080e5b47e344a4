# SPDX-License-Identifier: Apache-2.0
"""Banks of binary networks: their meaning, their rules, their serialisation, what they cannot become."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from wirewise.errors import InputError
from wirewise.feature_sets import PRESETS, FeatureSet
from wirewise.models import (
    BinaryBank,
    BinaryLayer,
    BinaryMlp,
    BitsInput,
    load,
    random_binary_bank,
    random_binary_mlp,
)
from wirewise.models.rules import INT64_MAX, INT64_MIN
from wirewise.targets import TARGETS, ebpf


def one(bias: tuple[int, int]) -> BinaryMlp:
    """Says yes where the bit of feature 0 is 1 and the biases do not differ."""
    return BinaryMlp(1, 2, (BitsInput(0, 0, 1),), (BinaryLayer((1,), (1,)), BinaryLayer((0, 1), bias)))


def test_a_bank_by_hand() -> None:
    bank = BinaryBank(("low", "mid", "high"), (one((0, 0)), one((0, 1)), one((3, 0))))
    # The hidden neuron is the bit; the outputs agree with 0 and 1; the score is what the second is ahead.
    assert bank.activations([1]) == [[1, 1, 1], [1, 1, 1], [1, 2, -2]]
    assert bank.predict_one([1]) == (1, [1, 2, -2])
    assert bank.predict_one([0]) == (0, [-1, 0, -4])  # even is no
    classes, scores = bank.predict(np.array([[1], [0]]))
    assert classes.tolist() == [1, 0] and scores.tolist() == [[1, 2, -2], [-1, 0, -4]]
    assert bank.favour(2).predict_one([1]) == (0, [-1, 0, -4])
    assert bank.encodings == (one((0, 0)).inputs,) and bank.reads == (3,)
    assert bank.describe() == "bank of 3 binary networks 1-1-2, 1 of 1 features used"


@pytest.mark.parametrize("same_inputs", [True, False])
@pytest.mark.parametrize("extreme", [True, False])
def test_many_rows_mean_what_one_row_means(same_inputs: bool, extreme: bool) -> None:
    rng = np.random.default_rng(5)
    model = random_binary_bank(rng, n_features=5, layers=(9, 70), extreme=extreme, same_inputs=same_inputs)
    ends = [INT64_MIN, -1, 0, 1, 700, 2**31, 2**47, INT64_MAX]
    x = np.where(rng.random((40, 5)) < 0.3, rng.choice(ends, (40, 5)), rng.integers(0, 1500, (40, 5)))
    classes, scores = model.predict(x)
    for row, class_id, of_row in zip(x.tolist(), classes.tolist(), scores.tolist(), strict=True):
        assert model.predict_one(row) == (class_id, of_row)
        each = [network.predict_one(row)[0] for network in model.networks]
        assert [int(score > 0) for score in of_row] == each and class_id == max(each)
    assert load(json.loads(json.dumps(model.to_dict()))) == model


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"networks": ()}, "has 0 networks, allowed are 2 to 64"),
        ({"names": ("a",)}, "has 1 names for 2 networks"),
        ({"names": ("a", "a")}, "network 1: is called a, as one before it"),
        ({"names": ("a", "b c")}, "network 1: is called 'b c'; use letters"),
        ({"networks": (16, (2,), 3)}, "network b: has 3 classes, in a bank all have 2"),
        ({"networks": (16, (3,), 2)}, "network b: its hidden layers are 3, those of a 2; train all with"),
        ({"networks": (16, (), 2)}, "network a: its hidden layers are none"),
        ({"networks": (9, (2,), 2)}, "network b: reads 9 features, a 16"),
    ],
)
def test_broken_rules_are_named(changes: dict[str, Any], message: str) -> None:
    rng = np.random.default_rng(1)
    base = random_binary_mlp(rng, n_features=16, layers=(2,))
    if changes.get("networks"):
        n_features, layers, classes = changes["networks"]
        other = random_binary_mlp(rng, n_features=n_features, layers=layers, n_classes=classes)
        changes = {"networks": (base, other) if layers else (other, other)}
    with pytest.raises(InputError, match=message):
        replace(BinaryBank(("a", "b"), (base, base)), **changes)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("version", 2, "version 2 is unknown"),
        ("n_outputs", 3, "n_outputs must be the number of networks"),
        ("names", 3, "names is not a list"),
        ("networks", [3, {}], "network 0: is not an object"),
        ("other", 1, "has unknown keys: other"),
    ],
)
def test_broken_documents_are_named(key: str, value: object, message: str) -> None:
    document = BinaryBank(("a", "b"), (one((0, 0)), one((0, 1)))).to_dict()
    with pytest.raises(InputError, match=message):
        BinaryBank.from_dict({**document, key: value})


@pytest.mark.parametrize("shape", ["inline", "tail-calls"])
def test_a_bank_has_one_shape(shape: str) -> None:
    model = random_binary_bank(np.random.default_rng(1))
    with pytest.raises(InputError, match="is none for this model: a bank is always functions"):
        ebpf.emit(model, PRESETS["hara2023"], shape=shape)


def test_a_bank_whose_tables_are_too_large_is_refused() -> None:
    model = random_binary_bank(np.random.default_rng(1), networks=64, layers=(256, 256), input_bits=256)
    with pytest.raises(InputError, match=r"64 networks take [0-9.]+ MiB; a program may have 3"):
        ebpf.emit(model, PRESETS["hara2023"])


@pytest.mark.parametrize("target", sorted(TARGETS.keys() - {"ebpf"}))
def test_other_targets_refuse_a_bank(target: str) -> None:
    model = random_binary_bank(np.random.default_rng(1), n_features=1, ranges=(0, 255))
    features = FeatureSet.from_dict({"name": "small", "features": ["ttl"]})
    made: Any = TARGETS[target]
    with pytest.raises(InputError, match="binary-bank"):
        made.emit(model, features, made.options())
