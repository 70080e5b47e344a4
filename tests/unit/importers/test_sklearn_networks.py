# SPDX-License-Identifier: Apache-2.0
"""scikit-learn networks: the float network says what the estimator says, and the integers nearly so."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, PowerTransformer, RobustScaler, StandardScaler
from sklearn.svm import LinearSVC

from wirewise.errors import InputError
from wirewise.importers import import_model
from wirewise.models import FixedPointMlp, QuantizedMlp
from wirewise.quantize import Options

RNG = np.random.default_rng(3)
X = np.stack(
    [
        RNG.integers(0, 1500, 600),
        RNG.integers(0, 65536, 600),
        RNG.geometric(1e-3, 600) ** 2,
        RNG.integers(0, 2, 600),
    ],
    axis=1,
)
TWO = (X[:, 0] > 700).astype(int)
THREE = (X[:, 0] > 700) + (X[:, 1] > 30_000).astype(int)


def fit(*steps: Any, y: Any = THREE, hidden: tuple[int, ...] = (8, 6), **options: Any) -> Any:
    mlp = MLPClassifier(hidden, max_iter=40, random_state=0, learning_rate_init=0.01, **options)
    model = make_pipeline(*steps, mlp) if steps else mlp
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, y)


@pytest.mark.parametrize("y", [TWO, THREE, np.array(["b", "a", "c"])[THREE]], ids=["two", "three", "text"])
@pytest.mark.parametrize(
    "scaler",
    [
        StandardScaler(),
        StandardScaler(with_mean=False),
        StandardScaler(with_std=False),
        MinMaxScaler(),
        MinMaxScaler((-1, 1), clip=True),
        MaxAbsScaler(),
        RobustScaler(),
    ],
    ids=str,
)
def test_the_float_network_says_what_the_estimator_says(scaler: Any, y: Any) -> None:
    if isinstance(scaler, StandardScaler) and not scaler.with_std:
        estimator = fit(scaler, StandardScaler(), y=y)
    else:
        estimator = fit(scaler, y=y)
    imported = import_model(estimator, rows=X, options=Options(network="q16"))
    assert imported.network is not None
    wide = X * np.array([3, 1, 5, 2]) - 200  # also where a clip works
    assert (imported.network.predict(wide) == imported.predict(wide)).all()
    assert imported.classes == [str(name) for name in estimator.classes_]
    assert imported.source.startswith("scikit-learn ") and "MLPClassifier 4-8-6-" in imported.source
    assert isinstance(imported.model, FixedPointMlp)
    agree = (imported.model.predict(X)[0] == imported.predict(X)).mean()
    assert agree > 0.995


@pytest.mark.parametrize("y", [TWO, THREE], ids=["two", "three"])
@pytest.mark.parametrize("scaler", [None, StandardScaler(), MinMaxScaler(clip=True), RobustScaler()], ids=str)
@pytest.mark.parametrize(
    "linear",
    [
        LogisticRegression(),
        LogisticRegression(fit_intercept=False),
        LinearSVC(random_state=0),
        LinearSVC(fit_intercept=False, random_state=0),
        SGDClassifier(random_state=0),
        SGDClassifier(loss="log_loss", average=True, random_state=0),
    ],
    ids=str,
)
def test_linear_classifiers_are_networks_of_one_layer(linear: Any, scaler: Any, y: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator = (make_pipeline(scaler, linear) if scaler else linear).fit(X, y)
    imported = import_model(estimator, rows=X)
    assert imported.network is not None and len(imported.network.weights) == 1
    wide = X * np.array([3, 1, 5, 2]) - 200
    assert (imported.network.predict(wide) == imported.predict(wide)).all()
    np.testing.assert_array_equal(imported.predict(wide), estimator.predict(wide))
    assert isinstance(imported.model, FixedPointMlp)  # unless int8 is asked for
    assert (imported.model.predict(X)[0] == imported.predict(X)).mean() > 0.995
    assert isinstance(import_model(estimator, rows=X, options=Options("int8")).model, QuantizedMlp)


def test_a_linear_classifier_says_what_it_needs() -> None:
    linear = LogisticRegression(max_iter=1000).fit(X, TWO)
    with pytest.raises(InputError, match="is a linear model, and no rows were given to quantise it with"):
        import_model(linear)
    with pytest.raises(InputError, match="is a linear model, it has no trees that could vote"):
        import_model(linear, rows=X, votes="majority")
    with pytest.raises(InputError, match="is not fitted"):
        import_model(make_pipeline(StandardScaler(), LogisticRegression()), rows=X)
    with pytest.raises(InputError, match=r"\(PowerTransformer\) cannot be folded into the inputs"):
        import_model(make_pipeline(PowerTransformer(), LogisticRegression()).fit(X, TWO), rows=X)


def test_int8_is_the_default_and_close() -> None:
    imported = import_model(fit(StandardScaler()), rows=X)
    assert isinstance(imported.model, QuantizedMlp)
    assert (imported.model.predict(X)[0] == imported.predict(X)).mean() > 0.97
    assert imported.notes[0].startswith("int8: kl calibration on 600 rows")


def test_a_network_without_scaler_or_hidden_layer() -> None:
    for estimator in (fit(hidden=()), fit(StandardScaler(), hidden=())):
        imported = import_model(estimator, rows=X, options=Options("q16"))
        assert imported.network is not None and len(imported.network.weights) == 1
        assert (imported.network.predict(X) == imported.predict(X)).all()


def test_names_and_numbers_of_features() -> None:
    import pandas

    frame = pandas.DataFrame(X, columns=["a", "b", "c", "d"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator = make_pipeline(StandardScaler(), MLPClassifier((4,), max_iter=5)).fit(frame, TWO)
    imported = import_model(estimator, rows=X, classes=["good", "bad"], options=Options("q16"))
    assert imported.feature_names == ["a", "b", "c", "d"] and imported.classes == ["good", "bad"]
    with pytest.raises(InputError, match="trained on 4 features, the feature set has 5"):
        import_model(estimator, rows=X, n_features=5)


def test_without_rows_it_says_what_to_give(tmp_path: Path) -> None:
    path = tmp_path / "nn.pkl"
    path.write_bytes(pickle.dumps(fit(StandardScaler())))
    with pytest.raises(
        InputError, match=r"nn.pkl: is a neural network, and no rows .*; give a table .*--table"
    ):
        import_model(path)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: fit(StandardScaler(), activation="tanh"), "activation 'tanh'; train it with"),
        (lambda: fit(PowerTransformer()), r"step 'powertransformer' \(PowerTransformer\) cannot be folded"),
        (lambda: fit(StandardScaler(), y=np.stack([TWO, 1 - TWO], axis=1)), "predicts several labels"),
        (lambda: fit(StandardScaler(), y=np.zeros(600, int)), "single class"),
        (lambda: fit(StandardScaler(), hidden=(200,)), "has 200 neurons, allowed are 1 to 128"),
        (lambda: make_pipeline(StandardScaler(), MLPClassifier()), "is not fitted"),
    ],
)
def test_what_cannot_be_imported_is_refused_in_one_line(make: Any, says: str) -> None:
    with pytest.raises(InputError, match=says) as error:
        import_model(make(), rows=X)
    assert "\n" not in str(error.value)


def test_broken_weights_are_refused_naming_layer_and_neuron() -> None:
    estimator = fit(StandardScaler())
    estimator[-1].coefs_[1][3, 2] = np.nan
    with pytest.raises(InputError, match="layer 1, neuron 2: has a weight or bias that is NaN, infinite"):
        import_model(estimator, rows=X)
    estimator[-1].coefs_[1][3, 2] = 1e300
    with pytest.raises(InputError, match="layer 1, neuron 2"):
        import_model(estimator, rows=X, options=Options("q16"))


def test_options_are_for_networks_and_majority_is_for_trees() -> None:
    forest = RandomForestClassifier(2, random_state=0).fit(X, TWO)
    with pytest.raises(InputError, match="no neural network"):
        import_model(forest, options=Options("q16"))
    with pytest.raises(InputError, match="no trees that could vote"):
        import_model(fit(StandardScaler()), rows=X, votes="majority")
    with pytest.raises(InputError, match="calibration 'max': is not known"):
        Options(calibration="max")
    with pytest.raises(InputError, match="network 'float': is not known"):
        Options(network="float")


def test_labels_may_hold_classes_the_network_does_not_have() -> None:
    labels = ["other" if index % 7 == 0 else str(label) for index, label in enumerate(THREE)]
    imported = import_model(fit(StandardScaler()), rows=X, labels=labels, options=Options(fine_tune=True))
    assert "accuracy lost on those rows" in imported.notes[1]
