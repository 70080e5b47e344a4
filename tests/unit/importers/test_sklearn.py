# SPDX-License-Identifier: Apache-2.0
"""scikit-learn: every tree takes the estimator's path, every row gets the estimator's class."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.decomposition import PCA
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    AdaBoostClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)
from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier

from tests.examples import examples
from wirewise.errors import InputError
from wirewise.importers import import_model

few = settings(examples(4), suppress_health_check=list(HealthCheck))
SEEDS = st.integers(0, 2**31 - 1)
CLASSES = st.sampled_from([2, 3, 7])


def fitted(adversary: ModuleType, estimator: Any, seed: int, n_classes: int) -> Any:
    rng = np.random.default_rng(seed)
    x = adversary.training_rows(rng, 600)
    y = adversary.training_classes(rng, x, n_classes)
    return estimator.set_params(random_state=seed).fit(x, np.array([f"c{c}" for c in range(n_classes)])[y])


def original(adversary: ModuleType, trees: list[Any]) -> Any:
    tested = [
        (f, t)
        for tree in trees
        for f, t in zip(tree.tree_.feature, tree.tree_.threshold, strict=True)
        if f >= 0
    ]
    return adversary.Original(
        thresholds=[tree.tree_.threshold for tree in trees],
        tested=tested,
        leaves=lambda x: np.stack([tree.tree_.apply(x.astype(np.float32)) for tree in trees], axis=1),
    )


TREES = [
    DecisionTreeClassifier(),
    DecisionTreeClassifier(max_depth=5, class_weight="balanced"),
    ExtraTreeClassifier(),
    RandomForestClassifier(n_estimators=8),
    RandomForestClassifier(n_estimators=9, max_depth=4, class_weight="balanced_subsample"),
    ExtraTreesClassifier(n_estimators=8, max_leaf_nodes=20),
]


@pytest.mark.parametrize("estimator", TREES, ids=str)
@pytest.mark.parametrize("votes", [None, "sum"])
@few
@given(SEEDS, CLASSES)
def test_trees_and_forests(
    adversary: ModuleType, estimator: Any, votes: Any, seed: int, n_classes: int
) -> None:
    estimator = fitted(adversary, estimator, seed, n_classes)
    trees = getattr(estimator, "estimators_", [estimator])
    imported = import_model(estimator, votes=votes)
    assert imported.classes == [f"c{c}" for c in range(n_classes)]
    rows = adversary.assert_same(imported, original(adversary, trees), seed)
    classes, _ = imported.model.predict(rows)
    pure = all(
        (np.sort(tree.tree_.value[:, 0], axis=1)[tree.tree_.children_left == -1, :-1] == 0).all()
        for tree in trees
    )
    if (
        pure and len(trees) <= 8
    ):  # sums of whole votes over 2^k trees are exact in float: not even a tie may differ
        np.testing.assert_array_equal(np.array(imported.classes)[classes], estimator.predict(rows))


@few
@given(SEEDS, CLASSES)
def test_majority_votes(adversary: ModuleType, seed: int, n_classes: int) -> None:
    forest = fitted(adversary, RandomForestClassifier(n_estimators=6, max_depth=6), seed, n_classes)
    imported = import_model(forest, votes="majority")
    x = adversary.training_rows(np.random.default_rng(seed + 1), 500)
    votes = np.stack([tree.predict(x) for tree in forest.estimators_], axis=1).astype(int)
    counts = np.stack([(votes == c).sum(axis=1) for c in range(n_classes)], axis=1)
    classes, scores = imported.model.predict(x)
    np.testing.assert_array_equal(scores, counts)
    np.testing.assert_array_equal(classes, counts.argmax(axis=1))
    assert "majority votes were asked for" in imported.notes[-1]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"init": "zero"},
        {"init": DummyClassifier(strategy="prior")},
        {"learning_rate": 0.2, "subsample": 0.5},
    ],
    ids=str,
)
@few
@given(SEEDS, CLASSES)
def test_gradient_boosting(adversary: ModuleType, options: dict[str, Any], seed: int, n_classes: int) -> None:
    estimator = fitted(adversary, GradientBoostingClassifier(n_estimators=5, **options), seed, n_classes)
    imported = import_model(estimator)
    trees = list(estimator.estimators_.ravel())
    x = adversary.assert_same(imported, original(adversary, trees), seed)
    assert_proportional(imported, estimator.decision_function(x), x)


@few
@given(SEEDS)
def test_exponential_loss(adversary: ModuleType, seed: int) -> None:
    estimator = fitted(adversary, GradientBoostingClassifier(n_estimators=5, loss="exponential"), seed, 2)
    adversary.assert_same(
        import_model(estimator), original(adversary, list(estimator.estimators_.ravel())), seed
    )


def test_gradient_boosting_calls_a_score_of_zero_class_1(adversary: ModuleType) -> None:
    x = np.array([[0], [0], [1], [1]])
    estimator = GradientBoostingClassifier(n_estimators=1, init="zero").fit(x, [0, 1, 0, 1])
    assert estimator.decision_function(x).tolist() == [0, 0, 0, 0]
    assert estimator.predict(x).tolist() == import_model(estimator).model.predict(x)[0].tolist() == [1] * 4


@pytest.mark.parametrize("options", [{}, {"l2_regularization": 1.0, "max_depth": 4}], ids=str)
@few
@given(SEEDS, CLASSES)
def test_hist_gradient_boosting(
    adversary: ModuleType, options: dict[str, Any], seed: int, n_classes: int
) -> None:
    boosting = HistGradientBoostingClassifier(max_iter=4, min_samples_leaf=5, **options)
    estimator = fitted(adversary, boosting, seed, n_classes)
    predictors = [predictor for stage in estimator._predictors for predictor in stage]
    nodes = [predictor.nodes for predictor in predictors]
    imported = import_model(estimator)

    def leaf_values(x: Any) -> Any:  # it names no leaves, and their values are distinct: compare those
        no_categories = np.zeros((0, 8), np.uint32), np.zeros(x.shape[1], np.uint32)
        return np.stack([p.predict(x.astype(np.float64), *no_categories, 1) for p in predictors], axis=1)

    facts = adversary.Original(
        thresholds=[part["num_threshold"] for part in nodes],
        tested=[(n["feature_idx"], n["num_threshold"]) for part in nodes for n in part if not n["is_leaf"]],
        leaves=None,
    )
    x = adversary.assert_same(imported, facts, seed)
    ours = imported.model.leaves(x)
    for tree, (ids, part) in enumerate(zip(imported.node_ids, nodes, strict=True)):
        np.testing.assert_array_equal(part["value"][np.array(ids)[ours[:, tree]]], leaf_values(x)[:, tree])
    assert_proportional(imported, estimator.decision_function(x), x)


def assert_proportional(imported: Any, margins: Any, x: Any) -> None:
    """Integer scores are the estimator's margins times one factor, to seven digits of the largest."""
    scores = imported.model.predict(x)[1].astype(float).ravel()
    margins = margins.ravel()
    factor = (scores @ margins) / (margins @ margins)
    assert np.abs(scores - factor * margins).max() <= 5e-8 * max(np.abs(scores).max(), 2**24)


