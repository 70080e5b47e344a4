# SPDX-License-Identifier: Apache-2.0
"""XGBoost: XGBClassifier, Booster, and model files (.json, .ubj).

XGBoost rounds features to float32 and compares `<` with a float32 threshold; it adds float32 leaves to a base
score. Everything is read from the JSON form of the model, which every version since 1.0 writes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

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
from wirewise.models.tree import LEAF

OBJECTIVES = ("binary:logistic", "multi:softprob", "multi:softmax")


def import_classifier(estimator: Any, request: Request) -> Imported:
    """A fitted XGBClassifier, as its `predict` sees it (up to the best iteration after early stopping)."""
    try:
        booster = estimator.get_booster()
    except library("sklearn.exceptions").NotFittedError:
        raise request.refuse("is not fitted", "call fit first") from None
    return _import(booster, request, sklearn=True, own_names=list(estimator.classes_))


def import_booster(booster: Any, request: Request) -> Imported:
    """A Booster. All its trees count, as in `Booster.predict`."""
    return _import(booster, request, sklearn=False)


def import_file(path: str, request: Request) -> Imported:
    """A model file. One that XGBClassifier saved is read as XGBClassifier reads it."""
    xgboost = library("xgboost")
    try:
        booster = xgboost.Booster(model_file=path)
    except xgboost.core.XGBoostError as error:
        first_line = next((line for line in str(error).splitlines() if line.strip()), "")
        raise request.refuse(
            f"XGBoost cannot read it ({first_line})", "save it with save_model as .json or .ubj"
        ) from None
    return _import(booster, request, sklearn=booster.attr("scikit_learn") is not None)


def _import(booster: Any, request: Request, *, sklearn: bool, own_names: Sequence[object] = ()) -> Imported:
    only_sum(request)
    learner = json.loads(bytes(booster.save_raw("json")))["learner"]
    parameters, objective = learner["learner_model_param"], learner["objective"]["name"]
    if objective not in OBJECTIVES:
        raise request.refuse(
            f"has the objective {objective}, known are {', '.join(OBJECTIVES)}",
            "train a classifier with one of those",
        )
    if int(parameters.get("num_target", "1")) > 1:
        raise request.refuse("predicts several targets", "train one classifier for the target you need")
    n_outputs = int(parameters["num_class"]) or 1
    names = class_names(request, own_names or range(max(n_outputs, 2)))
    best = learner["attributes"].get("best_iteration") if sklearn else None
    built = build(
        request,
        _trees(learner["gradient_booster"], n_outputs, None if best is None else int(best) + 1, request),
        n_features=check_features(request, int(parameters["num_feature"])),
        n_classes=len(names),
        base=_base_margins(parameters["base_score"], objective, n_outputs),
    )
    notes = [built.note]
    if best is not None:
        notes.append(f"early stopping: trees up to iteration {best} are used, as XGBClassifier does")
    return Imported(
        model=built.model,
        classes=names,
        source=f"XGBoost {library('xgboost').__version__} {objective}",
        notes=notes,
        node_ids=built.node_ids,
        predict=_predict(booster, objective, 0 if best is None else int(best) + 1),
        feature_names=learner.get("feature_names") or None,
    )


def _base_margins(text: str, objective: str, n_outputs: int) -> list[float]:
    """The base score as margins, one per output.

    Saved as "5E-1" up to XGBoost 3.0 and as "[5E-1]", one number or one per output, since. It is in the space
    of predictions: a probability for binary:logistic, margins for the others.
    """
    scores = [float(part) for part in text.strip("[]").split(",")]
    if objective == "binary:logistic":
        scores = [_logit(score) for score in scores]
    return scores * n_outputs if len(scores) == 1 else scores


def _logit(probability: float) -> float:
    return math.log(probability / (1 - probability)) if 0 < probability < 1 else math.inf


def _trees(booster: Any, n_outputs: int, iterations: int | None, request: Request) -> list[SourceTree]:
    kind = booster["name"]
    if kind not in ("gbtree", "dart"):
        raise request.refuse(f"is a {kind} booster, which has no trees", "train it with booster='gbtree'")
    model = (booster["gbtree"] if kind == "dart" else booster)["model"]
    weights = booster["weight_drop"] if kind == "dart" else [1.0] * len(model["trees"])
    count = len(model["trees"]) if iterations is None else model["iteration_indptr"][iterations]
    return [
        _source(tree, weight, output if n_outputs > 1 else None, request)
        for tree, weight, output in zip(
            model["trees"][:count], weights[:count], model["tree_info"][:count], strict=True
        )
    ]


def _source(tree: Any, weight: float, output: int | None, request: Request) -> SourceTree:
    if any(tree["split_type"]):
        raise request.refuse("splits on categorical features", "train it on integer features only")
    if int(tree["tree_param"]["size_leaf_vector"]) > 1:
        raise request.refuse(
            "has a vector in each leaf", "train it with multi_strategy='one_output_per_tree'"
        )
    left = np.array(tree["left_children"])
    leaf = left == -1
    conditions = np.array(tree["split_conditions"], np.float32)  # at a leaf: its value
    return SourceTree(
        feature=np.where(leaf, LEAF, tree["split_indices"]),
        cuts=cuts_at(conditions, np.float32, strict=True),
        left=left,
        right=np.array(tree["right_children"]),
        scores=weight * conditions.astype(np.float64)[:, None],
        output=output,
    )


def _predict(booster: Any, objective: str, iterations: int) -> Predict:
    def predict(x: Rows) -> Any:
        matrix = library("xgboost").DMatrix(x)
        chances = booster.predict(matrix, iteration_range=(0, iterations), validate_features=False)
        if objective == "binary:logistic":
            chances = chances > 0.5
        elif objective == "multi:softprob":
            chances = chances.argmax(axis=1)
        return chances.astype(np.int32)  # multi:softmax predicts the class itself

    return predict
