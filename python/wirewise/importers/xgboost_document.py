# SPDX-License-Identifier: Apache-2.0
"""XGBoost's model as a document, from JSON or UBJSON, with every count and index checked.

XGBoost itself trusts them: a wrong one reads or writes outside of an array, in prediction or when the
process ends.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from wirewise.files import parse_json
from wirewise.importers import ubjson
from wirewise.importers.request import Request
from wirewise.importers.structure import tree_nodes

DAMAGED = "save it with save_model as .json or .ubj"
MOST = 1 << 24
_NO_PARENT = 2**31 - 1
_NUMBERS_OF_NODES = (
    "base_weights",
    "default_left",
    "left_children",
    "loss_changes",
    "parents",
    "right_children",
    "split_conditions",
    "split_indices",
    "split_type",
    "sum_hessian",
)
_CATEGORIES = ("categories", "categories_nodes", "categories_segments", "categories_sizes")


def read(data: bytes, request: Request) -> dict[str, Any]:
    """The document in the bytes of a model file, checked. Raises InputError naming what does not fit."""
    try:
        if re.match(rb'\s*\{\s*["}]', data):
            document = json.loads(data, object_pairs_hook=_unique)
        else:
            document = ubjson.loads(data)
    except (ValueError, RecursionError) as error:
        raise request.refuse(f"is not a whole XGBoost model: {error}", DAMAGED) from None
    check(document, request)
    checked: dict[str, Any] = document
    return checked


def check(document: Any, request: Request) -> None:
    """Raises InputError if counts, indices or shapes of a document do not fit together."""
    try:
        _check_learner(_object(document, "learner"), request)
    except _WrongError as error:
        raise request.refuse(f"is not a whole XGBoost model: {error}", DAMAGED) from None


class _WrongError(Exception):
    """What does not fit."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is there twice")
    return found


def _check_learner(learner: dict[str, Any], request: Request) -> None:
    parameters = _object(learner, "learner_model_param")
    n_features = _whole(parameters, "num_feature", 1)
    n_outputs = max(_whole(parameters, "num_class", 0, or_else=0), 1)
    n_targets = max(_whole(parameters, "num_target", 0, or_else=1), 1)
    _text(_object(learner, "objective"), "name")
    for name in ("feature_names", "feature_types"):
        names = learner.get(name, [])
        if not isinstance(names, list) or not all(isinstance(part, str) for part in names):
            raise _WrongError(f"{name} is not a list of texts")
        if names and len(names) != n_features:
            raise _WrongError(f"{name} has {len(names)} entries, not {n_features}")
    base = _text(parameters, "base_score").strip("[]").split(",")
    try:
        finite = all(math.isfinite(float(part)) for part in base)
    except ValueError:
        finite = False
    if not finite or len(base) not in (1, n_outputs * n_targets):
        raise _WrongError("base_score is not a number for all outputs, nor one for each")
    attributes = learner.get("attributes", {})
    if not isinstance(attributes, dict) or not all(isinstance(part, str) for part in attributes.values()):
        raise _WrongError("attributes are not texts by name")
    if "scikit_learn" in attributes:
        _check_estimator(attributes["scikit_learn"])
    booster = _object(learner, "gradient_booster")
    kind = _text(booster, "name")
    if kind not in ("gbtree", "dart"):
        raise request.refuse(f"is a {kind} booster, which has no trees", "train it with booster='gbtree'")
    model = _object(_object(booster, "gbtree") if kind == "dart" else booster, "model")
    rounds = _check_model(model, n_features, n_outputs * n_targets, request)
    if kind == "dart":
        _numbers(booster, "weight_drop", len(model["trees"]), "the booster")
    if "best_iteration" in attributes:
        best = _whole(attributes, "best_iteration", 0)
        if rounds is not None and best >= rounds:
            raise _WrongError(f"its best iteration is {best} of {rounds}")


def _check_estimator(text: str) -> None:
    """What XGBClassifier saves of itself, as JSON in an attribute."""
    try:
        estimator = parse_json(text.encode())
    except ValueError:
        estimator = None
    if not isinstance(estimator, dict):
        raise _WrongError("the attribute scikit_learn is no JSON object")


