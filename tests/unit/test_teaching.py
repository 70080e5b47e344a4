# SPDX-License-Identifier: Apache-2.0
"""Distillation: what a student learns, and what is said of a teacher that may have seen too much."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.tree import DecisionTreeClassifier

from tests.examples import examples
from tests.unit.test_search import CLASSES, table
from wirewise.errors import InputError
from wirewise.evaluate import train
from wirewise.evaluate.lesson import LEAST_SCORE, SHARE, softened
from wirewise.evaluate.teaching import TEACHERS, Fitted
from wirewise.importers import import_model


@examples(30)
@given(st.integers(0, 2**31 - 1), st.integers(2, 4))
def test_a_leaf_has_the_mean_score_of_its_rows(seed: int, classes: int) -> None:
    rng = np.random.default_rng(seed)
    rows, scores = rng.integers(0, 50, (40, 2)), rng.dirichlet(np.ones(classes) * 0.3, 40)
    weights = rng.uniform(0.5, 2, 40)
    many, labels, given_ = softened(rows, weights, scores)
    assert given_.sum() == pytest.approx(weights.sum()) and (given_ > 0).all()
    tree = DecisionTreeClassifier(max_depth=2, random_state=0).fit(many, labels, given_)
    kept = np.where(scores < LEAST_SCORE, 0, scores)
    kept /= kept.sum(axis=1, keepdims=True)
    leaves, shares = tree.apply(rows), tree.predict_proba(rows)
    for leaf in set(leaves):
        mine = leaves == leaf
        mean = (kept[mine] * weights[mine, None]).sum(axis=0) / weights[mine].sum()
        assert shares[mine][0] == pytest.approx(mean[tree.classes_], abs=1e-9)


def test_a_student_is_lowered_exactly_and_reported_beside_direct_training() -> None:
    taught = train(table(), "tree", depth=3, teacher="forest", folds=0)
    direct = train(table(), "tree", depth=3, folds=0)
    assert taught.taught is not None and taught.facts["teacher"] == "forest"
    by_name = {model.name: model for model in taught.taught.models}
    assert by_name["direct"].accuracy == direct.report.accuracy
    assert by_name["student"].accuracy == taught.report.accuracy
    assert set(by_name) == {"teacher", "student", "direct"} and 0 < SHARE < 1
    imported = import_model(taught.estimator, classes=taught.classes)
    rows = np.random.default_rng(0).integers(0, 500, (1000, 3))
    assert (imported.model.predict(rows)[0] == taught.estimator.predict(rows)).all()


@pytest.mark.parametrize(("name", "folds"), [(name, 2 * (name == "extra-trees")) for name in TEACHERS])
def test_every_teacher_teaches_and_is_cross_validated_if_asked(name: str, folds: int) -> None:
    taught = train(table(captures=6, flows=3), "tree", depth=2, teacher=name, folds=folds)
    assert (
        bool(taught.folds) == bool(folds)
        and taught.taught
        and not [each for each in taught.doubts if "teacher" in each]
    )


def test_a_teacher_from_elsewhere_is_doubted_unless_it_is_known_to_have_kept_apart() -> None:
    own = table()
    names = own.feature_set.feature_names
    fitted = DecisionTreeClassifier().fit(own.frame[names].to_numpy(), own.frame["label"].to_numpy())
    assert any("teacher" in doubt for doubt in train(own, "tree", teacher=fitted).doubts)
    known = train(own, "tree", teacher=Fitted(fitted, "forest.pkl", apart=True))
    assert not any("teacher" in doubt for doubt in known.doubts) and known.facts["teacher"] == "forest.pkl"


def test_a_teacher_that_does_not_fit_is_refused() -> None:
    own = table()
    rows, labels = np.zeros((6, 3)), np.repeat(["a", "b"], 3)
    for wrong, said in (
        ("forrest", "did you mean 'forest'"),
        (DecisionTreeClassifier().fit(rows, labels), "none of the table's classes, but a, b"),
        (DecisionTreeClassifier().fit(rows[:, :2], np.repeat(CLASSES[:2], 3)), "reads 2 features"),
        (object(), "no predict_proba"),
    ):
        with pytest.raises(InputError, match=said):
            train(own, "tree", teacher=wrong, folds=0)
