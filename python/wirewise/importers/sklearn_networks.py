# SPDX-License-Identifier: Apache-2.0
"""scikit-learn's MLPClassifier and linear classifiers, alone or behind scalers.

A linear classifier is a network without hidden layers, a scaler a factor and a shift for each feature.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from wirewise.importers.lowering import class_names, library
from wirewise.importers.networks import affine_input, import_network, standardised
from wirewise.importers.request import Imported, Request
from wirewise.importers.sklearn_estimators import check_fitted, predict_with
from wirewise.quantize import FloatNetwork, Options
from wirewise.quantize.float_network import Floats

SCALERS = ("StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler")


def import_alone(estimator: Any, request: Request) -> Imported:
    """A network or linear classifier that was trained on the integer features as they are."""
    return import_scaled([], estimator, request)


def import_scaled(scalers: list[tuple[str, Any]], estimator: Any, request: Request) -> Imported:
    """A network or linear classifier behind named scalers."""
    check_fitted(estimator, request)
    linear = hasattr(estimator, "coef_")
    network = _linear(estimator) if linear else _mlp(estimator, request)
    if linear and request.options is None:  # of one layer, 32-bit weights cost hardly more than 8-bit ones
        request = replace(request, options=Options("q16"))
    for name, scaler in reversed(scalers):
        network = affine_input(network, *_affine(name, scaler, network.n_features, request))
    if linear and request.rows is not None and request.rows.shape[1:] == (network.n_features,):
        network = standardised(network, request.rows)  # rows of another width are refused later
    first = scalers[0][1] if scalers else estimator
    trained_on = getattr(first, "feature_names_in_", None)
    return import_network(
        network,
        request,
        classes=class_names(request, estimator.classes_.tolist()),
        source=f"scikit-learn {library('sklearn').__version__} {type(estimator).__name__}",
        predict=predict_with(request.outer or estimator),
        feature_names=None if trained_on is None else list(map(str, trained_on)),
        kind="a linear model" if linear else "a neural network",
    )


def _mlp(mlp: Any, request: Request) -> FloatNetwork:
    hidden = len(mlp.coefs_) - 1
    if hidden and mlp.activation != "relu":
        raise request.refuse(
            f"its hidden layers have the activation {mlp.activation!r}", "train it with activation='relu'"
        )
    if mlp._label_binarizer.y_type_.startswith("multilabel"):
        raise request.refuse("predicts several labels", "train one classifier for the label you need")
    return FloatNetwork(
        offset=np.zeros(mlp.n_features_in_),
        scale=np.ones(mlp.n_features_in_),
        weights=tuple(np.asarray(part, np.float64) for part in mlp.coefs_),
        biases=tuple(np.asarray(part, np.float64) for part in mlp.intercepts_),
        output="softmax" if mlp.out_activation_ == "softmax" else "sigmoid",
    )


def _linear(estimator: Any) -> FloatNetwork:
    """Its decision function, which has one output for two classes: class 1 above 0; else the largest wins."""
    weights = np.asarray(estimator.coef_, np.float64).T
    return FloatNetwork(
        offset=np.zeros(len(weights)),
        scale=np.ones(len(weights)),
        weights=(weights,),
        biases=(np.broadcast_to(np.asarray(estimator.intercept_, np.float64), weights.shape[1:]).copy(),),
    )


def _affine(
    name: str, scaler: Any, n_features: int, request: Request
) -> tuple[Floats, Floats, tuple[Floats, Floats] | None]:
    """Factor and shift (n_features,) of a scaler, and its clip."""
    kind = type(scaler).__name__
    if kind not in SCALERS:
        raise request.refuse(
            f"is a pipeline whose step {name!r} ({kind}) cannot be folded into the inputs of a network",
            f"scale with one of {', '.join(SCALERS)}",
        )
    check_fitted(scaler, request)
    zeros, ones = np.zeros(n_features), np.ones(n_features)
    if kind == "MinMaxScaler":
        low, high = scaler.feature_range
        clip = (np.full(n_features, float(low)), np.full(n_features, float(high))) if scaler.clip else None
        return scaler.scale_, scaler.min_, clip
    clip = (-ones, ones) if kind == "MaxAbsScaler" and getattr(scaler, "clip", False) else None
    factor = ones if scaler.scale_ is None else 1 / scaler.scale_
    centre = getattr(scaler, "center_" if kind == "RobustScaler" else "mean_", None)
    if kind == "StandardScaler" and not scaler.with_mean:
        centre = None
    return factor, (zeros if centre is None else -centre * factor), clip
