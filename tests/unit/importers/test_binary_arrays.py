# SPDX-License-Identifier: Apache-2.0
"""Binarised dense layers from arrays, against a forward pass written as Larq documents its layers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wirewise.errors import InputError
from wirewise.importers import import_model

INPUTS = [{"feature": "length", "thresholds": [100, 500, 1000]}, {"feature": "ttl", "shift": 0, "bits": 8}]
ROWS = np.array([[length, ttl] for length in (0, 101, 501, 1001) for ttl in range(256)])


def arrays(outputs: int = 2, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    found: dict[str, Any] = {
        "classes": ["benign", "attack", "scan"][: max(2, outputs)],
        "features": ["length", "ttl"],
        "inputs": json.dumps(INPUTS),
    }
    for index, (fan_in, width) in enumerate(((11, 12), (12, 7), (7, outputs))):
        found[f"kernel_{index}"] = rng.uniform(-1, 1, (fan_in, width)).astype(np.float32)
        if index < 2:
            found |= {
                f"gamma_{index}": rng.normal(0, 1, width).astype(np.float32),
                f"beta_{index}": rng.normal(0, 1, width).astype(np.float32),
                f"mean_{index}": rng.normal(0, 2, width).astype(np.float32),
                f"variance_{index}": rng.uniform(1, 9, width).astype(np.float32),
            }
    return found


def forward(found: dict[str, Any], rows: np.ndarray) -> np.ndarray:
    """QuantDense, BatchNormalization, QuantDense ... with input_quantizer and kernel_quantizer ste_sign."""
    bits = np.concatenate(
        [rows[:, :1] > np.array([100, 500, 1000]), (rows[:, 1:] >> np.arange(8)) & 1], axis=1
    )
    x = 2.0 * bits - 1
    for index in range(3):
        x = np.where(x >= 0, 1.0, -1.0) @ np.where(found[f"kernel_{index}"] >= 0, 1.0, -1.0)
        x = x + found.get(f"bias_{index}", 0)
        if f"mean_{index}" in found:
            part = {key: found[f"{key}_{index}"].astype(np.float64) for key in ("mean", "variance")}
            gamma, beta = found.get(f"gamma_{index}", 1.0), found.get(f"beta_{index}", 0.0)
            epsilon = found.get(f"epsilon_{index}", 1e-3)
            x = gamma * (x - part["mean"]) / np.sqrt(part["variance"] + epsilon) + beta
    return x


def written(folder: Path, found: dict[str, Any]) -> Path:
    path = folder / "network.npz"
    np.savez(path, **found)
    return path


@pytest.mark.parametrize("outputs", [1, 2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_arrays_become_the_network_they_were(tmp_path: Path, outputs: int, seed: int) -> None:
    found = arrays(outputs, seed)
    if seed == 1:  # layers without shift or scale, and what else may be left out or given
        del found["gamma_0"], found["beta_1"]
        found |= {"epsilon_1": 0.5, "bias_0": np.arange(12.0)}
    imported = import_model(written(tmp_path, found), n_features=2)
    assert (imported.feature_names, imported.classes) == (["length", "ttl"], found["classes"])
    assert imported.model.describe().startswith(f"binary network 11-12-7-{max(2, outputs)}")
    scores = forward(found, ROWS)
    expected = scores[:, 0] > 0 if outputs == 1 else scores.argmax(axis=1)
    assert len(set(expected.tolist())) > 1
    np.testing.assert_array_equal(imported.model.predict(ROWS)[0], expected)
    np.testing.assert_array_equal(imported.predict(ROWS), expected)
    assert not imported.notes  # without a bias behind the last layer nothing is rounded


def test_rounded_biases_are_told(tmp_path: Path) -> None:
    imported = import_model(written(tmp_path, arrays(3) | {"bias_2": np.array([0.0, 0.5, 1.0])}))
    assert "by 0.50 at most" in imported.notes[0] or "by 0.25 at most" in imported.notes[0]


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("classes", None, "lacks the array classes"),
        ("classes", ["a"], "has a single class"),
        ("classes", ["a", "b", "c"], "has 2 classes, its list names 3"),
        ("features", np.array([1, 2]), "features: is no list of texts"),
        ("inputs", "[", "inputs: is not JSON"),
        ("inputs", "7", "inputs: is no list"),
        ("inputs", json.dumps(INPUTS[:1]), r"layer 0: its kernel is of shape \(11, 12\), it has 3 inputs"),
        ("kernel_1", None, "lacks the array kernel_1; number the layers from 0"),
        ("kernel_1", np.ones(3), r"kernel_1: is of shape \(3,\); give inputs by neurons"),
        ("kernel_2", np.full((7, 2), np.nan), "layer 2, neuron 0: has a number that is NaN"),
        ("kernel_0", np.array([["x"]]), "kernel_0: does not hold numbers"),
        ("gamma_0", np.ones(5), r"layer 0: its gamma is of shape \(5,\), it has 12 neurons"),
        ("mean_0", None, "lacks the array mean_0; gamma_0 needs it"),
        ("epsilon_0", np.ones(2), "epsilon_0: is of shape"),
        ("weights", np.ones(2), "has an unknown array weights"),
        ("kernel_10", np.ones(2), "has an unknown array kernel_10"),
        ("mean_2", np.zeros(2), "lacks the array variance_2"),
        ("features", np.array([{}], dtype=object), "cannot be read as arrays"),
    ],
)
def test_what_is_wrong_is_named(name: str, value: Any, says: str, tmp_path: Path) -> None:
    found = arrays()
    found.pop(name, None)
    if value is not None:
        found[name] = value
    with pytest.raises(InputError, match=says):
        import_model(written(tmp_path, found))


def test_classes_with_scales_of_their_own_are_refused(tmp_path: Path) -> None:
    found = arrays() | {"mean_2": np.zeros(2), "variance_2": np.array([1.0, 2.0])}
    with pytest.raises(InputError, match=r"network\.npz: layer 2: the normalisation behind the last layer"):
        import_model(written(tmp_path, found))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x93NUMPY", b"text"])
def test_what_is_no_npz_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "network.npz").write_bytes(content)
    with pytest.raises(InputError, match="cannot be read as arrays"):
        import_model(tmp_path / "network.npz")
    with (tmp_path / "network.npz").open("wb") as file:
        np.save(file, np.ones(2))
    with pytest.raises(InputError, match="is a single array"):
        import_model(tmp_path / "network.npz")


def test_zeros_that_were_packed_are_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "network.npz"
    np.savez_compressed(path, kernel_0=np.zeros((9 << 20,)))
    assert path.stat().st_size < 1 << 20
    with pytest.raises(InputError, match="unpacks to more than 64 MiB"):
        import_model(path)


def test_it_has_no_trees_that_vote(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no trees that could vote"):
        import_model(written(tmp_path, arrays()), votes="majority")
