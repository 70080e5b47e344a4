# SPDX-License-Identifier: Apache-2.0
"""The attributes of ONNX's two tree operators, with the meaning onnxruntime gives them.

Features and thresholds are float32, or float64 where the operator's input is double.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wirewise.importers.lowering import Cuts, SourceTree, cuts, library
from wirewise.importers.request import Request
from wirewise.models.tree import LEAF

# mode -> (is the integer test strict, does the true branch hold the smaller values)
MODES = {
    "BRANCH_LEQ": (False, True),
    "BRANCH_LT": (True, True),
    "BRANCH_GTE": (True, False),  # false where x < t
    "BRANCH_GT": (False, False),  # false where x <= t
}
NUMBERED_MODES = (
    "BRANCH_LEQ",
    "BRANCH_LT",
    "BRANCH_GTE",
    "BRANCH_GT",
    "BRANCH_EQ",
    "BRANCH_NEQ",
    "BRANCH_MEMBER",
)
MOST_FEATURES = 1 << 24
_DAMAGED = "it is damaged, export the model again"
NUMBERED_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
NUMBERED_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


@dataclass(frozen=True)
class OnnxTrees:
    """Trees of an operator. labels: of the classes, as in the model. base: one number per score."""

    trees: list[SourceTree]
    labels: list[Any]
    base: list[float]
    n_features: int
    notes: list[str]


def read_classifier(node: Any, types: Sequence[type[Any]], request: Request) -> OnnxTrees:
    """TreeEnsembleClassifier, all versions."""
    values = _attributes(node)
    _check_lengths(values, "nodes_", "nodes_treeids", request)
    _check_lengths(values, "class_", "class_treeids", request)
    labels = [
        _text(label) for label in values.get("classlabels_strings") or values.get("classlabels_int64s") or ()
    ]
    tree_of, node_ids = np.array(values["nodes_treeids"]), np.array(values["nodes_nodeids"])
    modes = [_text(mode) for mode in values["nodes_modes"]]
    leaf = np.array([mode == "LEAF" for mode in modes])
    tests, true_is_left = _tests(_either(values, "nodes_values"), modes, leaf, types, request)
    position = {key: index for index, key in enumerate(zip(tree_of.tolist(), node_ids.tolist(), strict=True))}

    def children(name: str) -> NDArray[np.int64]:
        keys = zip(tree_of.tolist(), values[name], leaf.tolist(), strict=True)
        return np.array(
            [LEAF if at_leaf else position.get((tree, child), -2) for tree, child, at_leaf in keys]
        )

    true, false = children("nodes_truenodeids"), children("nodes_falsenodeids")
    class_ids = np.array(values["class_ids"])
    _check_range(class_ids, len(labels), "class_ids", request)
    _check_range(np.array(values["nodes_featureids"])[~leaf], MOST_FEATURES, "nodes_featureids", request)
    if len(position) != len(modes):
        raise request.refuse("numbers two nodes of a tree alike", _DAMAGED)
    weights = _either(values, "class_weights").astype(np.float64)
    at = np.array(
        [position[key] for key in zip(values["class_treeids"], values["class_nodeids"], strict=True)]
    )
    scores = np.zeros((len(modes), len(labels)))
    scored = np.zeros(scores.shape, bool)
    np.add.at(scores, (at, class_ids), weights)
    scored[at, class_ids] = True
    scored &= leaf[:, None]  # some converters also wrote weights at inner nodes
    base_values = _either(values, "base_values").astype(np.float64).tolist()
    notes: list[str] = []
    if len(labels) == 2:
        base = [_binary_base(set(class_ids.tolist()), weights, base_values, request, notes)]
        scores = scores[:, class_ids[:1]]
    else:
        _check_all_scored(tree_of, leaf, scored, weights, base_values, request)
        base = base_values or [0.0] * len(labels)
    feature = np.where(leaf, LEAF, values["nodes_featureids"])
    trees = []
    for tree in dict.fromkeys(tree_of.tolist()):  # in the order of appearance
        own = np.flatnonzero(tree_of == tree)
        trees.append(
            SourceTree(
                feature=feature[own],
                cuts=Cuts(tests.threshold[own], tests.never[own]),
                left=_local(np.where(true_is_left, true, false)[own], own),
                right=_local(np.where(true_is_left, false, true)[own], own),
                ids=node_ids[own],
                **_one_output(scores[own], scored[own]),
            )
        )
    return OnnxTrees(trees, labels, base, int(feature.max()) + 1, notes)


def read_ensemble(node: Any, types: Sequence[type[Any]], request: Request) -> OnnxTrees:
    """TreeEnsemble, ai.onnx.ml 5: leaves are numbered apart from nodes, each adds to one target."""
    values = _attributes(node)
    aggregate = NUMBERED_AGGREGATES[values.get("aggregate_function", 1)]
    transform = NUMBERED_TRANSFORMS[values.get("post_transform", 0)]
    n_targets = values["n_targets"]
    _check_range(np.array([n_targets - 1]), MOST_FEATURES, "n_targets, less one,", request)
    _check_range(np.array(values["nodes_modes"]), len(NUMBERED_MODES), "nodes_modes", request)
    if aggregate not in ("SUM", "AVERAGE") or transform not in ("NONE", "SOFTMAX")[:n_targets]:
        raise request.refuse(
            f"combines its trees by {aggregate} and {transform}",
            "known are SUM and AVERAGE with NONE or SOFTMAX",
        )
    modes = [NUMBERED_MODES[mode] for mode in values["nodes_modes"].tolist()]
    tests, true_is_left = _tests(values["nodes_splits"], modes, np.zeros(len(modes), bool), types, request)
    n_nodes, n_leaves = len(modes), len(values["leaf_weights"])
    _check_lengths(values, "nodes_", "nodes_featureids", request)
    _check_lengths(values, "leaf_", "leaf_targetids", request)
    for name, most in (
        ("nodes_featureids", MOST_FEATURES),
        ("nodes_trueleafs", 2),
        ("nodes_falseleafs", 2),
        ("leaf_targetids", n_targets),
        ("tree_roots", n_nodes),
    ):
        _check_range(np.array(values[name]), most, name, request)
    for side in ("true", "false"):
        is_leaf = np.array(values[f"nodes_{side}leafs"], bool)
        child = np.array(values[f"nodes_{side}nodeids"])
        _check_range(child[is_leaf], n_leaves, f"nodes_{side}nodeids", request)
        _check_range(child[~is_leaf], n_nodes, f"nodes_{side}nodeids", request)
    true = np.array(values["nodes_truenodeids"]) + n_nodes * np.array(values["nodes_trueleafs"])
    false = np.array(values["nodes_falsenodeids"]) + n_nodes * np.array(values["nodes_falseleafs"])
    no_children = np.full(n_leaves, LEAF)
    left = np.concatenate([np.where(true_is_left, true, false), no_children])
    right = np.concatenate([np.where(true_is_left, false, true), no_children])
    feature = np.concatenate([values["nodes_featureids"], no_children])
    threshold = np.concatenate([tests.threshold, np.zeros(n_leaves, np.int64)])
    never = np.concatenate([tests.never, np.zeros(n_leaves, bool)])
    scores = np.zeros((n_nodes + n_leaves, n_targets))
    leaf_at = (n_nodes + np.arange(n_leaves), np.array(values["leaf_targetids"]))
    scores[leaf_at] = values["leaf_weights"]
    scored = np.zeros(scores.shape, bool)
    scored[leaf_at] = True
    trees = []
    for root in values["tree_roots"]:
        own = _reachable(root, left, right, request)
        lone_leaf = left[root] == right[root] != LEAF  # how the operator spells a tree without a test
        own = own[1:] if lone_leaf else own
        order = np.argsort(own)
        trees.append(
            SourceTree(
                feature=feature[own],
                cuts=Cuts(threshold[own], never[own]),
                left=_local(left[own], own[order], order),
                right=_local(right[own], own[order], order),
                ids=own,
                **_one_output(scores[own], scored[own]),
            )
        )
    labels = list(range(max(n_targets, 2)))
    return OnnxTrees(trees, labels, [0.0] * n_targets, int(feature.max()) + 1, notes=[])


def _check_lengths(values: dict[str, Any], prefix: str, key: str, request: Request) -> None:
    """All lists whose names begin alike have one entry per node (per leaf, per weight)."""
    for name, entries in values.items():
        optional = name.endswith("_as_tensor") or name in (
            "nodes_hitrates",
            "nodes_missing_value_tracks_true",
        )
        if (
            name.startswith(prefix)
            and len(entries) != len(values[key])
            and not (optional and not len(entries))
        ):
            raise request.refuse(
                f"its {name} has {len(entries)} entries, {key} has {len(values[key])}", _DAMAGED
            )


def _check_range(numbers: NDArray[np.int64], end: int, name: str, request: Request) -> None:
    """Each number is 0 or more, and below `end`."""
    if len(wrong := numbers[(numbers < 0) | (numbers >= end)]):
        raise request.refuse(f"its {name} holds {wrong[0]}, allowed are 0 to {end - 1}", _DAMAGED)


def _reachable(
    root: int, left: NDArray[np.int64], right: NDArray[np.int64], request: Request
) -> NDArray[np.int64]:
    found: dict[int, None] = {}
    stack = [root]
    while stack:
        node = stack.pop()
        if not 0 <= node < len(left):
            raise request.refuse(
                "has a tree whose nodes do not form a tree", "it is damaged, export the model again"
            )
        if node not in found:
            found[node] = None
            if left[node] != LEAF:
                stack += [int(right[node]), int(left[node])]
    return np.array(list(found))


def _local(
    children: NDArray[np.int64], own: NDArray[np.int64], order: NDArray[np.int64] | None = None
) -> Any:
    """Children as positions in `own` (ascending); `order` maps those back to the tree's order."""
    at = np.searchsorted(own, children).clip(max=len(own) - 1)
    return np.where(children < 0, children, at if order is None else order[at])


