# SPDX-License-Identifier: Apache-2.0
"""XGBoost: paths, base scores of every version, early stopping, refusals.

data/xgboost-VERSION-CLASSES.{json,ubj} were saved by those versions' XGBClassifier (3 rounds, depth 3), with
what it predicted for 60 rows beside them.
"""

from __future__ import annotations

import json
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
from wirewise.importers.xgboost import _base_margins

xgboost = needs.package("xgboost")

few = settings(examples(4), suppress_health_check=list(HealthCheck))
DATA = Path(__file__).parent / "data"
SEEDS = st.integers(0, 2**31 - 1)
OPTIONS = [
    {},
    {"base_score": 0.1},
    {"booster": "dart", "rate_drop": 0.4},
    {"num_parallel_tree": 3, "subsample": 0.5},
    {"tree_method": "exact", "max_depth": 9},
    {"grow_policy": "lossguide", "max_leaves": 9, "reg_lambda": 0.1},
]


def data(adversary: ModuleType, seed: int, n_classes: int, n: int = 500) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    x = adversary.training_rows(rng, n)
    return x, adversary.training_classes(rng, x, n_classes)


def original(adversary: ModuleType, booster: Any, trees: int) -> Any:
    learner = json.loads(bytes(booster.save_raw("json")))["learner"]["gradient_booster"]
    documents = (learner.get("gbtree") or learner)["model"]["trees"][:trees]
    tested = [
        (feature, threshold)
        for tree in documents
        for feature, threshold, child in zip(
            tree["split_indices"], tree["split_conditions"], tree["left_children"], strict=True
        )
        if child != -1
    ]
    return adversary.Original(
        thresholds=[tree["split_conditions"] for tree in documents],
        tested=tested,
        leaves=lambda x: booster.predict(xgboost.DMatrix(x), pred_leaf=True).reshape(len(x), -1)[:, :trees],
    )


def assert_proportional(scores: Any, margins: Any) -> None:
    """Integer scores are the margins times one factor, to float32's precision."""
    scores, margins = scores.astype(float).ravel(), np.asarray(margins, float).ravel()
    factor = (scores @ margins) / (margins @ margins)
    assert factor > 0
    assert np.abs(scores - factor * margins).max() <= 3e-6 * np.abs(scores).max()


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@few
@given(SEEDS, st.sampled_from([2, 3, 6]))
def test_classifier(adversary: ModuleType, options: dict[str, Any], seed: int, n_classes: int) -> None:
    x, y = data(adversary, seed, n_classes)
    estimator = xgboost.XGBClassifier(n_estimators=4, random_state=seed, n_jobs=1, **options).fit(x, y)
    booster = estimator.get_booster()
    for source in (estimator, booster):
        imported = import_model(source)
        rows = adversary.assert_same(imported, original(adversary, booster, len(imported.model.trees)), seed)
        _, scores = imported.model.predict(rows)
        assert_proportional(scores, booster.predict(xgboost.DMatrix(rows), output_margin=True))
    np.testing.assert_array_equal(
        imported.predict(rows), estimator.predict(rows)
    )  # what we call the original is it
    assert imported.classes == [str(c) for c in range(n_classes)]
    assert imported.model.n_outputs == (1 if n_classes == 2 else n_classes)


@pytest.mark.parametrize("objective", ["multi:softmax", "multi:softprob"])
def test_objectives_of_several_classes(adversary: ModuleType, objective: str) -> None:
    x, y = data(adversary, 3, 4)
    matrix = xgboost.DMatrix(x, y)
    booster = xgboost.train({"objective": objective, "num_class": 4, "nthread": 1}, matrix, 3)
    imported = import_model(booster, classes=["a", "b", "c", "d"])
    adversary.assert_same(imported, original(adversary, booster, 12), 4)
    assert imported.classes == ["a", "b", "c", "d"]


def test_early_stopping_uses_the_best_iteration(adversary: ModuleType, tmp_path: Path) -> None:
    x, y = data(adversary, 5, 2)
    noise = np.random.default_rng(1).integers(0, 2, len(y))
    estimator = xgboost.XGBClassifier(n_estimators=30, early_stopping_rounds=4, n_jobs=1)
    estimator.fit(x, y, eval_set=[(x, noise)], verbose=False)
    used, built = estimator.best_iteration + 1, estimator.get_booster().num_boosted_rounds()
    assert used < built
    path = tmp_path / "model.ubj"
    estimator.save_model(path)
    for source in (estimator, path):
        imported = import_model(source)
        assert len(imported.model.trees) == used
        rows = adversary.assert_same(imported, original(adversary, estimator.get_booster(), used), 6)
        np.testing.assert_array_equal(imported.predict(rows), estimator.predict(rows))
        assert "early stopping" in imported.notes[-1]
    assert len(import_model(estimator.get_booster()).model.trees) == built  # as Booster.predict


@pytest.mark.parametrize("suffix", ["json", "ubj"])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("version", ["1.7.6", "2.1.4"])
def test_files_of_older_versions(version: str, n_classes: int, suffix: str) -> None:
    expected = json.loads((DATA / f"xgboost-{version}-{n_classes}.expected.json").read_text())
    imported = import_model(DATA / f"xgboost-{version}-{n_classes}.{suffix}", n_features=3)
    rows = np.array(expected["rows"], np.int64)
    classes, scores = imported.model.predict(rows)
    assert classes.tolist() == expected["classes"] == imported.predict(rows).tolist()
    assert_proportional(scores, expected["margins"])
    leaves = imported.model.leaves(rows)
    for tree, ids in enumerate(imported.node_ids):
        assert np.array(ids)[leaves[:, tree]].tolist() == [row[tree] for row in expected["leaves"]]


