# SPDX-License-Identifier: Apache-2.0
"""Classifiers as they are: their probabilities are those that their own library gives."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression

from wirewise.errors import InputError
from wirewise.importers.original import open_original

skl2onnx = pytest.importorskip("skl2onnx", reason="packages: skl2onnx")
ROWS = np.random.default_rng(0).integers(0, 100, (60, 3))
NAMES = np.where(ROWS.sum(axis=1) > 150, "attack", np.where(ROWS[:, 0] > 50, "normal", "scan"))


def to_onnx(path: Path, estimator: Any, **options: Any) -> Path:
    kind = [("features", skl2onnx.common.data_types.FloatTensorType([None, 3]))]
    path.write_bytes(skl2onnx.to_onnx(estimator, initial_types=kind, options=options).SerializeToString())
    return path


@pytest.mark.parametrize("zipmap", [True, False])
def test_onnx_gives_what_the_estimator_gives(tmp_path: Path, zipmap: bool) -> None:
    forest = RandomForestClassifier(20, random_state=0).fit(ROWS, NAMES)
    opened = open_original(to_onnx(tmp_path / "big.onnx", forest, zipmap=zipmap))
    assert (opened.classes, opened.benign, opened.n_features) == (["attack", "normal", "scan"], 1, 3)
    expected = forest.predict_proba(ROWS)
    np.testing.assert_allclose(opened.probabilities(ROWS), expected, atol=1e-5)
    np.testing.assert_allclose(opened.attack(ROWS), 1 - expected[:, 1], atol=1e-5)


def test_a_pickle_gives_what_the_estimator_gives(tmp_path: Path) -> None:
    model = LogisticRegression().fit(ROWS, NAMES == "attack")
    (tmp_path / "big.pkl").write_bytes(pickle.dumps(model))
    opened = open_original(tmp_path / "big.pkl", classes=["benign", "attack"])
    np.testing.assert_array_equal(opened.attack(ROWS), 1 - model.predict_proba(ROWS)[:, 0])
    with pytest.raises(InputError, match="has no class 'web'"):
        open_original(tmp_path / "big.pkl", classes=["benign", "attack"], benign="web")


def test_what_gives_no_probabilities_is_refused(tmp_path: Path) -> None:
    scores = LinearRegression().fit(ROWS, ROWS[:, 0])
    path = to_onnx(tmp_path / "scores.onnx", scores)
    with pytest.raises(InputError, match="does not name its classes"):
        open_original(path)
    opened = open_original(path, classes=["benign", "attack"])
    with pytest.raises(InputError, match="not probabilities"):
        opened.attack(ROWS)
    (tmp_path / "damaged.onnx").write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match="cannot be loaded as ONNX"):
        open_original(tmp_path / "damaged.onnx", classes=["benign", "attack"])
