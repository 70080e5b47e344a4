# SPDX-License-Identifier: Apache-2.0
"""Binary networks: their meaning, their rules, their serialisation."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirewise.errors import InputError
from wirewise.models import BinaryLayer, BinaryMlp, BitsInput, StepsInput, load, random_binary_mlp
from wirewise.models.rules import INT32_MAX, INT64_MAX, INT64_MIN


def small(**changes: Any) -> BinaryMlp:
    """Three bits of feature 0, two steps of feature 2; a hidden layer of two neurons; two classes."""
    fields = {
        "n_features": 3,
        "n_classes": 2,
        "inputs": (BitsInput(0, 1, 3), StepsInput(2, (-4, 10))),
        "layers": (BinaryLayer((0b00101, 0b11111), (3, 4)), BinaryLayer((0b01, 0b10), (0, -1))),
    }
    return BinaryMlp(**{**fields, **changes})


def test_a_network_by_hand() -> None:
    model = small()
    # 13 >> 1 = 6 = 0b110; 10 is above -4, not above 10: bits 0 1 1, 1 0. Neuron 0 wants 1 0 1 0 0 and agrees
    # in the third and the fifth, neuron 1 wants all ones and agrees in three.
    assert model.activations([13, 9, 10]) == [[0, 1, 1, 1, 0], [0, 0], [1, 0]]
    # 5 >> 1 = 2: 0 1 0, and both steps.
    assert model.activations([5, 9, 11]) == [[0, 1, 0, 1, 1], [0, 0], [1, 0]]
    # Clamped to 15: 1 1 1, and neither step.
    assert model.activations([99, 9, -4]) == [[1, 1, 1, 0, 0], [1, 0], [2, -1]]
    assert model.predict_one([99, 9, -4]) == (0, [2, -1])
    assert model.used_features == (0, 2) and model.n_outputs == 2
    assert model.describe() == "binary network 5-2-2, 2 of 3 features used, 2 classes"


def test_ties_go_to_the_lowest_class() -> None:
    model = small(layers=(BinaryLayer((1, 1), (7, 7)),))
    assert model.predict_one([0, 0, 0])[0] == 0


@given(
    st.integers(0, 1 << 32),
    st.integers(1, 12),
    st.lists(st.integers(1, 40), max_size=3),
    st.integers(2, 9),
    st.integers(1, 300),
    st.booleans(),
)
def test_many_rows_mean_what_one_row_means(
    seed: int, n_features: int, layers: list[int], n_classes: int, input_bits: int, extreme: bool
) -> None:
    rng = np.random.default_rng(seed)
    model = random_binary_mlp(
        rng, n_features=n_features, layers=layers, n_classes=n_classes, input_bits=input_bits, extreme=extreme
    )
    ends = [INT64_MIN, -1, 0, 1, 700, 2**31, 2**47, INT64_MAX]
    x = np.where(
        rng.random((20, n_features)) < 0.3,
        rng.choice(ends, (20, n_features)),
        rng.integers(0, 1500, (20, n_features)),
    )
    classes, scores = model.predict(x)
    for row, class_id, of_row in zip(x.tolist(), classes.tolist(), scores.tolist(), strict=True):
        assert model.predict_one(row) == (class_id, of_row)
    assert load(json.loads(json.dumps(model.to_dict()))) == model


def test_agreement_is_half_of_inputs_and_dot_product() -> None:
    rng = np.random.default_rng(3)
    weights, bits = rng.integers(0, 2, 40), rng.integers(0, 2, 40)
    word = sum(int(bit) << k for k, bit in enumerate(weights))
    inputs = tuple(BitsInput(index, 0, 1) for index in range(40))
    model = BinaryMlp(40, 2, inputs, (BinaryLayer((word, 0), (0, 0)),))
    dot = int((2 * weights - 1) @ (2 * bits - 1))
    assert model.predict_one(bits.tolist())[1] == [(40 + dot) // 2, 40 - int(bits.sum())]


LAYER = BinaryLayer((0, 0), (0, 0))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_classes": 65}, "has 65 classes"),
        ({"n_features": 2}, "input 1: reads feature 2, there are 0 to 1"),
        ({"inputs": ()}, "has 0 input bits"),
        ({"inputs": (BitsInput(0, 0, 63),) * 17}, "has 1071 input bits, allowed are 1 to 1024"),
        (
            {"inputs": (BitsInput(0, 60, 4),)},
            "input 0: shift must be 0 to 62, bits 1 or more, together at most",
        ),
        ({"inputs": (BitsInput(0, 0, 0),)}, "input 0: shift must be"),
        ({"inputs": (StepsInput(0, ()),)}, "input 0: thresholds are not one or more"),
        ({"inputs": (StepsInput(0, (1 << 63,)),)}, "input 0: thresholds are not one or more"),
        ({"inputs": (StepsInput(0, (3, 2)),)}, "input 0: thresholds do not ascend"),
        ({"layers": (LAYER,) * 9}, "has 9 layers"),
        ({"layers": (BinaryLayer((0,) * 257, (0,) * 257), LAYER)}, "layer 0: has 257 neurons"),
        ({"layers": (BinaryLayer((0,) * 3, (0,) * 3),)}, "its last layer has 3 neurons, it should have 2"),
        ({"layers": (BinaryLayer((0, 0), (0,)),)}, "layer 0: has 1 thresholds or biases for 2 neurons"),
        ({"layers": (BinaryLayer((0, 32), (0, 0)),)}, "layer 0, neuron 1: its weights are not 5 bits"),
        ({"layers": (BinaryLayer((0, -1), (0, 0)),)}, "layer 0, neuron 1: its weights are not 5 bits"),
        ({"layers": (LAYER, BinaryLayer((0, 1 << 2), (0, 0)))}, "layer 1, neuron 1: its weights are not 2"),
        ({"layers": (BinaryLayer((0, 0), (INT32_MAX + 1, 0)),)}, "layer 0, neuron 0: its threshold or bias"),
    ],
)
def test_broken_rules_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        small(**changes)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("version",), 2, "version 2 is unknown"),
        (("family",), "int8-mlp", "family is 'int8-mlp'"),
        (("inputs",), 0, "inputs is not a list"),
        (("n_outputs",), 1, "n_outputs must be n_classes"),
        (("inputs", 0), {"feature": 0}, "model, input 0: lacks bits, shift"),
        (("inputs", 1), {"feature": 0, "thresholds": 3}, "model, input 1: thresholds is not a list"),
        (("layers", 0), {"weights": [], "bias": []}, "model, layer 0: lacks threshold"),
        (("layers", 1), {"weights": ["x"], "bias": [0]}, "model, layer 1: has weights that are not hexa"),
        (("layers", 1), {"weights": [3], "bias": [0]}, "model, layer 1: has weights that are not hexa"),
    ],
)
def test_broken_documents_are_named(path: tuple[Any, ...], value: object, message: str) -> None:
    document: Any = small().to_dict()
    at = document
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    with pytest.raises(InputError, match=message):
        BinaryMlp.from_dict(document)
