# SPDX-License-Identifier: Apache-2.0
"""LightGBM: LGBMClassifier, Booster, and model files (.txt), all read from the text form of the model.

LightGBM compares `<=` in float64 and adds float64 leaves. Its Python package rounds an integer numpy array to
float32 before that, but not a float64 one; the integer thresholds here are those of float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wirewise.importers.lightgbm_text import (
    DEFAULT_LEFT,
    MISSING_ZERO,
    TextModel,
    TextTree,
    positions,
    read,
)
from wirewise.importers.lowering import (
    SourceTree,
    build,
    check_features,
    class_names,
    cuts_at,
    library,
    only_sum,
)
from wirewise.importers.request import Imported, Predict, Request, Rows
from wirewise.importers.sklearn_estimators import predict_with
from wirewise.models.tree import LEAF

OBJECTIVES = ("binary", "multiclass")
_OFF = ("false", "none", "0", "-")  # as LightGBM reads them


def import_classifier(estimator: Any, request: Request) -> Imported:
    """A fitted LGBMClassifier (up to the best iteration after early stopping, as its `predict`)."""
    try:
        booster = estimator.booster_
    except library("sklearn.exceptions").NotFittedError:
        raise request.refuse("is not fitted", "call fit first") from None
    if str(estimator.get_params().get("pred_early_stop", False)).lower() not in _OFF:
        raise request.refuse(
            "leaves out the last trees of rows that are clear early (pred_early_stop)",
            "set pred_early_stop=False; training does not depend on it",
        )
    model = read(booster.model_to_string(), request)
    predict = predict_with(request.outer or estimator, np.float64)
    return _import(model, request, predict, estimator.classes_.tolist())


def import_booster(booster: Any, request: Request) -> Imported:
    """Import a Booster up to its best iteration, which is what its `predict` uses."""
    return _import(read(booster.model_to_string(), request), request, _predict(booster))


def import_file(path: str, request: Request) -> Imported:
    """A text file that `save_model` wrote."""
    lightgbm = library("lightgbm")
    model = read(Path(path).read_bytes(), request)

    def predict(x: Rows) -> Any:
        return _predict(lightgbm.Booster(model_str=model.text))(x)

    return _import(model, request, predict)


def _import(
    model: TextModel, request: Request, predict: Predict, own_names: Sequence[object] = ()
) -> Imported:
    only_sum(request)
    objective = (model.objective.split() or ["none"])[0]
    if objective not in OBJECTIVES:
        raise request.refuse(
            f"has the objective {objective}, known are {', '.join(OBJECTIVES)}",
            "train a classifier with one of those",
        )
    names = class_names(request, own_names or range(max(model.n_outputs, 2)))
    built = build(
        request,
        [
            _source(tree, index % model.n_outputs if model.n_outputs > 1 else None, request)
            for index, tree in enumerate(model.trees)
        ],
        n_features=check_features(request, model.n_features),
        n_classes=len(names),
        base=(0.0,) * model.n_outputs,
    )
    notes = [
        built.note,
        "LightGBM rounds integer numpy arrays to float32: give it float64 to see the same paths",
    ]
    unnamed = model.feature_names == [f"Column_{index}" for index in range(model.n_features)]
    return Imported(
        model=built.model,
        classes=names,
        source=f"LightGBM {library('lightgbm').__version__} {objective}",
        notes=notes,
        node_ids=built.node_ids,
        predict=predict,
        feature_names=None if unnamed else model.feature_names,
    )


def _source(tree: TextTree, output: int | None, request: Request) -> SourceTree:
    """Splits in their order, then leaves."""
    splits, leaves = len(tree.feature), len(tree.value)
    at_leaves = np.zeros(leaves)
    left, right = positions(tree)
    source = SourceTree(
        feature=np.concatenate([tree.feature, np.full(leaves, LEAF)]),
        cuts=cuts_at(np.concatenate([tree.threshold, at_leaves]), np.float64),
        left=left,
        right=right,
        scores=np.concatenate([np.zeros(splits), tree.value])[:, None],
        output=output,
        ids=np.concatenate([np.arange(splits), np.arange(leaves)]),
    )
    # With zero_as_missing a 0 takes the default branch, which must be the one where `0 <= threshold` goes.
    zero_left = (source.cuts.threshold >= 0) & ~source.cuts.never
    default_left = (tree.decision & DEFAULT_LEFT) > 0
    if ((tree.missing == MISSING_ZERO) & (default_left != zero_left[:splits])).any():
        raise request.refuse("treats 0 as a missing value", "train it with zero_as_missing=False")
    return source


def _predict(booster: Any) -> Predict:
    def predict(x: Rows) -> Any:
        chances = booster.predict(x.astype(np.float64))
        classes = chances > 0.5 if chances.ndim == 1 else chances.argmax(axis=1)
        return classes.astype(np.int32)

    return predict