def _one_output(scores: NDArray[np.float64], scored: NDArray[np.bool_]) -> dict[str, Any]:
    """Scores narrowed to a single column where the tree adds to no other."""
    used = np.flatnonzero(scored.any(axis=0))
    if scores.shape[1] == 1 or len(used) != 1:
        return {"scores": scores}
    return {"scores": scores[:, used], "output": int(used[0])}


def _tests(
    values: NDArray[Any],
    modes: Sequence[str],
    leaf: NDArray[np.bool_],
    types: Sequence[type[Any]],
    request: Request,
) -> tuple[Cuts, NDArray[np.bool_]]:
    """Integer tests, and whether the true branch is the left one."""
    if unknown := sorted(set(modes) - MODES.keys() - {"LEAF"}):
        raise request.refuse(
            f"tests with {', '.join(unknown)} (categorical splits)", "train it on integer features only"
        )
    strict, true_is_left = np.array([MODES.get(mode, (False, True)) for mode in modes]).T
    compared_as = np.float64 if types[-1] is np.float64 else np.float32
    thresholds = values.astype(compared_as)

    def goes_left(x: NDArray[np.int64]) -> NDArray[np.bool_]:
        rounded: NDArray[Any] = x
        for kind in (*types, compared_as):
            rounded = rounded.astype(kind)
        return np.where(strict, rounded < thresholds, rounded <= thresholds) & ~leaf

    return cuts(goes_left, len(modes)), true_is_left


