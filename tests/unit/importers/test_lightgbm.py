# SPDX-License-Identifier: Apache-2.0
"""LightGBM: paths, classes, best iteration, missing values, refusals."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import needs
from tests.examples import examples
from wirewise.errors import InputError
from wirewise.importers import import_model

lightgbm = needs.package("lightgbm")

few = settings(examples(4), suppress_health_check=list(HealthCheck))
QUIET = {"verbosity": -1, "num_threads": 1}
OPTIONS = [
    {},
    {"boosting_type": "dart", "drop_rate": 0.5},
    {"boosting_type": "rf", "bagging_freq": 1, "bagging_fraction": 0.5},
    {"min_child_samples": 2, "num_leaves": 60, "max_bin": 1000},
    {"is_unbalance": True, "extra_trees": True},
]


def data(adversary: ModuleType, seed: int, n_classes: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    x = adversary.training_rows(rng, 500)
    return x.astype(float), adversary.training_classes(rng, x, n_classes)


def original(adversary: ModuleType, booster: Any) -> Any:
    """Thresholds from the text form (the importer reads the JSON form)."""
    thresholds, tested = [], []
    for block in booster.model_to_string(num_iteration=booster.best_iteration).split("\nTree=")[1:]:
        fields = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        features = [int(f) for f in fields.get("split_feature", "").split()]
        floats = [float(t) for t in fields.get("threshold", "").split()]
        thresholds.append(floats)
        tested += list(zip(features, floats, strict=True))
    return adversary.Original(
        thresholds=thresholds,
        tested=tested,
        leaves=lambda x: booster.predict(x.astype(float), pred_leaf=True).reshape(len(x), -1),
    )


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@few
@given(st.integers(0, 2**31 - 1), st.sampled_from([2, 3, 6]))
def test_classifier(adversary: ModuleType, options: dict[str, Any], seed: int, n_classes: int) -> None:
    x, y = data(adversary, seed, n_classes)
    labels = np.array([f"c{c}" for c in range(n_classes)])
    estimator = lightgbm.LGBMClassifier(n_estimators=4, random_state=seed, **QUIET, **options).fit(
        x, labels[y]
    )
    booster = estimator.booster_
    facts = original(adversary, booster)
    for source in (estimator, booster):
        imported = import_model(source)
        rows = adversary.assert_same(imported, facts, seed)
        margins = booster.predict(rows.astype(float), raw_score=True).ravel()
        scores = imported.model.predict(rows)[1].astype(float).ravel()
        factor = (scores @ margins) / (margins @ margins)
        assert np.abs(scores - factor * margins).max() <= 1e-7 * max(np.abs(scores).max(), 2**24)
    ours = labels[imported.predict(rows)]
    np.testing.assert_array_equal(
        ours, estimator.predict(rows.astype(float))
    )  # what we call the original is it
    assert import_model(estimator).classes == labels.tolist()


def test_integer_arrays_are_rounded_by_the_package_not_by_the_model() -> None:
    """Why the thresholds are those of float64: LightGBM itself never rounds to float32."""
    x = np.array([[2**24], [2**24 + 1]] * 30)
    booster = lightgbm.train(
        {**QUIET, "objective": "binary", "min_data_in_leaf": 1},
        lightgbm.Dataset(x.astype(float), x[:, 0] % 2),
        1,
    )
    scores = booster.predict(x[:2].astype(float), raw_score=True)
    assert scores[0] < scores[1]
    assert (
        booster.predict(x[:2], raw_score=True).tolist() == [scores[0]] * 2
    )  # float32 cannot tell them apart
    ours = import_model(booster).model.predict(x[:2])[1]
    assert ours[0] < ours[1]


def test_files_and_the_best_iteration(adversary: ModuleType, tmp_path: Path) -> None:
    x, y = data(adversary, 5, 3)
    parameters = {**QUIET, "objective": "multiclass", "num_class": 3}
    booster = lightgbm.train(parameters, lightgbm.Dataset(x, y), 6)
    booster.best_iteration = 2  # what early stopping leaves behind
    path = tmp_path / "model.txt"
    booster.save_model(path)
    for source in (booster, path):
        imported = import_model(source)
        assert len(imported.model.trees) == 6
        rows = adversary.assert_same(imported, original(adversary, booster), 6)
        np.testing.assert_array_equal(
            imported.predict(rows), booster.predict(rows.astype(float)).argmax(axis=1)
        )


def small(**parameters: Any) -> Any:
    rng = np.random.default_rng(2)
    x = rng.integers(-3, 9, (400, 2)).astype(float)
    y = (x[:, 0] > 2).astype(int) + (parameters.get("num_class", 2) > 2) * (x[:, 1] > 3)
    names = {
        name: parameters.pop(name) for name in ("feature_name", "categorical_feature") if name in parameters
    }
    return lightgbm.train({**QUIET, **parameters}, lightgbm.Dataset(x, y, **names), 3)


def test_names_of_features() -> None:
    assert import_model(small(objective="binary")).feature_names is None
    named = import_model(small(objective="binary", feature_name=["length", "iat"]))
    assert named.feature_names == ["length", "iat"]


def test_missing_value_branches_that_integers_never_take(adversary: ModuleType) -> None:
    x, y = data(adversary, 9, 2)
    x[np.random.default_rng(0).random(x.shape) < 0.2] = np.nan
    booster = lightgbm.train({**QUIET, "objective": "binary"}, lightgbm.Dataset(x, y), 4)
    assert "NaN" in str(booster.dump_model())
    adversary.assert_same(import_model(booster), original(adversary, booster), 1)


def missing_zeros(low: int, high: int) -> Any:
    x = np.array([low, high] * 40, float)[:, None]
    parameters = {**QUIET, "objective": "binary", "zero_as_missing": True, "min_data_in_leaf": 1}
    return lightgbm.train(parameters, lightgbm.Dataset(x, np.arange(80) % 2), 2)


def test_zero_as_missing_is_refused_where_it_matters() -> None:
    zero, below, above = np.array([[0.0], [-5.0], [-1.0]])[:, None]
    booster = missing_zeros(-5, -1)  # LightGBM sends 0 with -5, an integer threshold would send it with -1
    assert booster.predict(zero) == booster.predict(below) != booster.predict(above)
    with pytest.raises(InputError, match="treats 0 as a missing value; train it with zero_as_missing=False"):
        import_model(booster)
    harmless = import_model(missing_zeros(1, 5))  # 0 goes left either way
    rows = np.arange(-6, 9)[:, None]
    np.testing.assert_array_equal(harmless.model.predict(rows)[0], harmless.predict(rows))


def linear() -> Any:
    return small(objective="binary", linear_tree=True)


def wide() -> Any:
    x = np.random.default_rng(0).integers(0, 9, (60, 200)).astype(float)
    return lightgbm.LGBMClassifier(n_estimators=2, **QUIET).fit(x, x[:, 0] % 2)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: small(objective="regression"),
            "Booster: has the objective regression, known are binary, multiclass",
        ),
        (lambda: small(objective="multiclassova", num_class=3), "has the objective multiclassova"),
        (linear, "has linear models in its leaves; train it with linear_tree=False"),
        (
            lambda: small(objective="binary", categorical_feature=[0], min_data_per_group=1, cat_smooth=0),
            "splits on categorical features",
        ),
        (wide, "LGBMClassifier: has 200 features, allowed are 1 to 128"),
        (lambda: lightgbm.LGBMClassifier(), "LGBMClassifier: is not fitted; call fit first"),
        (lambda: lightgbm.LGBMRegressor(), "it is a regressor"),
    ],
)
def test_refusals(make: Any, says: str) -> None:
    with pytest.raises(InputError) as refused:
        import_model(make())
    assert says in str(refused.value)


def test_boosting_does_not_vote() -> None:
    with pytest.raises(InputError, match="do not vote"):
        import_model(small(objective="binary"), votes="majority")


@pytest.mark.parametrize("content", [b"", b"hello\n", b"tree\nversion=v4\nnum_class=1\n", b"\x00\xff" * 40])
def test_damaged_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.txt"
    path.write_bytes(content)
    with pytest.raises(InputError) as refused:
        import_model(path)
    assert str(path) in str(refused.value) and "save it with Booster.save_model" in str(refused.value)