def test_values_beyond_float32_follow_float32() -> None:
    """The step that truncating a threshold gets wrong: 2^24 + 1 rounds to 2^24 and goes left."""
    x = np.array([[2**24 - 6], [2**24 + 6]])
    estimator = DecisionTreeClassifier().fit(x, [0, 1])
    assert estimator.tree_.threshold[0] == 2**24
    assert import_model(estimator).model.trees[0].threshold[0] == 2**24 + 1


def test_pipeline_of_one_step_and_names_of_features() -> None:
    import polars

    table = polars.DataFrame({"length": [1, 2, 3, 4], "iat": [0, 0, 9, 9]})
    pipeline = Pipeline([("nothing", "passthrough"), ("tree", DecisionTreeClassifier())]).fit(
        table, ["b", "b", "a", "a"]
    )
    imported = import_model(pipeline, n_features=2, classes=["attack", "benign"])
    assert imported.classes == ["benign", "attack"]
    assert imported.feature_names == ["length", "iat"]
    assert imported.source.startswith("scikit-learn 1.")
    assert imported.predict(table.to_numpy()).tolist() == [0, 0, 1, 1]


def test_classes_keep_their_order_even_if_it_is_not_sorted(adversary: ModuleType) -> None:
    rng = np.random.default_rng(2)
    x = adversary.training_rows(rng, 300)
    forest = RandomForestClassifier(5).fit(x, adversary.training_classes(rng, x, 3))
    forest.classes_ = np.array(["scan", "dos", "attack"])
    imported = import_model(forest)
    assert imported.classes == ["scan", "dos", "attack"]
    adversary.assert_same_classes(imported, x)


