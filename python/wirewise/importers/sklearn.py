# SPDX-License-Identifier: Apache-2.0
"""scikit-learn classifiers made of trees.

Trees, forests and GradientBoosting round features to float32 and compare `<=` with a float64 threshold;
HistGradientBoosting compares float64 with float64. Integers have no missing values, so it does not matter
where a tree would send them.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wirewise.importers.lowering import (
    Built,
    Cuts,
    SourceTree,
    build,
    check_features,
    class_names,
    cuts,
    cuts_at,
    library,
    only_sum,
)
from wirewise.importers.request import Imported, Request, Rows
from wirewise.importers.sklearn_estimators import check_fitted, predict_with
from wirewise.models.tree import LEAF, Votes


def import_tree(estimator: Any, request: Request) -> Imported:
    """One tree: its leaf names the class, ties to the lowest, which is a majority vote of one."""
    return _import_trees(
        estimator, [estimator], request, request.votes or ("sum" if request.margin else "majority")
    )


def import_forest(estimator: Any, request: Request) -> Imported:
    """RandomForest and ExtraTrees: the sum of the trees' class fractions, or one vote a tree."""
    check_fitted(estimator, request)
    return _import_trees(estimator, estimator.estimators_, request, request.votes or "sum")


def _import_trees(estimator: Any, trees: list[Any], request: Request, votes: Votes) -> Imported:
    check_fitted(estimator, request)
    if getattr(estimator, "n_outputs_", 1) != 1:
        raise request.refuse("predicts several outputs", "train one classifier for the output you need")
    names = class_names(request, estimator.classes_.tolist())
    added = _fractions(trees, request, range(len(names)), len(names), differences=votes == "sum")
    built = built_of(estimator, added, request, len(names), votes)
    notes = [built.note] if built.note else []
    if votes == "majority" and len(trees) > 1:
        notes.append("majority votes were asked for: scikit-learn itself adds the trees' class fractions")
    return imported_from(estimator, request.outer, built, names, notes)


def import_gradient_boosting(estimator: Any, request: Request) -> Imported:
    """GradientBoostingClassifier: learning rate x leaf, on top of the constant that `init` predicts."""
    only_sum(request)
    check_fitted(estimator, request)
    names = class_names(request, estimator.classes_.tolist())
    start = estimator.init_
    constant = type(start).__name__ == "DummyClassifier" and start.strategy != "stratified"
    if not (constant or (isinstance(start, str) and start == "zero")):
        raise request.refuse(
            f"starts from another estimator (init={type(start).__name__})",
            "train it with init=None or init='zero'",
        )
    n_features = check_features(request, estimator.n_features_in_)
    base = estimator._raw_predict_init(np.zeros((1, n_features), np.float32))[0]
    stages = estimator.estimators_
    built = build(
        request,
        [
            _source(
                request,
                tree.tree_,
                estimator.learning_rate * tree.tree_.value[:, 0, :],
                output=None if len(base) == 1 else output,
            )
            for stage in stages
            for output, tree in enumerate(stage)
        ],
        n_features=n_features,
        n_classes=len(names),
        base=base.tolist(),
        zero_is_class_1=len(base) == 1,  # it predicts class 1 for a score of exactly 0
    )
    return imported_from(estimator, request.outer, built, names, [built.note])


def import_hist_gradient_boosting(estimator: Any, request: Request) -> Imported:
    """HistGradientBoostingClassifier without categorical features."""
    only_sum(request)
    check_fitted(estimator, request)
    names = class_names(request, estimator.classes_.tolist())
    if getattr(estimator, "is_categorical_", None) is not None and np.any(estimator.is_categorical_):
        raise request.refuse("splits on categorical features", "train it with categorical_features=None")
    built = built_of(estimator, _stages(estimator, request), request, len(names))
    return imported_from(estimator, request.outer, built, names, [built.note])


@dataclass(frozen=True)
class Added:
    """What an ensemble adds up: what trees say, and one number for each output. fractions : as of `build`."""

    trees: list[SourceTree]
    base: list[float]
    fractions: bool


def built_of(estimator: Any, added: Added, request: Request, classes: int, votes: Votes = "sum") -> Built:
    """The integers of all that an estimator adds up."""
    return build(
        request,
        added.trees,
        n_features=check_features(request, estimator.n_features_in_),
        n_classes=classes,
        votes=votes,
        base=added.base,
        fractions=added.fractions,
    )


