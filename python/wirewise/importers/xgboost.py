# SPDX-License-Identifier: Apache-2.0
"""XGBoost: XGBClassifier, Booster, and model files (.json, .ubj).

XGBoost rounds features to float32 and compares `<` with a float32 threshold; it adds float32 leaves to a base
score. Everything is read from the JSON form of the model, which every version since 1.0 writes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
from wirewise.importers.xgboost_document import check, read
from wirewise.models.tree import LEAF

OBJECTIVES = ("binary:logistic", "multi:softprob", "multi:softmax")


def import_classifier(estimator: Any, request: Request) -> Imported:
    """A fitted XGBClassifier, as its `predict` sees it (up to the best iteration after early stopping)."""
    try:
        booster = estimator.get_booster()
    except library("sklearn.exceptions").NotFittedError:
        raise request.refuse("is not fitted", "call fit first") from None
    return _import(
        booster,
        request,
        predict=predict_with(request.outer or estimator),
        sklearn=True,
        missing=estimator.missing,
        own_names=list(estimator.classes_),
    )


def import_booster(booster: Any, request: Request) -> Imported:
    """A Booster. All its trees count, as in `Booster.predict`."""
    return _import(booster, request)


def import_file(path: str, request: Request) -> Imported:
    """A model file. One that XGBClassifier saved is read as XGBClassifier reads it."""
    xgboost = library("xgboost")
    data = Path(path).read_bytes()
    attributes = read(data, request)["learner"].get("attributes", {})
    try:
        if "scikit_learn" in attributes:
            estimator = xgboost.XGBClassifier()
            estimator.load_model(bytearray(data))
            estimator.missing = _saved_missing(attributes["scikit_learn"])
            return import_classifier(estimator, request)
        booster = xgboost.Booster(model_file=bytearray(data))
    except (xgboost.core.XGBoostError, TypeError) as error:
        first_line = next((line for line in str(error).splitlines() if line.strip()), "")
        raise request.refuse(
            f"XGBoost cannot read it ({first_line})", "save it with save_model as .json or .ubj"
        ) from None
    return import_booster(booster, request)


def _saved_missing(text: str) -> float:
    """The parameter `missing`, which versions before 2 saved with the model."""
    try:
        missing = json.loads(text).get("missing")
    except (ValueError, AttributeError):
        missing = None
    return float(missing) if isinstance(missing, int | float) else math.nan


def _import(
    booster: Any,
    request: Request,
    *,
    predict: Predict | None = None,
    sklearn: bool = False,
    missing: float = math.nan,
    own_names: Sequence[object] = (),
) -> Imported:
    only_sum(request)
    document = json.loads(bytes(booster.save_raw("json")))
    check(document, request)
    learner = document["learner"]
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
    if sklearn and objective == "multi:softprob" and n_outputs == 2:
        raise request.refuse(
            "predicts two probabilities instead of a class (objective multi:softprob with two classes)",
            "train it with objective='binary:logistic'",
        )
    if len(names) != max(n_outputs, 2):
        raise request.refuse(
            f"names {len(names)} classes, its trees score {n_outputs}", "train it again, or save its Booster"
        )
    best = learner["attributes"].get("best_iteration") if sklearn else None
    trees = _trees(learner["gradient_booster"], n_outputs, None if best is None else int(best) + 1)
    _check_missing(trees, missing, request)
    built = build(
        request,
        [tree for tree, _ in trees],
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
        predict=predict or _predict(booster, objective),
        feature_names=learner.get("feature_names") or None,
    )


def _check_missing(trees: list[_TreeAndDefaults], missing: float | None, request: Request) -> None:
    """An integer that is `missing` takes the default branch, which must be the one that its test says."""
    if missing is None or math.isnan(missing):
        return
    whole = np.array([round(missing)]) if abs(missing) < 2**63 else np.zeros(0)
    # Both are rounded to float32 before they are compared, so its neighbours may be missing, too: all or none
    # of them go left.
    if not len(whole) or np.float32(whole[0]) != np.float32(missing):
        return
    for tree, default_left in trees:
        goes_left = (int(whole[0]) <= tree.cuts.threshold) & ~tree.cuts.never
        if ((tree.feature != LEAF) & (goes_left != default_left)).any():
            raise request.refuse(
                f"treats {missing:g} as a missing value (missing={missing:g}), and sends it another way than "
                "its neighbours",
                "train it with missing=nan, the default, or set that if no packet has this value",
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


_TreeAndDefaults = tuple[SourceTree, NDArray[np.bool_]]  # and whether what is missing goes left, per node


def _trees(booster: Any, n_outputs: int, iterations: int | None) -> list[_TreeAndDefaults]:
    kind = booster["name"]
    model = (booster["gbtree"] if kind == "dart" else booster)["model"]
    weights = booster["weight_drop"] if kind == "dart" else [1.0] * len(model["trees"])
    count = len(model["trees"]) if iterations is None else model["iteration_indptr"][iterations]
    return [
        (
            _source(tree, weight, output if n_outputs > 1 else None),
            np.array(tree["default_left"], bool),
        )
        for tree, weight, output in zip(
            model["trees"][:count], weights[:count], model["tree_info"][:count], strict=True
        )
    ]


def _source(tree: Any, weight: float, output: int | None) -> SourceTree:
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


def _predict(booster: Any, objective: str) -> Predict:
    """The classes of a Booster's own `predict`."""

    def predict(x: Rows) -> Any:
        chances = booster.predict(library("xgboost").DMatrix(x), validate_features=False)
        if objective == "binary:logistic":
            chances = chances > 0.5
        elif objective == "multi:softprob":
            chances = chances.argmax(axis=1)
        return chances.astype(np.int32)  # multi:softmax predicts the class itself

    return predict
