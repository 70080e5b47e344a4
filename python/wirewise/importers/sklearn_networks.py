# SPDX-License-Identifier: Apache-2.0
"""scikit-learn's MLPClassifier, alone or behind scalers that are a factor and a shift per feature."""

from __future__ import annotations

from typing import Any

import numpy as np

from wirewise.importers.lowering import class_names, library
from wirewise.importers.networks import affine_input, import_network
from wirewise.importers.request import Imported, Request
from wirewise.importers.sklearn_estimators import check_fitted, predict_with
from wirewise.quantize import FloatNetwork
from wirewise.quantize.float_network import Floats

SCALERS = ("StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler")


def import_mlp(estimator: Any, request: Request) -> Imported:
    """An MLPClassifier that was trained on the integer features as they are."""
    return import_scaled([], estimator, request)


def is_network(estimator: Any) -> bool:
    return any(base.__name__ == "MLPClassifier" for base in type(estimator).__mro__)


def import_scaled(scalers: list[tuple[str, Any]], mlp: Any, request: Request) -> Imported:
    """An MLPClassifier behind named scalers."""
    check_fitted(mlp, request)
    hidden = len(mlp.coefs_) - 1
    if hidden and mlp.activation != "relu":
        raise request.refuse(
            f"its hidden layers have the activation {mlp.activation!r}", "train it with activation='relu'"
        )
    if mlp._label_binarizer.y_type_.startswith("multilabel"):
        raise request.refuse("predicts several labels", "train one classifier for the label you need")
    n_features = mlp.n_features_in_
    network = FloatNetwork(
        offset=np.zeros(n_features),
        scale=np.ones(n_features),
        weights=tuple(np.asarray(part, np.float64) for part in mlp.coefs_),
        biases=tuple(np.asarray(part, np.float64) for part in mlp.intercepts_),
        output="softmax" if mlp.out_activation_ == "softmax" else "sigmoid",
    )
    for name, scaler in reversed(scalers):
        network = affine_input(network, *_affine(name, scaler, n_features, request))
    first = scalers[0][1] if scalers else mlp
    trained_on = getattr(first, "feature_names_in_", None)
    return import_network(
        network,
        request,
        classes=class_names(request, mlp.classes_.tolist()),
        source=f"scikit-learn {library('sklearn').__version__} {type(mlp).__name__}",
        predict=predict_with(request.outer or mlp),
        feature_names=None if trained_on is None else list(map(str, trained_on)),
    )


def _affine(
    name: str, scaler: Any, n_features: int, request: Request
) -> tuple[Floats, Floats, tuple[Floats, Floats] | None]:
    """Factor and shift (n_features,) of a scaler, and its clip."""
    kind = type(scaler).__name__
    if kind not in SCALERS:
        raise request.refuse(
            f"is a pipeline whose step {name!r} ({kind}) cannot be folded into the network's inputs",
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