def _binary_base(
    ids: set[int], weights: NDArray[np.float64], base: Sequence[float], request: Request, notes: list[str]
) -> float:
    """What is added to the one score of two classes, so that class 1 wins above 0."""
    if len(ids) != 1:
        raise request.refuse(
            "scores both of its two classes, where onnxruntime and the ONNX specification choose differently",
            "import the estimator it was exported from instead",
        )
    if base and (1 in ids or len(base) > 2) and any(base):
        raise request.refuse(
            "has base values for both of two classes, where onnxruntime and the ONNX specification differ",
            "import the estimator it was exported from instead",
        )
    start = base[0] if base else 0.0
    if (weights >= 0).all():
        notes.append("no leaf weight is negative, so class 1 wins above 0.5, as in onnxruntime")
        return start - 0.5
    return start


def _check_all_scored(
    tree_of: NDArray[np.int64],
    leaf: NDArray[np.bool_],
    scored: NDArray[np.bool_],
    weights: NDArray[np.float64],
    base: Sequence[float],
    request: Request,
) -> None:
    """A class that no reached leaf scores cannot win in onnxruntime; here it has score 0. Both must agree."""
    if base or (weights >= 0).all():
        return
    sure = np.zeros(scored.shape[1], bool)
    for tree in np.unique(tree_of):
        sure |= scored[(tree_of == tree) & leaf].all(axis=0)
    if not sure.all():
        raise request.refuse(
            f"may leave class {int(np.argmin(sure))} without a score, beside negative scores of others",
            "import the estimator it was exported from instead",
        )


def _attributes(node: Any) -> dict[str, Any]:
    onnx = library("onnx")
    values = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    return {
        name: onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value
        for name, value in values.items()
    }


def _either(values: dict[str, Any], name: str) -> NDArray[Any]:
    """A float list, or the tensor that newer versions allow in its place."""
    tensor = values.get(f"{name}_as_tensor")
    return np.array(values.get(name, ()), np.float32) if tensor is None else tensor


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value
