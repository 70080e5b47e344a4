# SPDX-License-Identifier: Apache-2.0
"""LightGBM's text form of a model: everything that matters is read and checked here.

LightGBM itself trusts the file: counts and indices that are wrong end the process. It gets `TextModel.text`,
written anew from what was checked, without what no prediction needs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wirewise.importers.request import Floats, Request
from wirewise.importers.structure import tree_nodes

VERSIONS = ("v2", "v3", "v4")
DAMAGED = "it is damaged, save it with Booster.save_model"
MOST_OUTPUTS = 1 << 16
_AFTER_TREES = ("end of trees", "feature importances:", "feature_importances:", "parameters:")

# Bits of decision_type.
CATEGORICAL, DEFAULT_LEFT = 1, 2
MISSING_ZERO = 1
"""Value of the two bits above: zero counts as missing."""


@dataclass(frozen=True)
class TextTree:
    """A tree: arrays with one entry per split, and `value` with one per leaf. A child -1 - k is leaf k."""

    feature: NDArray[np.int64]
    threshold: Floats
    decision: NDArray[np.int64]
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    value: Floats

    @property
    def missing(self) -> NDArray[np.int64]:
        return self.decision >> 2 & 3


@dataclass(frozen=True)
class TextModel:
    """A model. objective: with its parameters, as in the file. text: what LightGBM may read."""

    objective: str
    n_outputs: int
    n_features: int
    feature_names: list[str]
    trees: list[TextTree]
    text: str


class _Text:
    """A file's lines, as the refusals name them."""

    def __init__(self, request: Request) -> None:
        self.request = request

    def damaged(self, rule: str) -> Exception:
        return self.request.refuse(f"is not a whole LightGBM model: {rule}", DAMAGED)

    def fields(self, lines: list[str], where: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for line in lines:
            key, equals, value = line.partition("=")
            if equals and key in found:
                raise self.damaged(f"{where} has {key!r} twice")
            if equals:
                found[key] = value.strip()
        return found

    def field(self, fields: dict[str, str], key: str, where: str) -> str:
        if key not in fields:
            raise self.damaged(f"{where} lacks {key!r}")
        return fields[key]

    def integer(self, fields: dict[str, str], key: str, where: str, low: int, high: int) -> int:
        text = self.field(fields, key, where)
        if not re.fullmatch(r"\d{1,9}", text) or not low <= int(text) <= high:
            raise self.damaged(f"{key} of {where} is {_short(text)}, not a number from {low} to {high}")
        return int(text)

    def numbers(self, fields: dict[str, str], key: str, where: str, count: int, kind: Any) -> NDArray[Any]:
        parts = self.field(fields, key, where).split()
        if len(parts) != count:
            raise self.damaged(f"{key} of {where} has {len(parts)} numbers, not {count}")
        try:
            if any("_" in part for part in parts):  # Python's own spelling
                raise ValueError
            return np.array([kind(part) for part in parts], np.float64 if kind is float else np.int64)
        except (ValueError, OverflowError):
            raise self.damaged(f"{key} of {where} holds something that is not a number") from None


def read(data: bytes | str, request: Request) -> TextModel:
    """A model from the bytes of a file. Raises InputError naming what is missing or does not fit."""
    text = _Text(request)
    try:
        whole = data if isinstance(data, str) else data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise text.damaged("it is not text in UTF-8") from None
    lines = re.split(r"\r\n|\r|\n", whole)
    if not lines or lines[0].strip() != "tree":
        raise text.damaged("its first line is not 'tree'")
    head, blocks = _blocks(lines, text)
    fields = text.fields(head, "its head")
    version = text.field(fields, "version", "its head")
    if version not in VERSIONS:
        raise request.refuse(
            f"is of version {_short(version)} of LightGBM's text form, known are {', '.join(VERSIONS)}",
            "save it with another version of LightGBM",
        )
    objective = fields.get("objective", "none")
    n_outputs = text.integer(fields, "num_tree_per_iteration", "its head", 1, MOST_OUTPUTS)
    text.integer(fields, "num_class", "its head", n_outputs, n_outputs)
    n_features = text.integer(fields, "max_feature_idx", "its head", 0, 1 << 24) + 1
    names = text.field(fields, "feature_names", "its head").split(" ")
    if len(names) != n_features:
        raise text.damaged(f"it names {len(names)} features, not {n_features}")
    sizes = fields.get("tree_sizes", "").split()
    if (sizes and len(sizes) != len(blocks)) or len(blocks) % n_outputs:
        raise text.damaged(f"it has {len(blocks)} trees, not {len(sizes) or f'a multiple of {n_outputs}'}")
    objective = _objective(objective, n_outputs, text)
    trees = [_tree(block, f"tree {number}", n_features, text) for number, block in enumerate(blocks)]
    averaged = "average_output" in (line.strip() for line in head)
    written = _written(objective, n_outputs, n_features, averaged, trees)
    return TextModel(objective, n_outputs, n_features, names, trees, written)


def _blocks(lines: list[str], text: _Text) -> tuple[list[str], list[list[str]]]:
    """The lines of the head, and those of each tree."""
    head: list[str] = []
    blocks: list[list[str]] = []
    for line in lines[1:]:
        if line.strip() in _AFTER_TREES:
            return head, blocks
        if line.startswith("Tree="):
            if line.strip() != f"Tree={len(blocks)}":
                raise text.damaged(f"{_short(line)} follows tree {len(blocks) - 1}")
            blocks.append([])
        else:
            (blocks[-1] if blocks else head).append(line)
    raise text.damaged("it ends before the end of its trees")


def _objective(objective: str, n_outputs: int, text: _Text) -> str:
    """An importable objective as LightGBM writes it, with its one parameter."""
    name, *parameters = objective.split() or [""]
    known = dict(part.split(":", 1) for part in parameters if ":" in part)
    try:
        sigmoid = float(known.get("sigmoid", "1"))
        classes = int(known.get("num_class", str(n_outputs)))
    except ValueError:
        raise text.damaged(f"its objective is {_short(objective)}") from None
    wrong = name == "binary" and (n_outputs != 1 or not 0 < sigmoid < math.inf)
    if wrong or (name == "multiclass" and (classes != n_outputs or n_outputs < 2)):
        raise text.damaged(f"its objective is {_short(objective)}, with {n_outputs} trees per iteration")
    written = {"binary": f"binary sigmoid:{sigmoid}", "multiclass": f"multiclass num_class:{classes}"}
    return written.get(name, objective)


def _tree(lines: list[str], where: str, n_features: int, text: _Text) -> TextTree:
    fields = text.fields(lines, where)
    leaves = text.integer(fields, "num_leaves", where, 1, 1 << 24)
    if int(fields.get("is_linear", "0") != "0"):
        raise text.request.refuse("has linear models in its leaves", "train it with linear_tree=False")
    value = text.numbers(fields, "leaf_value", where, leaves, float)
    if not np.isfinite(value).all():
        raise text.damaged(f"leaf_value of {where} holds a number that is not finite")
    splits = leaves - 1
    if not splits:
        none = np.zeros(0, np.int64)
        return TextTree(none, np.zeros(0), none, none, none, value)
    decision = text.numbers(fields, "decision_type", where, splits, int)
    if (decision & CATEGORICAL).any():
        raise text.request.refuse("splits on categorical features", "train it with categorical_feature=[]")
    if ((decision < 0) | (decision > 0b1011)).any():
        raise text.damaged(f"decision_type of {where} holds {int(decision.max())}")
    feature = text.numbers(fields, "split_feature", where, splits, int)
    if ((feature < 0) | (feature >= n_features)).any():
        raise text.damaged(f"{where} tests a feature that is not one of its {n_features}")
    threshold = text.numbers(fields, "threshold", where, splits, float)
    if np.isnan(threshold).any():
        raise text.damaged(f"threshold of {where} holds a number that is not one")
    left = text.numbers(fields, "left_child", where, splits, int)
    right = text.numbers(fields, "right_child", where, splits, int)
    tree = TextTree(feature, threshold, decision, left, right, value)
    at_left, at_right = positions(tree)
    is_leaf = [False] * splits + [True] * leaves
    reached = tree_nodes(at_left.tolist(), at_right.tolist(), is_leaf)
    if reached is None or len(reached) != splits + leaves:
        raise text.damaged(f"the children of {where} do not form a tree")
    return tree


def positions(tree: TextTree) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Children as positions among splits and then leaves; -1 for those of leaves."""
    none = np.full(len(tree.value), -1)
    left, right = (
        np.concatenate([np.where(child < 0, len(tree.feature) - 1 - child, child), none])
        for child in (tree.left, tree.right)
    )
    return left, right


def _written(objective: str, n_outputs: int, n_features: int, averaged: bool, trees: list[TextTree]) -> str:
    columns = " ".join(f"Column_{index}" for index in range(n_features))
    lines = [
        "tree",
        "version=v4",
        f"num_class={n_outputs}",
        f"num_tree_per_iteration={n_outputs}",
        "label_index=0",
        f"max_feature_idx={n_features - 1}",
        f"objective={objective}",
        *(["average_output"] if averaged else []),
        f"feature_names={columns}",
        f"feature_infos={' '.join(['none'] * n_features)}",
        "",
    ]
    for number, tree in enumerate(trees):
        lines += [f"Tree={number}", *_tree_lines(tree), "", ""]
    return "\n".join([*lines, "end of trees", "", ""])


def _tree_lines(tree: TextTree) -> Iterator[str]:
    splits, leaves = len(tree.feature), len(tree.value)
    yield f"num_leaves={leaves}"
    yield "num_cat=0"
    for name, values in (
        ("split_feature", tree.feature),
        ("split_gain", [0] * splits),
        ("threshold", tree.threshold),
        ("decision_type", tree.decision),
        ("left_child", tree.left),
        ("right_child", tree.right),
        ("leaf_value", tree.value),
        ("leaf_weight", [0] * leaves),
        ("leaf_count", [0] * leaves),
        ("internal_value", [0] * splits),
        ("internal_weight", [0] * splits),
        ("internal_count", [0] * splits),
    ):
        yield f"{name}={' '.join(repr(value) for value in np.asarray(values).tolist())}"
    yield "is_linear=0"
    yield "shrinkage=1"


def _short(text: str) -> str:
    return repr(text if len(text) < 40 else text[:37] + "...")