@pytest.mark.parametrize(
    "scalers",
    [
        [StandardScaler()],
        [StandardScaler(with_mean=False)],
        [MinMaxScaler((-3, 5))],
        [MinMaxScaler(clip=True)],
        [MaxAbsScaler()],
        [RobustScaler()],
        [RobustScaler(unit_variance=True), MinMaxScaler((0, 7))],
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "last",
    [
        DecisionTreeClassifier(),
        RandomForestClassifier(n_estimators=6, max_depth=6),
        GradientBoostingClassifier(n_estimators=4),
        HistGradientBoostingClassifier(max_iter=4),
    ],
    ids=lambda last: type(last).__name__,
)
def test_trees_behind_scalers_take_the_paths_of_the_pipeline(
    adversary: ModuleType, scalers: list[Any], last: Any
) -> None:
    rng = np.random.default_rng(7)
    x = adversary.training_rows(rng, 600)
    pipeline = make_pipeline(*scalers, last.set_params(random_state=7))
    pipeline.fit(x, adversary.training_classes(rng, x, 3))
    imported = import_model(pipeline)
    rows = [x, adversary.training_rows(rng, 2000)]
    for tree in imported.model.trees:  # on both sides of every threshold
        for feature, cut in zip(tree.feature, tree.threshold, strict=True):
            if feature >= 0:
                near = x[rng.integers(0, len(x), 3)].copy()
                near[:, feature] = np.clip([cut - 1, cut, cut + 1], -(2**62), 2**62)
                rows.append(near)
    everywhere = np.concatenate(rows)
    adversary.assert_same_classes(imported, everywhere)
    if not hasattr(pipeline[-1], "apply") or isinstance(pipeline[-1], GradientBoostingClassifier):
        return
    scaled = pipeline[:-1].transform(everywhere)
    theirs = pipeline[-1].apply(scaled).reshape(len(everywhere), -1)
    ours = imported.model.leaves(everywhere)
    for tree, ids in enumerate(imported.node_ids):
        np.testing.assert_array_equal(np.array(ids)[ours[:, tree]], theirs[:, tree])


def test_a_pipeline_of_named_features_and_a_search_in_it() -> None:
    import polars

    table = polars.DataFrame({"length": [1, 2, 3, 4] * 9, "iat": [0, 0, 9, 9] * 9})
    search = GridSearchCV(DecisionTreeClassifier(random_state=0), {"max_depth": [1, 2]})
    pipeline = make_pipeline(StandardScaler(), search).fit(table, ["b", "b", "a", "a"] * 9)
    imported = import_model(pipeline, n_features=2)
    assert imported.feature_names == ["length", "iat"]
    assert (imported.model.predict(table.to_numpy())[0] == imported.predict(table.to_numpy())).all()
    with pytest.raises(InputError, match="trained on 2 features, the feature set has 3"):
        import_model(pipeline, n_features=3)


X = np.array([[0, 0], [0, 1], [5, 0], [5, 9]] * 5)
Y = [0, 0, 1, 2] * 5


def wide() -> Any:
    return DecisionTreeClassifier().fit(np.eye(200, dtype=int), np.arange(200) % 2)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (wide, "DecisionTreeClassifier: has 200 features, allowed are 1 to 128; train it on fewer features"),
        (lambda: DecisionTreeClassifier(), "DecisionTreeClassifier: is not fitted; call fit first"),
        (lambda: RandomForestClassifier(), "is not fitted"),
        (lambda: GradientBoostingClassifier(), "is not fitted"),
        (lambda: HistGradientBoostingClassifier(), "is not fitted"),
        (lambda: DecisionTreeClassifier().fit(X, [0] * 20), "has a single class"),
        (lambda: DecisionTreeClassifier().fit(X, np.stack([Y, Y], 1)), "predicts several outputs"),
        (lambda: RandomForestClassifier(3).fit(X, np.stack([Y, Y], 1)), "predicts several outputs"),
        (lambda: RandomForestRegressor(3).fit(X, Y), "it is a regressor; train a classifier: Dec"),
        (lambda: GaussianNB().fit(X, Y), "GaussianNB cannot be imported; known are"),
        (lambda: AdaBoostClassifier().fit(X, Y), "AdaBoostClassifier: weighs the votes"),
        (
            lambda: make_pipeline(QuantileTransformer(n_quantiles=5), ExtraTreeClassifier()).fit(X, Y),
            r"step 'quantiletransformer' (QuantileTransformer) interpolates, and rounds so that the order",
        ),
        (
            lambda: make_pipeline(StandardScaler(), PCA(2), ExtraTreeClassifier()).fit(X, Y),
            "step 'pca' (PCA) mixes features, and a tree tests one at a time; trees need no scaling",
        ),
        (
            lambda: make_pipeline(StandardScaler(), GaussianNB()).fit(X, Y),
            "step 'standardscaler' (StandardScaler) changes the features of a GaussianNB",
        ),
        (lambda: make_pipeline(GaussianNB()).fit(X, Y), "GaussianNB cannot be imported"),
        (
            lambda: GradientBoostingClassifier(n_estimators=2, init=LogisticRegression()).fit(X, Y),
            "starts from another estimator (init=LogisticRegression); train it with init=None",
        ),
        (
            lambda: GradientBoostingClassifier(init=DummyClassifier(strategy="stratified")).fit(X, Y),
            "starts from another estimator",
        ),
        (
            lambda: HistGradientBoostingClassifier(max_iter=2, categorical_features=[0]).fit(X, Y),
            "splits on categorical features; train it with categorical_features=None",
        ),
        (lambda: object(), "builtins.object cannot be imported; known are DecisionTreeClassifier"),
    ],
)  # fmt: skip
def test_refusals(make: Any, says: str) -> None:
    with pytest.raises(InputError) as refused:
        import_model(make())
    assert says in str(refused.value)
    assert refused.value.exit_code == 2 and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"n_features": 3}, "was trained on 2 features, the feature set has 3; use the feature set"),
        ({"classes": ["a", "b"]}, "has 3 classes, 2 class names were given"),
        ({"classes": ["a", "b", "a"]}, "not distinct"),
        ({"classes": ["a", "b", ""]}, "not distinct and non-empty"),
    ],
)
def test_bad_requests(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as refused:
        import_model(DecisionTreeClassifier().fit(X, Y), **options)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    "estimator",
    [GradientBoostingClassifier(n_estimators=2), HistGradientBoostingClassifier(max_iter=2)],
    ids=str,
)
def test_boosting_does_not_vote(estimator: Any) -> None:
    with pytest.raises(InputError, match="do not vote"):
        import_model(estimator.fit(X, Y), votes="majority")


def test_missing_values_do_not_matter_to_integers(adversary: ModuleType) -> None:
    """A tree trained with NaN sends it somewhere; integers never go there for that reason."""
    rng = np.random.default_rng(5)
    x = adversary.training_rows(rng, 400)
    y = adversary.training_classes(rng, x, 2)
    holed = np.where(rng.random(x.shape) < 0.2, np.nan, x.astype(float))
    for estimator in (DecisionTreeClassifier(), HistGradientBoostingClassifier(max_iter=3)):
        adversary.assert_same_classes(import_model(estimator.fit(holed, y)), x)
