# SPDX-License-Identifier: Apache-2.0
"""The models of the benchmarks as scikit-learn estimators, and what they cost when Python calls them."""

from __future__ import annotations

from time import perf_counter_ns

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

from wirewise.errors import WirewiseError
from wirewise.models import TreeEnsemble
from wirewise.models.tree import LEAF, Tree

BATCH = 10_000


def estimator(model: TreeEnsemble) -> RandomForestClassifier | DecisionTreeClassifier:
    """The estimator of scikit-learn that votes as `model` (majority votes) does, the same trees node by node.

    Its leaves hold one class each, so the mean that it takes is the vote.
    """
    rows = np.zeros((model.n_classes, model.n_features))
    forest = RandomForestClassifier(n_estimators=len(model.trees), bootstrap=False, n_jobs=1)
    forest.fit(rows, np.arange(model.n_classes))  # gives it the attributes of a fitted one
    for fitted, tree in zip(forest.estimators_, model.trees, strict=True):
        _replace(fitted, tree)
    return forest if len(model.trees) > 1 else forest.estimators_[0]


def _replace(fitted: DecisionTreeClassifier, tree: Tree) -> None:
    """Puts the nodes of `tree` into a fitted estimator."""
    state = fitted.tree_.__getstate__()
    feature = np.array(tree.feature)
    leaf = feature == LEAF
    nodes = np.zeros(len(feature), state["nodes"].dtype)
    nodes["feature"] = np.where(leaf, -2, feature)
    nodes["threshold"] = np.where(leaf, -2.0, tree.threshold)
    nodes["left_child"], nodes["right_child"] = tree.left, tree.right
    nodes["n_node_samples"] = nodes["weighted_n_node_samples"] = 1
    classes = fitted.tree_.n_classes[0]
    values = np.zeros((len(feature), 1, classes))
    for node, value in enumerate(tree.value):
        if leaf[node]:
            values[node, 0, value[0]] = 1
    empty = type(fitted.tree_)(fitted.tree_.n_features, fitted.tree_.n_classes, 1)
    empty.__setstate__(
        {**state, "max_depth": tree.depth, "node_count": len(feature), "nodes": nodes, "values": values}
    )
    fitted.tree_ = empty


def measure(model: TreeEnsemble, rows: NDArray[np.int64], rounds: int, calls: int) -> dict[str, list[float]]:
    """Nanoseconds a packet of `predict`, by round: of one packet a call, and of `BATCH` packets a call.

    rows : features, (packets, n_features). Only `predict` is timed: no packet is parsed and no flow kept.
    calls : packets a round that are predicted one by one. Raises WirewiseError if the estimator and the
    model disagree.
    """
    fitted = estimator(model)
    batch = np.resize(rows, (BATCH, rows.shape[1])).astype(np.float32)  # as scikit-learn compares them
    if not np.array_equal(fitted.predict(batch), model.predict(batch.astype(np.int64))[0]):
        raise WirewiseError("the estimator is not the model: they disagree on a packet")
    single, whole = [], []
    for _ in range(rounds):
        start = perf_counter_ns()
        for index in range(calls):
            fitted.predict(batch[index : index + 1])
        single.append((perf_counter_ns() - start) / calls)
        start = perf_counter_ns()
        fitted.predict(batch)
        whole.append((perf_counter_ns() - start) / BATCH)
    return {"estimator": single, "estimator-batch": whole}
