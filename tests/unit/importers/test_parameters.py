# SPDX-License-Identifier: Apache-2.0
"""Every parameter that an estimator's predict depends on: kept, or refused by name; none is forgotten."""

from __future__ import annotations

import contextlib
import pickle
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.dummy
import sklearn.ensemble
import sklearn.linear_model
import sklearn.model_selection
import sklearn.neural_network
import sklearn.pipeline
import sklearn.preprocessing
import sklearn.svm
import sklearn.tree
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from tests import needs
from wirewise.errors import InputError
from wirewise.evaluate.fidelity import agreement
from wirewise.importers import import_model
from wirewise.importers.parameters import PARAMETERS, parameters_table
from wirewise.quantize import Options

xgboost = needs.package("xgboost")
lightgbm = needs.package("lightgbm")

ROOT = Path(__file__).parents[3]
HOMES = (
    sklearn.tree, sklearn.ensemble, sklearn.neural_network, sklearn.preprocessing, sklearn.pipeline,
    sklearn.model_selection, sklearn.linear_model, sklearn.svm, xgboost, lightgbm,
)  # fmt: skip
RNG = np.random.default_rng(4)
X = RNG.integers(0, 1500, (600, 4))
THREE = ((X[:, 0] + RNG.normal(0, 200, 600)) // 500).astype(int).clip(0, 2)
TWO = (THREE > 0).astype(int)
WIDE = np.concatenate([X, RNG.integers(-1500, 3000, (2000, 4)), RNG.integers(-2, 2, (200, 4))])


def estimator_of(name: str) -> type[Any]:
    return next(getattr(home, name) for home in HOMES if hasattr(home, name))


def parameters_of(kind: type[Any]) -> set[str]:
    """As the class itself names them; XGBoost's and LightGBM's pass those of their parents on."""
    known = set(kind._get_param_names())
    with contextlib.suppress(TypeError):  # a pipeline or a search needs arguments
        known |= set(kind().get_params())
    return known


@pytest.mark.parametrize("name", [name for one in PARAMETERS for name in one.estimators])
def test_the_table_names_every_parameter(name: str) -> None:
    named = next(one for one in PARAMETERS if name in one.estimators).names
    assert not parameters_of(estimator_of(name)) - named, (
        "a parameter is new: is predict the same without it?"
    )


def test_the_table_names_what_lightgbm_reads_at_prediction() -> None:
    known = lightgbm.basic._ConfigAliases._get_all_param_aliases()
    named = next(one for one in PARAMETERS if "LGBMClassifier" in one.estimators).names
    at_prediction = {name for name in known if re.search("pred|missing|sigmoid|linear_tree", name)}
    assert not at_prediction - named - {"output_result", "use_missing"}  # of its program; in the trees


def test_the_documentation_shows_the_table() -> None:
    assert parameters_table() in (ROOT / "docs" / "importers.md").read_text(), (
        "docs/importers.md: replace its table with wirewise.importers.parameters.parameters_table()"
    )


def xgb(**parameters: Any) -> Any:
    return xgboost.XGBClassifier(n_estimators=3, max_depth=3, n_jobs=1, **parameters)


def lgbm(**parameters: Any) -> Any:
    return lightgbm.LGBMClassifier(n_estimators=3, verbose=-1, n_jobs=1, **parameters)


def boosting(**parameters: Any) -> Any:
    return GradientBoostingClassifier(n_estimators=3, **parameters)


def custom(truth: Any, margins: Any) -> Any:
    return 1 / (1 + np.exp(-margins)) - truth, np.full_like(margins, 0.25)


def network(*scalers: Any) -> Any:
    return make_pipeline(*scalers, MLPClassifier((6,), max_iter=60, random_state=0, learning_rate_init=0.01))


KEPT = {
    "xgb softmax": (xgb(objective="multi:softmax"), THREE),
    "xgb softmax of two": (xgb(objective="multi:softmax", num_class=2), TWO),
    "xgb function": (xgb(objective=custom), TWO),
    "xgb dart": (xgb(booster="dart", rate_drop=0.5), THREE),
    "xgb base_score": (xgb(base_score=0.9), TWO),
    "xgb types": (xgb(feature_types=["int", "float", "q", "i"]), TWO),
    "xgb missing inf": (xgb(missing=np.inf), TWO),
    "xgb missing fraction": (xgb(missing=0.5), TWO),
    "xgb forest": (xgboost.XGBRFClassifier(n_estimators=4, max_depth=3, n_jobs=1), THREE),
    "lgbm rf": (lgbm(boosting_type="rf", bagging_freq=1, bagging_fraction=0.5), THREE),
    "lgbm dart": (lgbm(boosting_type="dart"), TWO),
    "lgbm sigmoid": (lgbm(sigmoid=3.0), TWO),
    "lgbm unbalanced": (lgbm(is_unbalance=True), TWO),
    "lgbm early stop off": (lgbm(pred_early_stop="false"), TWO),
    "lgbm arguments of predict": (
        lgbm(
            num_iteration_predict=1,
            start_iteration_predict=2,
            predict_raw_score=True,
            predict_leaf_index=True,
        ),
        TWO,
    ),
    "exponential": (boosting(loss="exponential"), TWO),
    "zero": (boosting(init="zero", learning_rate=0.7), THREE),
    "exponential from zero": (boosting(init="zero", loss="exponential"), TWO),
    "uniform": (boosting(init=sklearn.dummy.DummyClassifier(strategy="uniform")), THREE),
    "histograms": (HistGradientBoostingClassifier(max_iter=3, categorical_features=[False] * 4), TWO),
    "monotonic": (DecisionTreeClassifier(max_depth=4, monotonic_cst=[1, 0, 0, 0]), TWO),
    "grid": (GridSearchCV(DecisionTreeClassifier(max_depth=3), {"max_depth": [2, 4]}), THREE),
    "pipeline": (make_pipeline("passthrough", lgbm()), THREE),
    **{
        str(scaler): (network(scaler), THREE)
        for scaler in (
            StandardScaler(with_mean=False),
            StandardScaler(),
            MinMaxScaler((-2, 3)),
            MinMaxScaler((-1, 1), clip=True),
            MaxAbsScaler(),
            MaxAbsScaler(clip=True),
            RobustScaler(unit_variance=True, quantile_range=(10.0, 80.0)),
            RobustScaler(with_centering=False),
        )
    },
}


def fitted(estimator: Any, y: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return estimator.fit(X, y)


@pytest.mark.parametrize("name", KEPT)
def test_what_is_kept_is_kept(name: str) -> None:
    """The integers say what the estimator's own predict says, and it is what agreement is measured with."""
    estimator = fitted(*KEPT[name])
    is_network = "MLP" in str(estimator)
    imported = import_model(estimator, rows=WIDE, options=Options("q16") if is_network else None)
    rows = WIDE.astype(float) if "LGBM" in str(estimator) else WIDE
    own = np.searchsorted(estimator.classes_, estimator.predict(rows))
    np.testing.assert_array_equal(imported.predict(WIDE), own)
    if imported.network is not None:
        assert (imported.network.predict(WIDE) == own).mean() > 0.999
    else:
        assert agreement(imported, WIDE)["agree"] == len(WIDE)


REFUSED = {
    "missing=0": (xgb(missing=0), TWO, r"treats 0 as a missing value \(missing=0\)"),
    "missing=-1": (xgb(missing=-1), TWO, r"treats -1 as a missing value \(missing=-1\)"),
    "hinge": (xgb(objective="binary:hinge"), TWO, "has the objective binary:hinge"),
    "softprob of two": (
        xgb(objective="multi:softprob", num_class=2),
        TWO,
        "objective multi:softprob with two",
    ),
    "gblinear": (xgb(booster="gblinear"), TWO, "gblinear"),
    "vectors": (xgb(multi_strategy="multi_output_tree", tree_method="hist"), THREE, "multi_strategy"),
    "categories": (xgb(feature_types=["c", "q", "q", "q"], enable_categorical=True), TWO, "categorical"),
    "pred_early_stop": (lgbm(pred_early_stop=True), TWO, r"\(pred_early_stop\); set pred_early_stop=False"),
    "pred_early_stop as text": (lgbm(pred_early_stop="+"), TWO, "pred_early_stop"),
    "linear_tree": (lgbm(linear_tree=True), TWO, "linear_tree=False"),
    "zero_as_missing": (lgbm(zero_as_missing=True), TWO, "zero_as_missing=False"),
    "cross_entropy": (lgbm(objective="cross_entropy"), TWO, "has the objective cross_entropy"),
    "function": (lgbm(objective=custom), TWO, "has the objective none"),
    "init": (boosting(init=DecisionTreeClassifier(max_depth=2)), THREE, "init=DecisionTreeClassifier"),
    "tanh": (MLPClassifier((4,), activation="tanh", max_iter=5), TWO, "the activation 'tanh'"),
    "refit": (GridSearchCV(DecisionTreeClassifier(), {"max_depth": [2]}, refit=False), TWO, "refit=False"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_kept_is_refused_by_name(name: str) -> None:
    estimator, y, says = REFUSED[name]
    with pytest.raises(InputError, match=says):
        import_model(fitted(estimator, y), rows=X)


def test_a_parameter_that_is_set_after_training_counts() -> None:
    estimator = fitted(xgb(), TWO).set_params(missing=0)
    with pytest.raises(InputError, match="missing=0"):
        import_model(estimator)


def test_missing_counts_in_pipelines_searches_and_files(tmp_path: Path) -> None:
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(fitted(xgb(missing=0), TWO)))
    for source in (
        fitted(make_pipeline("passthrough", xgb(missing=0)), TWO),
        fitted(GridSearchCV(xgb(missing=0), {"max_depth": [2, 3]}, cv=2), TWO),
        tmp_path / "model.pkl",
    ):
        with pytest.raises(InputError, match="missing=0"):
            import_model(source)


class Stubborn(DecisionTreeClassifier):  # type: ignore[misc]
    """A subclass that predicts by a rule of its own."""

    def predict(self, X: Any, check_input: bool = True) -> Any:
        return np.zeros(len(X), int)


class Wordy(DecisionTreeClassifier):  # type: ignore[misc]
    def predict(self, X: Any, check_input: bool = True) -> Any:
        return np.full(len(X), 7)


def test_agreement_is_with_the_estimators_own_predict() -> None:
    imported = import_model(fitted(Stubborn(max_depth=2), TWO))
    measured = agreement(imported, X)
    assert measured["agree"] == int((imported.model.predict(X)[0] == 0).sum()) < len(X)
    with pytest.raises(InputError, match="something else than one of its classes_"):
        import_model(fitted(Wordy(max_depth=2), TWO)).predict(X)


def test_a_predict_that_fails_is_one_line() -> None:
    estimator = fitted(xgb(), TWO).set_params(missing=None)
    with pytest.raises(InputError, match="XGBClassifier: its own predict fails"):
        import_model(estimator).predict(X)
