# SPDX-License-Identifier: Apache-2.0
"""Binary networks from plain files."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirewise.errors import InputError
from wirewise.formats import training_file
from wirewise.importers import import_model
from wirewise.importers.binary import to_plain
from wirewise.models import BinaryBank, BitsInput, random_binary_mlp

PLAIN: dict[str, Any] = {
    "format": "wirewise-binary",
    "version": 1,
    "classes": ["normal", "attack"],
    "features": ["length", "ttl"],
    "inputs": [{"feature": "ttl", "shift": 0, "bits": 2}, {"feature": "length", "thresholds": [100, 1000]}],
    "layers": [
        {"weights": [[1, -1, 1, 1], [-1, -1, -1, -1], [1, 1, 1, 1]], "threshold": [3, 2, 4]},
        {"weights": [[1, 1, -1], [-1, 1, 1]], "bias": [0, 1]},
    ],
}


def written(folder: Path, document: Any) -> Path:
    path = folder / "network.bnn"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def test_a_file_by_hand(tmp_path: Path) -> None:
    imported = import_model(written(tmp_path, PLAIN))
    model = imported.model
    assert (imported.classes, imported.feature_names) == (["normal", "attack"], ["length", "ttl"])
    # ttl 1: bits 1 0; length 500: 1 0. Agreements 3, 2, 2; then 1 1 0: 3 with the first class, 1 + 1.
    assert model.predict_one([500, 1]) == (0, [3, 2])
    assert model.used_features == (0, 1)
    rows = np.array([[length, ttl] for length in (0, 101, 1001) for ttl in range(5)])
    np.testing.assert_array_equal(model.predict(rows)[0], imported.predict(rows))
    assert import_model(written(tmp_path, PLAIN), classes=["a", "b"]).classes == ["a", "b"]


@given(st.integers(0, 1 << 32), st.booleans())
def test_what_a_model_says_survives_the_file(
    tmp_path_factory: pytest.TempPathFactory, seed: int, extreme: bool
) -> None:
    rng = np.random.default_rng(seed)
    model = random_binary_mlp(rng, n_features=4, layers=(9, 5), n_classes=3, input_bits=40, extreme=extreme)
    names, fan_in, layers = ["a", "b", "c", "d"], model.input_bits, []
    for index, layer in enumerate(model.layers):
        weights = [[1 if word >> k & 1 else -1 for k in range(fan_in)] for word in layer.weights]
        layers.append({"weights": weights, "threshold" if index < 2 else "bias": list(layer.threshold)})
        fan_in = len(weights)
    inputs = [
        {"feature": names[one.feature], "shift": one.shift, "bits": one.bits}
        if isinstance(one, BitsInput)
        else {"feature": names[one.feature], "thresholds": list(one.thresholds)}
        for one in model.inputs
    ]
    document = PLAIN | {"classes": ["x", "y", "z"], "features": names, "inputs": inputs, "layers": layers}
    imported = import_model(written(tmp_path_factory.mktemp("bnn"), document))
    assert imported.model == model
    rows = rng.integers(0, 2000, (50, 4))
    np.testing.assert_array_equal(model.predict(rows)[0], imported.predict(rows))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("format",), "larq", "is 'larq' version 1; write 'wirewise-binary', version 1"),
        (("version",), 2, "version 2; write"),
        (("comment",), "", "the file has unknown comment"),
        (("features",), ["a", "a"], "features are not distinct names"),
        (("features",), "length", "features: is no list"),
        (("classes",), ["one"], "has a single class"),
        (("inputs", 0), 7, "input 0 is no object"),
        (("inputs", 0, "feature"), "port", "input 0: unknown feature 'port'"),
        (("inputs", 0, "bits"), "2", "input 0: shift must be 0 to 62"),
        (("inputs", 0, "bits"), 64, "input 0: shift must be 0 to 62"),
        (("inputs", 1, "thresholds"), [2, 1], "input 1: thresholds do not ascend"),
        (("inputs", 1, "thresholds"), [1.5, 2], "input 1: thresholds are not one or more signed"),
        (("layers",), [], "has 0 layers"),
        (("layers", 0, "bias"), [], "layer 0 has unknown bias"),
        (("layers", 0, "weights", 0), [1, 1], "layer 0: a neuron has not 4 weights"),
        (("layers", 0, "weights", 0, 0), 0, "layer 0: has a weight that is not 1 or -1"),
        (("layers", 0, "weights", 0, 0), True, "layer 0: has a weight that is not 1 or -1"),
        (("layers", 0, "threshold"), [1], "layer 0: has 1 thresholds or biases for 3 neurons"),
        (("layers", 1, "bias"), [0, 0.5], "layer 1, neuron 1: its threshold or bias is no signed"),
    ],
)
def test_what_is_wrong_is_named(path: tuple[Any, ...], value: Any, message: str, tmp_path: Path) -> None:
    document = copy.deepcopy(PLAIN)
    at: Any = document
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    with pytest.raises(InputError, match=message):
        import_model(written(tmp_path, document))


@pytest.mark.parametrize("text", ["", "[]", "{", "7", "[" * 100_000, '{"format": 1}'])
def test_what_is_no_such_file_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"network\.bnn"):
        import_model(written(tmp_path, text))


def test_it_has_no_trees_that_vote(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no trees that could vote"):
        import_model(written(tmp_path, PLAIN), votes="majority")


def test_a_folder_is_a_bank(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    networks = [random_binary_mlp(rng, n_features=4, layers=(9, 5), input_bits=40) for _ in range(3)]
    for name, one in zip("cab", networks, strict=True):
        document = to_plain(one, ["clear", "congested"], list("wxyz"))
        (tmp_path / f"{name}.bnn").write_text(json.dumps(document))
    imported = import_model(tmp_path)
    assert isinstance(imported.model, BinaryBank)
    assert imported.model.names == ("a", "b", "c")
    assert imported.model.networks == (networks[1], networks[2], networks[0])
    assert imported.classes == ["clear", "congested"] and imported.feature_names == list("wxyz")
    x = rng.integers(0, 1500, (500, 4))
    assert (imported.predict(x) == imported.model.predict(x)[0]).all()
    assert import_model(tmp_path, classes=["ok", "busy"]).classes == ["ok", "busy"]
    assert training_file.read(tmp_path) is None, "a folder is read without a record"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": ["clear", "other"]}, "b.bnn: its classes are not those of a.bnn; train all"),
        ({"features": list("zyxw")}, "b.bnn: its features are not those of a.bnn; train all"),
        ({"layers": 3}, "b.bnn: layers: is no list"),
        (None, "has 1 .bnn files, a bank has 2 to 64 networks"),
        ({"hidden": 7}, "network b: its hidden layers are 7, those of a 5"),
    ],
)
def test_a_folder_that_is_no_bank_is_refused(
    changes: dict[str, Any] | None, message: str, tmp_path: Path
) -> None:
    rng = np.random.default_rng(1)
    changes = None if changes is None else dict(changes)
    hidden = changes.pop("hidden", 5) if changes else 5
    for name, width in (("a", 5), ("b", hidden)):
        one = random_binary_mlp(rng, n_features=4, layers=(width,), input_bits=40)
        document = to_plain(one, ["clear", "congested"], list("wxyz"))
        if name == "b":
            if changes is None:
                break
            document |= changes
        (tmp_path / f"{name}.bnn").write_text(json.dumps(document))
    with pytest.raises(InputError, match=message):
        import_model(tmp_path)