def added_by(estimator: Any, request: Request, classes: int) -> Added:
    """What a fitted tree, forest or HistGradientBoostingClassifier adds up. Its `classes_` are numbers below
    `classes`; raises InputError for boosting that has not met all of them.
    """
    check_fitted(estimator, request)
    known = estimator.classes_.tolist()
    if hasattr(estimator, "_predictors"):
        if len(known) < classes:
            raise request.refuse(
                f"has met {len(known)} of {classes} classes", "use a forest, or learn two classes"
            )
        return _stages(estimator, request)
    return _fractions(getattr(estimator, "estimators_", [estimator]), request, known, classes)


def _fractions(
    trees: list[Any], request: Request, known: Sequence[int], classes: int, *, differences: bool = True
) -> Added:
    """Class fractions of leaves. known : the numbers of the trees' classes. differences : of two classes,
    class 1 less class 0.
    """
    two = differences and classes == 2
    sources = []
    for tree in trees:
        counts = tree.tree_.value[:, 0, :]
        fractions = np.zeros((len(counts), classes))
        fractions[:, known] = counts / counts.sum(axis=1, keepdims=True)
        sources.append(
            _source(request, tree.tree_, fractions[:, 1:] - fractions[:, :1] if two else fractions)
        )
    return Added(sources, [0.0] * (1 if two else classes), fractions=True)


def _stages(estimator: Any, request: Request) -> Added:
    """Leaf values of a HistGradientBoostingClassifier."""
    base = np.ravel(estimator._baseline_prediction)
    sources = [
        _hist_source(request, predictor.nodes, output=None if len(base) == 1 else output)
        for stage in estimator._predictors
        for output, predictor in enumerate(stage)
    ]
    return Added(sources, base.tolist(), fractions=False)


def _source(request: Request, tree: Any, scores: Any, output: int | None = None) -> SourceTree:
    leaf = tree.children_left == -1
    return SourceTree(
        feature=np.where(leaf, LEAF, tree.feature),
        cuts=_cuts(request, np.where(leaf, 0, tree.feature), tree.threshold, np.float32),
        left=tree.children_left,
        right=tree.children_right,
        scores=scores,
        output=output,
    )


def _cuts(request: Request, features: Any, thresholds: Any, rounds_to: type[np.floating[Any]]) -> Cuts:
    """The tests `rounds_to(scaled(x)) <= threshold` as tests of integers, with the scalers' own arithmetic.

    Adding, multiplying and dividing by a positive constant keep the order of numbers, rounded too, so that
    each test still has one largest integer that goes left.
    """
    if not request.scalers:
        return cuts_at(thresholds, rounds_to)
    width = request.scalers[0].n_features_in_
    tests = np.arange(len(thresholds))

    def goes_left(x: Rows) -> Any:
        rows: Any = np.zeros((len(x), width), np.int64)
        rows[tests, features] = x
        for scaler in request.scalers:
            rows = scaler.transform(rows)
        return np.asarray(rows)[tests, features].astype(rounds_to) <= thresholds

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        return cuts(goes_left, len(thresholds))


def _hist_source(request: Request, nodes: Any, output: int | None) -> SourceTree:
    leaf = nodes["is_leaf"].astype(bool)
    features = np.where(leaf, 0, nodes["feature_idx"]).astype(np.int64)
    tests = _cuts(request, features, nodes["num_threshold"], np.float64)
    return SourceTree(
        feature=np.where(leaf, LEAF, nodes["feature_idx"]),
        cuts=tests,
        left=nodes["left"].astype(np.int64),
        right=nodes["right"].astype(np.int64),
        scores=nodes["value"][:, None],
        output=output,
    )


def imported_from(
    estimator: Any, outer: Any, built: Built, names: list[str], notes: list[str], what: str = ""
) -> Imported:
    """What was built of an estimator. outer : see `Request`. what : the estimator in words; "": its class."""
    trained_on = getattr(estimator, "feature_names_in_", None)
    version = library("sklearn").__version__
    return Imported(
        model=built.model,
        classes=names,
        source=f"scikit-learn {version} {what or type(estimator).__name__}",
        notes=notes,
        node_ids=built.node_ids,
        predict=predict_with(outer or estimator),
        feature_names=None if trained_on is None else list(map(str, trained_on)),
    )
