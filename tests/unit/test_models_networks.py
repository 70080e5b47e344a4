# SPDX-License-Identifier: Apache-2.0
"""int8 and Q16 networks: their meaning, their rules, their serialisation."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirewise.errors import InputError
from wirewise.models import (
    FixedPointLayer,
    FixedPointMlp,
    InputQuantizer,
    InputScaler,
    QuantizedLayer,
    QuantizedMlp,
    load,
    random_fixed_point_mlp,
    random_quantized_mlp,
)
from wirewise.models.network import round_shift
from wirewise.models.rules import INT32_MAX, INT64_MAX, INT64_MIN

PLAIN = InputQuantizer(0, 100, 50, 2, 0)


def int8(**changes: Any) -> QuantizedMlp:
    """Two inputs; one hidden layer of two neurons; one score per class."""
    hidden = QuantizedLayer(((1, 0), (-1, 2)), (0, 5), (1, 3), 1)
    last = QuantizedLayer(((1, 0), (0, 1)), (0, -1), (1, 2), 0)
    fields = {
        "n_features": 2,
        "n_classes": 2,
        "n_outputs": 2,
        "inputs": (PLAIN, PLAIN),
        "layers": (hidden, last),
    }
    return QuantizedMlp(**{**fields, **changes})


def q16(**changes: Any) -> FixedPointMlp:
    one = 1 << 16
    scaler = InputScaler(0, 10, 5, one, 0)
    hidden = FixedPointLayer(((one, -one // 2), (0, one)), (0, one * one), None)
    last = FixedPointLayer(((one, one),), (-(one * one),))
    fields = {
        "n_features": 2,
        "n_classes": 2,
        "n_outputs": 1,
        "inputs": (scaler, scaler),
        "layers": (hidden, last),
    }
    return FixedPointMlp(**{**fields, **changes})


def test_round_shift_rounds_half_up() -> None:
    assert [round_shift(value, 2) for value in (-7, -6, -5, -2, -1, 0, 1, 2, 5, 6, 7)] == [
        -2, -1, -1, 0, 0, 0, 0, 1, 1, 2, 2,
    ]  # fmt: skip
    assert round_shift(-3, 0) == -3


def test_an_int8_network_by_hand() -> None:
    model = int8()
    # inputs (60, 130): (60 - 50) * 2, and 130 clamped to 100: 100. Sums 20 and -20 + 200 + 5 = 185.
    # Hidden: 20 * 1 / 2 = 10; 185 * 3 / 2 = 277.5, clamped to 127. Scores 10 * 1 and (127 - 1) * 2.
    assert model.activations([60, 130]) == [[20, 100], [10, 127], [10, 252]]
    assert model.predict_one([60, 130]) == (1, [10, 252])
    assert model.activations([0, 0])[:2] == [[-100, -100], [0, 0]]
    assert model.describe() == "int8 network 2-2-2, 2 of 2 features used, 2 classes"


def test_a_q16_network_by_hand() -> None:
    one = 1 << 16
    model = q16()
    # 7 - 5 = 2 and 4 - 5 = -1; hidden 2 + 0.5 and max(0, -1 + 1); score 2.5 + 0 - 1.
    assert model.activations([7, 4]) == [[2 * one, -one], [5 * one // 2, 0], [3 * one * one // 2]]
    assert model.predict_one([7, 4])[0] == 1
    capped = q16(layers=(dataclasses.replace(model.layers[0], ceiling=one), model.layers[1]))
    assert capped.activations([7, 4])[1:] == [[one, 0], [0]]
    assert capped.predict_one([7, 4])[0] == 0, "a score of 0 is class 0"
    assert model.describe() == "Q16 network 2-2-1, 2 of 2 features used, 2 classes"


def test_ties_go_to_the_lowest_class() -> None:
    layer = QuantizedLayer(((0, 0),) * 3, (4, 5, 5), (1, 1, 1), 0)
    assert int8(n_classes=3, n_outputs=3, layers=(layer,)).predict_one([0, 0]) == (1, [4, 5, 5])


def test_features_that_make_no_difference_are_not_used() -> None:
    constant, flat = InputQuantizer(0, 100, 50, 0, 0), InputQuantizer(7, 7, 0, 9, 0)
    layer = QuantizedLayer(((1, 1, 0, 1), (1, 1, 0, 2)), (0, 0), (1, 1), 0)
    model = int8(n_features=4, inputs=(constant, PLAIN, PLAIN, flat), layers=(layer,))
    assert model.used_features == (1,)


FAMILIES = st.sampled_from(["int8", "q16", "q16 with ceilings"])
SIZES = st.tuples(
    st.integers(1, 10), st.lists(st.integers(1, 10), max_size=3), st.sampled_from([(2, 1), (2, 2), (7, 7)])
)


def network(family: str, seed: int, size: Any, extreme: bool) -> QuantizedMlp | FixedPointMlp:
    features, layers, (classes, outputs) = size
    common = {
        "n_features": features, "layers": layers, "n_classes": classes, "n_outputs": outputs,
        "ranges": [(0, 1500), (-5, 5), (0, 2**47), (INT64_MAX - 9, INT64_MAX)] * 3, "extreme": extreme,
    }  # fmt: skip
    common["ranges"] = common["ranges"][:features]
    rng = np.random.default_rng(seed)
    if family == "int8":
        return random_quantized_mlp(rng, **common)  # type: ignore[arg-type]
    return random_fixed_point_mlp(rng, ceilings=family != "q16", **common)  # type: ignore[arg-type]


def rows(model: QuantizedMlp | FixedPointMlp, seed: int) -> Any:
    """Rows inside the clamps, at and just past them, and at the ends of int64."""
    rng = np.random.default_rng(seed)
    columns = []
    for one in model.inputs:
        edges = {
            min(max(edge + off, INT64_MIN), INT64_MAX)
            for edge in (one.low, one.high, one.zero)
            for off in (-1, 0, 1)
        }
        inside = rng.integers(one.low, one.high, 8, endpoint=True).tolist()
        columns.append(rng.choice(np.array([*edges, INT64_MIN, INT64_MAX, *inside], np.int64), 16))
    return np.stack(columns, axis=1)


@given(FAMILIES, st.integers(0, 2**32), SIZES, st.booleans())
def test_predict_is_predict_one(family: str, seed: int, size: Any, extreme: bool) -> None:
    model = network(family, seed, size, extreme)
    x = rows(model, seed)
    classes, scores = model.predict(x)
    assert classes.dtype == np.int32 and scores.dtype == np.int64
    assert scores.shape == (len(x), model.n_outputs)
    for row, got, score in zip(x.tolist(), classes.tolist(), scores.tolist(), strict=True):
        assert model.predict_one(row) == (got, score)


@given(FAMILIES, st.integers(0, 2**32), SIZES, st.booleans())
def test_no_sum_leaves_its_bound(family: str, seed: int, size: Any, extreme: bool) -> None:
    model = network(family, seed, size, extreme)
    reach = [layer.reach for layer in model.layers] if isinstance(model, QuantizedMlp) else model.reach
    for row in rows(model, seed).tolist():
        steps = model.activations(row)
        for layer, inputs, most in zip(model.layers, steps, reach, strict=False):
            for weights, bias, bound in zip(layer.weights, layer.bias, most, strict=True):
                total = bias
                for value, weight in zip(inputs, weights, strict=True):
                    total += value * weight
                    assert abs(total) <= bound
                assert bound < (2**31 if isinstance(model, QuantizedMlp) else 2**63)


@given(FAMILIES, st.integers(0, 2**32), SIZES, st.booleans())
def test_unused_features_do_not_matter(family: str, seed: int, size: Any, extreme: bool) -> None:
    model = network(family, seed, size, extreme)
    x = rows(model, seed)
    other = x.copy()
    unused = sorted(set(range(model.n_features)) - set(model.used_features))
    other[:, unused] = rows(model, seed + 1)[:, unused]
    assert (model.predict(x)[1] == model.predict(other)[1]).all()


@given(FAMILIES, st.integers(0, 2**32), SIZES, st.booleans())
def test_survives_json(family: str, seed: int, size: Any, extreme: bool) -> None:
    model = network(family, seed, size, extreme)
    again = load(json.loads(json.dumps(model.to_dict())))
    assert again == model and again.digest == model.digest


def test_random_networks_are_not_trivial() -> None:
    for make in (random_quantized_mlp, random_fixed_point_mlp):
        rng = np.random.default_rng(1)
        model = make(rng, n_classes=4)
        x = rng.integers(0, 1500, (2000, 12))
        classes, scores = model.predict(x)
        assert len(set(classes.tolist())) > 1 and len(np.unique(scores)) > 100
        hidden = np.array([model.activations(row)[1:3] for row in x[:100].tolist()])
        assert (hidden > 0).mean() > 0.2
        assert make(np.random.default_rng(1), n_classes=4) == model


def test_the_largest_networks_are_accepted() -> None:
    rng = np.random.default_rng(2)
    for make in (random_quantized_mlp, random_fixed_point_mlp):
        model = make(rng, n_features=128, layers=(128,) * 7, n_classes=64, extreme=True)
        assert len(model.layers) == 8


# -- rules


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"n_features": 0}, "has 0 features, allowed are 1 to 128"),
        ({"n_features": True}, "features"),
        ({"n_classes": 65}, "has 65 classes"),
        ({"n_classes": 3, "n_outputs": 1}, "1 outputs for 3 classes"),
        ({"n_outputs": 1}, "last layer has 2 neurons, it should have 1"),
        ({"layers": ()}, "has 0 layers"),
        ({"inputs": (PLAIN,)}, "scales 1 inputs, it has 2 features"),
        ({"inputs": (PLAIN, InputQuantizer(1, 0, 0, 1, 0))}, "input 1: low 1 is above high 0"),
        ({"inputs": (PLAIN, InputQuantizer(0, 1, 0, -1, 0))}, "input 1: multiplier"),
        ({"inputs": (PLAIN, InputQuantizer(0, 1, 0, 1, 63))}, "input 1: multiplier"),
        ({"inputs": (PLAIN, InputQuantizer(0, 2**63, 0, 1, 0))}, "input 1: high is not a signed 64-bit"),
        ({"inputs": (PLAIN, InputQuantizer(INT64_MIN, 0, 1, 1, 0))}, "input 1: its product can leave"),
        ({"inputs": (PLAIN, InputQuantizer(0, 2**40, 0, 2**30, 0))}, "input 1: its product can leave"),
        ({"inputs": (PLAIN, InputQuantizer(0, 1.0, 0, 1, 0))}, "input 1: high"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_bad_networks_are_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        int8(**changes)


@pytest.mark.parametrize(
    ("layer", "says"),
    [
        (QuantizedLayer(((128, 0), (0, 0)), (0, 0), (1, 1), 0), "layer 0, neuron 0: has a weight"),
        (QuantizedLayer(((1, 0), (0, -128)), (0, 0), (1, 1), 0), "layer 0, neuron 1: has a weight"),
        (QuantizedLayer(((1, 0), (0,)), (0, 0), (1, 1), 0), "layer 0, neuron 1: has 1 weights for 2 inputs"),
        (QuantizedLayer(((1, 0), (0, 1)), (0,), (1, 1), 0), "layer 0: has 1 biases for 2 neurons"),
        (QuantizedLayer(((1, 0), (0, 1)), (0, 2**31), (1, 1), 0), "layer 0, neuron 1: its bias"),
        (QuantizedLayer(((1, 0), (0, 1)), (0, 0), (1,), 0), "layer 0: has 1 multipliers"),
        (QuantizedLayer(((1, 0), (0, 1)), (0, 0), (1, 0), 0), "layer 0, neuron 1: its multiplier"),
        (QuantizedLayer(((1, 0), (0, 1)), (0, 0), (1, 1), 63), "layer 0: its shift must be 0 to 62"),
        (QuantizedLayer(((0, 0), (1, 1)), (0, INT32_MAX - 253), (1, 1), 0), "neuron 1: its sum can reach"),
        (QuantizedLayer((), (), (), 0), "layer 0: has 0 neurons"),
        (QuantizedLayer(((0, 0),) * 129, (0,) * 129, (1,) * 129, 0), "layer 0: has 129 neurons"),
    ],
)  # fmt: skip
def test_bad_int8_layers_are_refused(layer: QuantizedLayer, says: str) -> None:
    last = QuantizedLayer(((0,) * max(1, len(layer.weights)),) * 2, (0, 0), (1, 1), 0)
    with pytest.raises(InputError, match=says):
        int8(layers=(layer, last))


def test_the_largest_int8_sum_is_accepted() -> None:
    layer = QuantizedLayer(((1, 0), (1, 1)), (0, INT32_MAX - 254), (1, 1), 0)
    assert int8(layers=(layer,)).layers[0].reach[1] == INT32_MAX


def test_the_last_int8_layer_has_no_shift_and_a_single_output_no_multiplier() -> None:
    with pytest.raises(InputError, match="layer 0: its shift must be 0, it is the last"):
        int8(layers=(QuantizedLayer(((1, 0), (0, 1)), (0, 0), (1, 1), 1),))
    with pytest.raises(InputError, match="multiplier of a single output must be 1"):
        int8(n_outputs=1, layers=(QuantizedLayer(((1, 0),), (0,), (2,), 0),))


def test_bad_q16_networks_are_refused() -> None:
    one = q16().inputs[0]
    with pytest.raises(InputError, match="input 1: can reach"):
        q16(inputs=(one, InputScaler(0, 2**31, 0, 1, 0)))
    hidden, last = q16().layers
    with pytest.raises(InputError, match="layer 0: its ceiling"):
        q16(layers=(dataclasses.replace(hidden, ceiling=0), last))
    with pytest.raises(InputError, match="layer 1: its ceiling"):
        q16(layers=(hidden, dataclasses.replace(last, ceiling=5)))
    with pytest.raises(InputError, match="layer 0, neuron 1: has a weight"):
        q16(layers=(dataclasses.replace(hidden, weights=((0, 0), (0, -(2**31)))), last))
    wide = dataclasses.replace(hidden, bias=(0, INT64_MAX - 5 * 2**32 - 2**15))
    assert q16(layers=(wide, dataclasses.replace(last, weights=((1, 1),))))
    wider = dataclasses.replace(hidden, bias=(0, INT64_MAX - 5 * 2**32 - 2**15 + 1))
    with pytest.raises(InputError, match="layer 0, neuron 1: its sum can reach"):
        q16(layers=(wider, dataclasses.replace(last, weights=((1, 1),))))
    with pytest.raises(InputError, match="layer 1, neuron 0: its sum can reach"):
        q16(layers=(wide, last))
    assert q16(layers=(dataclasses.replace(wide, ceiling=2**31), last)), "a ceiling makes room"


@pytest.mark.parametrize("model", [int8(), q16()], ids=["int8", "q16"])
def test_bad_documents_are_refused(model: QuantizedMlp | FixedPointMlp) -> None:
    good = model.to_dict()

    def changed(**changes: Any) -> dict[str, Any]:
        return {**json.loads(json.dumps(good)), **changes}

    for document, says in (
        (changed(version=2), "version 2 is unknown"),
        (changed(more=1), "has unknown keys: more"),
        ({key: value for key, value in good.items() if key != "inputs"}, "lacks inputs"),
        (changed(layers={}), "layers is not a list"),
        (changed(layers=[5]), "layer 0: is not an object"),
        (changed(layers=[{**good["layers"][0], "weights": 5}]), "layer 0: weights is not a list"),
        (changed(layers=[{**good["layers"][0], "weights": [5]}]), "layer 0: weights is not a list"),
        (
            changed(layers=[{**good["layers"][0], "weights": [["1", 0], [0, 0]]}, good["layers"][1]]),
            "layer 0",
        ),
        (changed(inputs=[{}]), "input 0: lacks"),
        (changed(inputs=[{**good["inputs"][0], "low": "0"}] * 2), "input 0: low"),
        (changed(n_features="2"), "has 2 features"),
    ):
        with pytest.raises(InputError, match=says):
            load(document)


def test_rows_of_another_width_are_refused() -> None:
    with pytest.raises(InputError, match="the model reads 2 features"):
        int8().predict(np.zeros((3, 5), np.int64))
    with pytest.raises(InputError, match="features are signed 64-bit integers"):
        int8().predict(np.full((3, 2), "1"))  # type: ignore[arg-type]
