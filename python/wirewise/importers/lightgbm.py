# SPDX-License-Identifier: Apache-2.0
"""LightGBM: LGBMClassifier, Booster, and model files (.txt).

LightGBM compares `<=` in float64 and adds float64 leaves. Its Python package rounds an integer numpy array to
float32 before that, but not a float64 one; the integer thresholds here are those of float64.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from wirewise.importers.lowering import (
    Cuts,
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

OBJECTIVES = ("binary", "multiclass")


def import_classifier(estimator: Any, request: Request) -> Imported:
    """A fitted LGBMClassifier (up to the best iteration after early stopping, as its `predict`)."""
    try:
        booster = estimator.booster_
    except library("sklearn.exceptions").NotFittedError:
        raise request.refuse("is not fitted", "call fit first") from None
    return import_booster(booster, request, own_names=estimator.classes_.tolist())


def import_file(path: str, request: Request) -> Imported:
    """A text file that `save_model` wrote."""
    lightgbm = library("lightgbm")
    try:
        booster = lightgbm.Booster(model_file=path)
    except lightgbm.basic.LightGBMError as error:
        raise request.refuse(
            f"LightGBM cannot read it ({error})", "save it with Booster.save_model"
        ) from None
    return import_booster(booster, request)


def import_booster(booster: Any, request: Request, own_names: Sequence[object] = ()) -> Imported:
    """A Booster (up to its best iteration, as its `predict`)."""
    only_sum(request)
    dump = booster.dump_model()
    objective = str(dump.get("objective", "none")).split()[0]
    if objective not in OBJECTIVES:
        raise request.refuse(
            f"has the objective {objective}, known are {', '.join(OBJECTIVES)}",
            "train a classifier with one of those",
        )
    n_outputs = dump["num_class"]
    names = class_names(request, own_names or range(max(n_outputs, 2)))
    trees = [
        _source(info["tree_structure"], index % n_outputs if n_outputs > 1 else None, request)
        for index, info in enumerate(dump["tree_info"])
    ]
    built = build(
        request,
        trees,
        n_features=check_features(request, dump["max_feature_idx"] + 1),
        n_classes=len(names),
        base=(0.0,) * n_outputs,
    )
    notes = [
        built.note,
        "LightGBM rounds integer numpy arrays to float32: give it float64 to see the same paths",
    ]
    trained_on = dump["feature_names"]
    unnamed = trained_on == [f"Column_{index}" for index in range(len(trained_on))]
    return Imported(
        model=built.model,
        classes=names,
        source=f"LightGBM {library('lightgbm').__version__} {objective}",
        notes=notes,
        node_ids=built.node_ids,
        predict=_predict(booster),
        feature_names=None if unnamed else trained_on,
    )


def _nodes(root: Any) -> Iterator[Any]:
    """All nodes, root first, each before its children."""
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        if "split_index" in node:
            stack += [node["right_child"], node["left_child"]]


def _source(root: Any, output: int | None, request: Request) -> SourceTree:
    nodes = list(_nodes(root))
    position = {id(node): index for index, node in enumerate(nodes)}
    for node in nodes:
        if "leaf_coeff" in node or "leaf_const" in node:
            raise request.refuse("has linear models in its leaves", "train it with linear_tree=False")
        if node.get("decision_type", "<=") != "<=":
            raise request.refuse("splits on categorical features", "train it with categorical_feature=[]")

    def column(name: str, at_leaf: float) -> Any:
        return np.array([node[name] if "split_index" in node else at_leaf for node in nodes])

    tests = cuts_at(column("threshold", 0.0).astype(np.float64), np.float64)
    _check_zero(nodes, tests, request)
    return SourceTree(
        feature=column("split_feature", LEAF),
        cuts=tests,
        left=np.array([position[id(node["left_child"])] if "split_index" in node else -1 for node in nodes]),
        right=np.array(
            [position[id(node["right_child"])] if "split_index" in node else -1 for node in nodes]
        ),
        scores=np.array([float(node.get("leaf_value", 0.0)) for node in nodes])[:, None],
        output=output,
        ids=np.array([node.get("split_index", node.get("leaf_index", 0)) for node in nodes]),
    )


def _check_zero(nodes: Sequence[Any], tests: Cuts, request: Request) -> None:
    """With zero_as_missing a 0 takes the default branch, which must then be where `0 <= threshold` goes."""
    for node, threshold, never in zip(nodes, tests.threshold.tolist(), tests.never.tolist(), strict=True):
        if node.get("missing_type") == "Zero" and node["default_left"] != (threshold >= 0 and not never):
            raise request.refuse("treats 0 as a missing value", "train it with zero_as_missing=False")


def _predict(booster: Any) -> Predict:
    def predict(x: Rows) -> Any:
        scores = booster.predict(x.astype(np.float64), raw_score=True)
        classes = scores > 0 if scores.ndim == 1 else scores.argmax(axis=1)
        return classes.astype(np.int32)

    return predict
