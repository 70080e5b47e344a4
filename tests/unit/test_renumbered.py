# SPDX-License-Identifier: Apache-2.0
"""Benign as class 0: a model that is renumbered decides as before, equal scores included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.ensemble import ExtraTreesClassifier, GradientBoostingClassifier, RandomForestClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.tree import DecisionTreeClassifier

import wirewise as ww
from tests.examples import examples
from wirewise.errors import InputError
from wirewise.importers import import_model
from wirewise.models import (
    Bounded,
    Model,
    random_binary_bank,
    random_binary_mlp,
    random_fixed_point_mlp,
    random_quantized_mlp,
    random_tree_ensemble,
)
from wirewise.models.tree import LEAF, Tree, TreeEnsemble

FAMILIES = {
    "trees": lambda rng, classes: _coarse(random_tree_ensemble(rng, votes="sum", n_classes=classes)),
    "trees of one output": lambda rng, classes: _coarse(
        random_tree_ensemble(rng, votes="sum", n_classes=2, n_outputs=1)
    ),
    "int8": lambda rng, classes: random_quantized_mlp(rng, n_classes=classes),
    "q16": lambda rng, classes: random_fixed_point_mlp(rng, n_classes=classes),
    "binary": lambda rng, classes: random_binary_mlp(rng, n_classes=classes),
}


def _coarse(model: TreeEnsemble) -> TreeEnsemble:
    """Scores of -1, 0 and 1: many are equal."""
    trees = [
        Tree(
            tree.feature,
            tree.threshold,
            tree.left,
            tree.right,
            tuple(tuple(score % 3 - 1 for score in leaf) for leaf in tree.value),
            tree.output,
        )
        for tree in model.trees
    ]
    base = tuple(score % 2 for score in model.base)
    return TreeEnsemble(model.n_features, model.n_classes, "sum", tuple(trees), model.n_outputs, base)


@pytest.mark.parametrize("family", FAMILIES)
@examples(20)
@given(seed=st.integers(0, 2**31 - 1), classes=st.sampled_from([2, 3, 5]))
def test_every_decision_stays_whichever_class_comes_first(family: str, seed: int, classes: int) -> None:
    rng = np.random.default_rng(seed)
    model: Model = FAMILIES[family](rng, classes)
    rows = rng.integers(0, 1500, (300, model.n_features))
    before, scores = model.predict(rows)
    if family == "trees":
        assert ((scores == scores.max(axis=1, keepdims=True)).sum(axis=1) > 1).any()
    if family == "int8" and model.n_outputs > 1:  # equal scores go to the lowest number, whichever that is
        highest = scores.max(axis=1, keepdims=True)
        single = (scores == highest).sum(axis=1) == 1
        rows, before = rows[single], before[single]
    for first in range(model.n_classes):
        after = model.renumbered(first).predict(rows)[0]
        assert np.array_equal(after, (before - first) % model.n_classes)


def _leaf(*value: int) -> Tree:
    return Tree((LEAF,), (0,), (LEAF,), (LEAF,), (value,))


@pytest.mark.parametrize("first", range(4))
@pytest.mark.parametrize("equal", [(0, 1), (0, 3), (1, 2), (2, 3), (0, 1, 2, 3)])
def test_equal_scores_keep_their_winner(first: int, equal: tuple[int, ...]) -> None:
    scores = tuple(5 if number in equal else 4 for number in range(4))
    model = TreeEnsemble(1, 4, "sum", (_leaf(*scores),), 4, (0, 0, 0, 0))
    assert model.predict_one([0])[0] == equal[0]
    assert model.renumbered(first).predict_one([0])[0] == (equal[0] - first) % 4


def test_votes_are_renumbered_only_where_they_cannot_be_equal() -> None:
    rng = np.random.default_rng(3)
    for trees, classes, sound in ((1, 5, True), (3, 2, True), (2, 2, False), (3, 3, False)):
        model = random_tree_ensemble(rng, votes="majority", n_classes=classes, n_trees=trees)
        rows = rng.integers(0, 1500, (300, model.n_features))
        if sound:
            after = model.renumbered(1).predict(rows)[0]
            assert np.array_equal(after, (model.predict(rows)[0] - 1) % classes)
        else:
            with pytest.raises(InputError, match="equal votes go to the class with the lowest number"):
                model.renumbered(1)


def test_classes_with_a_meaning_of_their_own_stay_where_they_are() -> None:
    rng = np.random.default_rng(4)
    bank = random_binary_bank(rng)
    assert bank.renumbered(0) is bank
    with pytest.raises(InputError, match="class 0 of a bank"):
        bank.renumbered(1)
    model = FAMILIES["trees"](rng, 3)
    rows = rng.integers(0, 1500, (300, model.n_features))
    bounded = Bounded.by(model, rows[:20])
    outside = bounded.outside(rows)
    assert outside.any() and not outside.all()
    before, after = bounded.predict(rows)[0], bounded.renumbered(2).predict(rows)[0]
    assert np.array_equal(after, np.where(outside, 3, (before - 2) % 3))
    with pytest.raises(InputError, match="class unknown has no score"):
        bounded.renumbered(3)


# -- estimators, whose libraries sort the names of classes

X = np.random.default_rng(5).integers(0, 12, (400, 3))
NAMES = np.array(["attack", "benign", "portscan", "worm"])
Y4 = NAMES[(X[:, 0] + X[:, 1] * X[:, 2]) % 4]
Y2 = NAMES[(X[:, 0] > X[:, 1]).astype(int)]


@pytest.mark.parametrize("labels", [Y2, Y4], ids=["two classes", "four classes"])
@pytest.mark.parametrize(
    "estimator",
    [
        DecisionTreeClassifier(max_depth=3, random_state=0),
        RandomForestClassifier(2, max_depth=4, random_state=0),  # two trees often disagree evenly
        ExtraTreesClassifier(4, random_state=0),
        GradientBoostingClassifier(n_estimators=4, random_state=0),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_benign_is_class_0_and_every_row_gets_the_estimators_class(estimator: Any, labels: Any) -> None:
    imported = import_model(estimator.fit(X, labels))
    assert imported.classes == ["benign", *sorted({*labels} - {"benign", "attack"}), "attack"]
    everywhere = np.stack(np.meshgrid(*[np.arange(12)] * 3), axis=-1).reshape(-1, 3)
    numbers = imported.model.predict(everywhere)[0]
    assert np.array_equal(np.array(imported.classes)[numbers], estimator.predict(everywhere))
    assert np.array_equal(numbers, imported.predict(everywhere))
    assert [note for note in imported.notes if "class 0 is benign, class 1 of the estimator" in note]


def test_a_network_is_renumbered_too() -> None:
    for labels in (Y2, Y4):
        network = MLPClassifier((8,), max_iter=400, random_state=0).fit(X, labels)
        imported = import_model(network, rows=X, labels=labels.tolist())
        assert imported.classes[0] == "benign"
        said = np.array(imported.classes)[imported.model.predict(X)[0]]
        assert (said == network.predict(X)).mean() > 0.9
        assert np.array_equal(np.array(imported.classes)[imported.predict(X)], network.predict(X))


@pytest.mark.parametrize(
    ("names", "asked", "first"),
    [
        (["DoS", "Normal"], None, "Normal"),
        (["background", "benign"], None, "benign"),
        (["benign", "attack"], None, "benign"),
        (["attack", "web"], None, "attack"),
        (["attack", "web"], "web", "web"),
        (["attack", "benign"], "attack", "attack"),
    ],
)
def test_the_benign_class_is_told_by_its_name_or_named(
    names: list[str], asked: str | None, first: str
) -> None:
    tree = DecisionTreeClassifier(random_state=0).fit(X, (X[:, 0] > 5).astype(int))
    imported = import_model(tree, classes=names, benign=asked)
    assert imported.classes == [first, *(name for name in names if name != first)]
    said = np.array(imported.classes)[imported.model.predict(X)[0]]
    assert np.array_equal(said, np.array(names)[(X[:, 0] > 5).astype(int)])
    assert ("class 0 is" in " ".join(imported.notes)) == (first != names[0])


def test_trees_that_vote_keep_their_order_and_say_so() -> None:
    forest = RandomForestClassifier(4, max_depth=4, random_state=0).fit(X, Y4)
    imported = import_model(forest, votes="majority")
    assert imported.classes == NAMES.tolist()
    assert [note for note in imported.notes if note.startswith("benign stays class 1, so no margin")]
    with pytest.raises(InputError, match=r"class 'benign' cannot become class 0: .* add up class fractions"):
        import_model(forest, votes="majority", benign="benign")


def test_a_benign_class_that_cannot_be_is_refused() -> None:
    forest = RandomForestClassifier(2, random_state=0).fit(X, Y4)
    with pytest.raises(InputError, match=r"has no class .bening. that could be the benign one.*benign"):
        import_model(forest, benign="bening")
    features = ww.FeatureSet.from_dict({"name": "x", "features": ["length", "ttl", "protocol"]})
    with pytest.raises(InputError, match="benign: the model was imported before"):
        ww.compile(import_model(forest), features, benign="attack", verify="never")
