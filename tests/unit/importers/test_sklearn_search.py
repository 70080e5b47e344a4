# SPDX-License-Identifier: Apache-2.0
"""Searches over parameters are unwrapped; what wraps estimators in another way is refused, saying why."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    RandomForestClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    HalvingGridSearchCV,
    RandomizedSearchCV,
    TunedThresholdClassifierCV,
)
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from wirewise.errors import InputError
from wirewise.importers import import_model

RNG = np.random.default_rng(3)
X = RNG.integers(0, 1000, (300, 3))
Y = np.where(X[:, 0] + X[:, 2] > 900, "attack", "benign")
GRID = {"max_depth": [1, 3]}


def tree() -> DecisionTreeClassifier:
    return DecisionTreeClassifier(random_state=0)


@pytest.mark.parametrize(
    "search",
    [
        GridSearchCV(tree(), GRID, cv=2),
        RandomizedSearchCV(tree(), GRID, n_iter=2, cv=2),
        HalvingGridSearchCV(tree(), GRID, cv=2),
        GridSearchCV(make_pipeline(tree()), {"decisiontreeclassifier__max_depth": [3]}, cv=2),
        make_pipeline(GridSearchCV(tree(), GRID, cv=2)),
    ],
    ids=lambda search: type(search).__name__,
)
def test_the_best_estimator_of_a_search_is_taken(search: Any) -> None:
    search.fit(X, Y)
    imported = import_model(search)
    named = [imported.classes[number] for number in imported.model.predict(X)[0]]
    assert named == search.predict(X).tolist()
    assert (imported.predict(X) == imported.model.predict(X)[0]).all()
    assert "DecisionTreeClassifier" in imported.source
    inner = search if hasattr(search, "best_params_") else search[-1]
    assert any(
        "best_estimator_" in note and type(inner).__name__ in note and "max_depth=3" in note
        for note in imported.notes
    )


def test_a_network_that_was_searched_behind_a_scaler() -> None:
    search = GridSearchCV(MLPClassifier((4,), max_iter=30, random_state=0), {"alpha": [0.1]}, cv=2)
    pipeline = make_pipeline(StandardScaler(), search)
    with pytest.warns(Warning):  # it has not converged
        pipeline.fit(X, Y)
    imported = import_model(pipeline, rows=X)
    assert (imported.predict(X) == imported.model.predict(X)[0]).mean() > 0.9
    assert imported.notes[0] == "the best_estimator_ of GridSearchCV was taken: alpha=0.1"


def test_a_search_without_an_estimator_is_refused() -> None:
    with pytest.raises(InputError, match=r"GridSearchCV: kept no best_estimator_.*refit=False; search with"):
        import_model(GridSearchCV(tree(), GRID, cv=2, refit=False).fit(X, Y))
    with pytest.raises(InputError, match="GridSearchCV: is not fitted"):
        import_model(GridSearchCV(tree(), GRID))


def test_what_was_searched_may_itself_be_refused() -> None:
    search = GridSearchCV(CalibratedClassifierCV(tree(), cv=2), {"method": ["sigmoid"]}, cv=2).fit(X, Y)
    with pytest.raises(InputError, match=r"GridSearchCV, best_estimator_: bends the scores"):
        import_model(search)


@pytest.mark.parametrize(
    ("estimator", "says"),
    [
        (CalibratedClassifierCV(tree(), cv=2), "the estimator that it was given"),
        (VotingClassifier([("a", tree()), ("b", tree())]), r"\.estimators_"),
        (StackingClassifier([("a", tree())], cv=2), r"\.estimators_"),
        (BaggingClassifier(tree()), "RandomForestClassifier"),
        (AdaBoostClassifier(), "GradientBoostingClassifier"),
        (OneVsRestClassifier(tree()), "without it"),
        (OneVsOneClassifier(tree()), "without it"),
        (MultiOutputClassifier(tree()), "one classifier for the output"),
        (FixedThresholdClassifier(tree()), r"\.estimator_"),
        (TunedThresholdClassifierCV(tree(), cv=2), r"\.estimator_"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_wrappers_are_refused_with_a_way_out(estimator: Any, says: str) -> None:
    binary = (Y == "attack").astype(int)
    fitted = estimator.fit(X, binary[:, None] if isinstance(estimator, MultiOutputClassifier) else binary)
    with pytest.raises(InputError) as caught:
        import_model(fitted)
    assert caught.value.subject == type(estimator).__name__
    assert caught.value.rule and "cannot be imported" not in caught.value.rule
    assert re.search(says, caught.value.way_out), str(caught.value)


def test_a_subclass_of_what_is_refused_is_refused_alike() -> None:
    class Mine(VotingClassifier):
        pass

    with pytest.raises(InputError, match="Mine: asks several estimators"):
        import_model(Mine([("a", RandomForestClassifier(2))]).fit(X, Y))