def _check_model(model: dict[str, Any], n_features: int, n_outputs: int, request: Request) -> int | None:
    """How many rounds there are; None in files of versions that did not write it."""
    trees = model.get("trees")
    if not isinstance(trees, list):
        raise _WrongError("it has no list of trees")
    count = _whole(_object(model, "gbtree_model_param"), "num_trees", 0)
    if count != len(trees):
        raise _WrongError(f"it has {len(trees)} trees, not {count}")
    groups = _integers(model, "tree_info", count, "the model")
    if any(not 0 <= group < n_outputs for group in groups):
        raise _WrongError(f"tree_info names an output that is not one of {n_outputs}")
    for number, tree in enumerate(trees):
        if not isinstance(tree, dict):
            raise _WrongError(f"tree {number} is not an object")
        if _whole(tree, "id", 0, or_else=number) != number:
            raise _WrongError(f"tree {number} has the id {tree['id']}")
        _check_tree(tree, f"tree {number}", n_features, request)
    if "iteration_indptr" not in model:
        return None
    starts = model["iteration_indptr"]
    if not isinstance(starts, list) or not starts:
        raise _WrongError("iteration_indptr is not a list of numbers")
    starts = _integers(model, "iteration_indptr", len(starts), "the model")
    if starts[0] != 0 or starts[-1] != count or any(end < start for start, end in pairwise(starts)):
        raise _WrongError("iteration_indptr does not lead from the first tree to the last")
    return len(starts) - 1


def _check_tree(tree: dict[str, Any], where: str, n_features: int, request: Request) -> None:
    parameters = _object(tree, "tree_param")
    count = _whole(parameters, "num_nodes", 1)
    if _whole(parameters, "num_feature", 0, or_else=n_features) > n_features:
        raise _WrongError(f"{where} has more than {n_features} features")
    if _whole(parameters, "size_leaf_vector", 0, or_else=0) > 1:
        raise request.refuse(
            "has a vector in each leaf", "train it with multi_strategy='one_output_per_tree'"
        )
    numbers = {name: _numbers(tree, name, count, where) for name in _NUMBERS_OF_NODES}
    if any(numbers["split_type"]) or any(tree.get(name) for name in _CATEGORIES):
        raise request.refuse("splits on categorical features", "train it on integer features only")
    _whole(parameters, "num_deleted", 0, or_else=0)
    left, right = (_integers(tree, name, count, where) for name in ("left_children", "right_children"))
    is_leaf = [child == -1 for child in left]
    nodes = tree_nodes(left, right, is_leaf)
    if nodes is None or any(right[node] != -1 for node in nodes if is_leaf[node]):
        raise _WrongError(f"the children of {where} do not form a tree")
    features = _integers(tree, "split_indices", count, where)
    parents = _integers(tree, "parents", count, where)
    for node in nodes:
        if not is_leaf[node] and not 0 <= features[node] < n_features:
            raise _WrongError(f"{where} tests feature {features[node]} of {n_features}")
        if not np.isfinite(np.float32(numbers["split_conditions"][node])) and is_leaf[node]:
            raise _WrongError(f"a leaf of {where} is not a finite number")
        if math.isnan(numbers["split_conditions"][node]):
            raise _WrongError(f"a threshold of {where} is not a number")
        if not is_leaf[node] and any(parents[child] != node for child in (left[node], right[node])):
            raise _WrongError(f"parents and children of {where} differ")
    if parents[0] not in (-1, _NO_PARENT):
        raise _WrongError(f"the root of {where} has a parent")
    if not {*numbers["default_left"]} <= {0, 1}:
        raise _WrongError(f"default_left of {where} holds something that is neither 0 nor 1")


def _object(document: Any, key: str) -> dict[str, Any]:
    value = document.get(key) if isinstance(document, dict) else None
    if not isinstance(value, dict):
        raise _WrongError(f"it lacks the object {key!r}")
    return value


def _text(document: dict[str, Any], key: str) -> str:
    if not isinstance(value := document.get(key), str):
        raise _WrongError(f"{key} is not a text")
    return value


def _whole(document: dict[str, Any], key: str, least: int, or_else: int | None = None) -> int:
    """A whole number, which XGBoost writes as text."""
    value = document.get(key, or_else)
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value):
        value = int(value)
    if type(value) is not int or not least <= value <= MOST:
        raise _WrongError(f"{key} is not a number from {least} to {MOST}")
    return value


def _numbers(document: dict[str, Any], key: str, count: int, where: str) -> Sequence[float]:
    values = document.get(key)
    if not isinstance(values, list) or len(values) != count:
        raise _WrongError(f"{key} of {where} is not a list of {count} numbers")
    if not all(isinstance(value, int | float) for value in values):
        raise _WrongError(f"{key} of {where} holds something that is not a number")
    return values


def _integers(document: dict[str, Any], key: str, count: int, where: str) -> Sequence[int]:
    values = _numbers(document, key, count, where)
    if not all(type(value) is int and -(2**31) <= value < 2**31 for value in values):
        raise _WrongError(f"{key} of {where} holds something that is not a whole number")
    return values  # type: ignore[return-value]
