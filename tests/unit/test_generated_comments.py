# SPDX-License-Identifier: Apache-2.0
"""What generated C says of itself: a comment that names the wrong feature or weight is worse than none."""

from __future__ import annotations

import re
from random import Random

import numpy as np

from tests.parity.cases import model_of_kind
from wirewise.feature_sets import PRESETS
from wirewise.feature_sets.feature_set import constant_feature
from wirewise.models import QuantizedMlp, TreeEnsemble, random_binary_mlp, random_quantized_mlp
from wirewise.models.binary_mlp import BinaryMlp, BitsInput
from wirewise.targets import ebpf
from wirewise.targets.ebpf.int8_code import SPACING

FEATURES = PRESETS["hara2023"]


def model_header(model: TreeEnsemble | QuantizedMlp | BinaryMlp) -> str:
    return ebpf.emit(model, FEATURES).files["ww_model.h"]


def test_a_test_names_the_feature_and_its_unit() -> None:
    model = model_of_kind("sum of rows", Random(3), FEATURES, [])
    found = re.findall(r"x\[(\d+)\] (.*?) <=", model_header(model))
    constant = {i for i, f in enumerate(FEATURES.features) if constant_feature(f, FEATURES.key) is not None}
    assert {int(index) for index, _ in found} == set(model.used_features) - constant
    for index, comment in found:
        feature = FEATURES.features[int(index)]
        assert comment.startswith(f"/* {feature.name}, {feature.unit}")
        assert comment.endswith(", Q16 */" if feature.fraction_bits else f"{feature.unit} */")


def test_a_row_of_scores_names_its_leaf() -> None:
    model = model_of_kind("sum of rows", Random(3), FEATURES, [])
    text = model_header(model)
    for index, tree in enumerate(model.trees):
        table = re.search(rf"ww_rows_{index}\[.*?}};", text, re.S)
        assert table is not None
        rows = re.findall(r"\{([-\d, ]+)\}, /\* leaf (\d+), node (\d+) \*/", table[0])
        assert [int(leaf) for _, leaf, _ in rows] == list(range(len(rows)))
        assert len(rows) == sum(1 for value in tree.value if value)
        for values, _, node in rows:
            assert tuple(map(int, values.split(","))) == tree.value[int(node)]


def test_a_word_of_weights_names_its_neuron_inputs_and_weights() -> None:
    model = random_quantized_mlp(np.random.default_rng(5), n_features=12, layers=(9, 6), n_classes=3)
    words = re.findall(r"\t(0x\w+)ULL, /\* layer (\d+), neuron (\d+): (-?\d.*) \*/", model_header(model))
    said: dict[tuple[int, int], dict[str, int]] = {}
    for value, layer, neuron, text in words:
        pairs = [pair.split(" ", 1) for pair in text.split(", ")]
        weights = [int(weight) for weight, _ in pairs]
        packings = [
            sum(w << spacing * (lanes - 1 - lane) for lane, w in enumerate(weights)) % (1 << 64)
            for lanes, spacing in SPACING.items()
            if len(weights) <= lanes
        ]
        assert int(value, 16) in packings
        said.setdefault((int(layer), int(neuron)), {}).update({name: int(weight) for weight, name in pairs})
    names = FEATURES.feature_names
    for index, layer_of_model in enumerate(model.layers):
        for j, row in enumerate(layer_of_model.weights):
            comments = said.get((index, j), {})
            for name, weight in zip(names, row, strict=True):
                # A word of zeros is left out, and so is an input that is the same for every packet.
                assert comments.get(name, weight if name not in comments else None) == weight
            assert comments or not any(row)
        names = [f"neuron {j}" for j in range(len(layer_of_model.weights))]


def test_a_table_of_counts_names_its_bits_and_neurons() -> None:
    model = random_binary_mlp(np.random.default_rng(2), n_features=12, layers=(16,), n_classes=2)
    text = model_header(model)
    table = r"word 0: (neuron|score)s .*?\*/\n.*?ww_rows_(\d+)_\d+\[(\d+)\](.*?)};"
    tables = re.findall(table, text, re.S)
    assert {int(layer) for _, layer, _, _ in tables} == {0, 1}
    for kind, layer, rows, body in tables:
        assert kind == ("score" if layer == "1" else "neuron")
        parts = re.findall(r"/\* rows (\d+) to (\d+), (.*?) \*/", body)
        assert [int(first) for first, _, _ in parts] == [0, *(int(last) + 1 for _, last, _ in parts[:-1])]
        assert int(parts[-1][1]) + 1 == int(rows) == len(re.findall(r"^\t\{", body, re.M))
        if layer == "0":
            named = {what.split(",")[0] for _, _, what in parts}
            assert named <= set(FEATURES.feature_names)
            for source in model.inputs:
                if isinstance(source, BitsInput) and FEATURES.feature_names[source.feature] in named:
                    name = FEATURES.feature_names[source.feature]
                    assert any(w.startswith(name) and f"bits {source.shift} to" in w for _, _, w in parts)