def test_missing_in_files_of_older_versions(tmp_path: Path) -> None:
    document = json.loads((DATA / "xgboost-1.7.6-2.json").read_text())
    attributes = document["learner"]["attributes"]
    rows = np.array(json.loads((DATA / "xgboost-1.7.6-2.expected.json").read_text())["rows"], np.int64)
    refused = 0
    for missing in np.unique(rows)[::30].tolist():
        attributes["scikit_learn"] = json.dumps(
            {**json.loads(attributes["scikit_learn"]), "missing": missing}
        )
        (tmp_path / "model.json").write_text(json.dumps(document))
        try:
            imported = import_model(tmp_path / "model.json")
        except InputError as error:
            assert f"missing={missing:g}" in str(error)
            refused += 1
        else:
            np.testing.assert_array_equal(imported.model.predict(rows)[0], imported.predict(rows))
    assert refused


@pytest.mark.parametrize("base_score", ["5E-1", "[5E-1]", "0.5"])
def test_base_score_as_each_version_writes_it(adversary: ModuleType, tmp_path: Path, base_score: str) -> None:
    x, y = data(adversary, 8, 2)
    estimator = xgboost.XGBClassifier(n_estimators=2, base_score=0.5, n_jobs=1).fit(x, y)
    path = tmp_path / "model.json"
    estimator.save_model(path)
    document = json.loads(path.read_text())
    document["learner"]["learner_model_param"]["base_score"] = base_score
    path.write_text(json.dumps(document))
    assert_proportional(import_model(path).model.predict(x)[1], estimator.predict(x, output_margin=True))


def test_base_score_forms() -> None:
    assert _base_margins("5E-1", "binary:logistic", 1) == [0.0]
    assert _base_margins("[5E-1]", "binary:logistic", 1) == [0.0]
    assert _base_margins("7.310585786300049E-1", "binary:logistic", 1) == pytest.approx([1.0])
    assert _base_margins("5E-1", "multi:softprob", 3) == [0.5] * 3
    assert _base_margins("[-4.8E-1,6.9E-1,-2E-1]", "multi:softprob", 3) == [-0.48, 0.69, -0.2]


def train(**parameters: Any) -> Any:
    x = np.random.default_rng(0).integers(0, 9, (60, 3))
    y = x[:, 0] % parameters.get("num_class", 2)
    return xgboost.train({"nthread": 1, **parameters}, xgboost.DMatrix(x, y), 2)


def categorical() -> Any:
    x = np.random.default_rng(0).integers(0, 9, (200, 1))
    matrix = xgboost.DMatrix(x, x[:, 0] % 2, feature_types=["c"], enable_categorical=True)
    return xgboost.train({"objective": "binary:logistic", "nthread": 1, "max_cat_to_onehot": 1}, matrix, 2)


def several_targets() -> Any:
    x = np.random.default_rng(0).integers(0, 9, (60, 2))
    return xgboost.XGBClassifier(n_estimators=2, n_jobs=1).fit(x, x % 2)


def wide() -> Any:
    x = np.random.default_rng(0).integers(0, 9, (60, 200))
    return xgboost.XGBClassifier(n_estimators=2, n_jobs=1).fit(x, x[:, 0] % 2)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: train(objective="reg:squarederror"),
            "has the objective reg:squarederror, known are binary:logistic",
        ),
        (lambda: train(objective="binary:hinge"), "has the objective binary:hinge"),
        (lambda: train(objective="rank:pairwise"), "has the objective rank:pairwise"),
        (
            lambda: train(objective="binary:logistic", booster="gblinear"),
            "is a gblinear booster, which has no trees",
        ),
        (categorical, "splits on categorical features; train it on integer features only"),
        (several_targets, "predicts several targets"),
        (wide, "XGBClassifier: has 200 features, allowed are 1 to 128"),
        (lambda: xgboost.XGBClassifier(), "XGBClassifier: is not fitted; call fit first"),
        (lambda: xgboost.XGBRegressor(), "it is a regressor"),
    ],
)
def test_refusals(make: Any, says: str) -> None:
    with pytest.raises(InputError) as refused:
        import_model(make())
    assert says in str(refused.value)


def test_boosting_does_not_vote() -> None:
    with pytest.raises(InputError, match="do not vote"):
        import_model(train(objective="binary:logistic"), votes="majority")


@pytest.mark.parametrize("content", [b"", b"{}", b'{"learner": {}}', b"\x00\xff" * 40, b"[1, 2"])
@pytest.mark.parametrize("suffix", ["json", "ubj"])
def test_damaged_files_are_refused(tmp_path: Path, content: bytes, suffix: str) -> None:
    path = tmp_path / f"broken.{suffix}"
    path.write_bytes(content)
    with pytest.raises(InputError) as refused:
        import_model(path)
    assert str(path) in str(refused.value) and "save it with save_model" in str(refused.value)
