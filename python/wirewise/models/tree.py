# SPDX-License-Identifier: Apache-2.0
"""Tree ensembles as integers: decision trees, forests and boosted trees.

Inner node: `x[feature] <= threshold` goes left, with int64 operands. What the trees say is combined in one
of two ways:

- `majority`: every tree votes for one class; most votes win, ties go to the lowest class.
- `sum`: every tree adds integer leaf scores to `base`. One output: class 1 if the score is above 0, else
  class 0. One output per class: the largest score wins, ties go to the lowest class.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import chain
from statistics import median
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from wirewise.errors import InputError
from wirewise.models import rules
from wirewise.models.rules import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, as_tuple, check_keys, is_int

LEAF = -1

Ints = tuple[int, ...]
Votes = Literal["majority", "sum"]


@dataclass(frozen=True)
class Tree:
    """One binary tree in parallel tuples, an element per node. Node 0 is the root; children follow parents.

    feature: index of the feature tested, -1 at a leaf. threshold: int64, 0 at a leaf. left, right: node
    indices, -1 at a leaf. value: () at an inner node; at a leaf `(class,)` for majority votes, else one int32
    score per output, or a single score when the tree adds to one output only (`output`).
    """

    feature: Ints
    threshold: Ints
    left: Ints
    right: Ints
    value: tuple[Ints, ...]
    output: int | None = None

    @property
    def n_nodes(self) -> int:
        return len(self.feature)

    @property
    def n_leaves(self) -> int:
        return self.feature.count(LEAF)

    @cached_property
    def depth(self) -> int:
        """Tests on the longest path; 0 for a lone leaf."""
        depth = [0] * self.n_nodes
        for node, (left, right) in enumerate(zip(self.left, self.right, strict=True)):
            if left != LEAF:
                depth[left] = depth[right] = depth[node] + 1
        return max(depth)

    def __repr__(self) -> str:
        return f"<Tree: depth {self.depth}, {self.n_leaves:,} leaves>"

    def path(self, row: Sequence[int]) -> list[int]:
        """Nodes visited by one row of features, root first, leaf last."""
        node, visited = 0, [0]
        while self.feature[node] != LEAF:
            node = self.left[node] if row[self.feature[node]] <= self.threshold[node] else self.right[node]
            visited.append(node)
        return visited


@dataclass(frozen=True)
class TreeEnsemble:
    """Trees over `n_features` int64 features that choose one of `n_classes` classes. Checked when built.

    `n_outputs` is 1 (two classes, sum) or `n_classes`; `base` has one integer per output. Raises InputError
    when a rule below is broken: at most 128 features and 64 classes, well-formed trees, thresholds in int64,
    and scores that fit int32 whatever leaves are reached and in whatever order they are added.
    """

    n_features: int
    n_classes: int
    votes: Votes
    trees: tuple[Tree, ...]
    n_outputs: int
    base: Ints

    family: ClassVar[str] = "tree-ensemble"
    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        _check_shape(self)
        for index, tree in enumerate(self.trees):
            _check_tree(self, index, tree)
        _check_scores_fit(self)

    # -- meaning

    def predict_one(self, row: Sequence[int]) -> tuple[int, list[int]]:
        """Class and scores (votes, for majority) of one row: the meaning that all else is tested against."""
        scores = list(self.base)
        for tree in self.trees:
            leaf = tree.value[tree.path(row)[-1]]
            if self.votes == "majority":
                scores[leaf[0]] += 1
            elif tree.output is not None:
                scores[tree.output] += leaf[0]
            else:
                scores = [score + part for score, part in zip(scores, leaf, strict=True)]
        if self.n_outputs == 1:
            return int(scores[0] > 0), scores
        return scores.index(max(scores)), scores

    def path(self, row: Sequence[int]) -> list[list[int]]:
        """Nodes visited by one row, one list per tree."""
        return [tree.path(row) for tree in self.trees]

    def predict(self, x: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Classes (n,) and scores (n, n_outputs) of rows (n, n_features); same meaning as `predict_one`."""
        x = rules.as_rows(x, self.n_features)
        scores = np.tile(np.array(self.base, np.int64), (len(x), 1))
        for tree, walk in zip(self.trees, self._walks, strict=True):
            leaf = walk.leaves(x)
            if self.votes == "majority":
                scores[np.arange(len(x)), walk.value[leaf, 0]] += 1
            elif tree.output is not None:
                scores[:, tree.output] += walk.value[leaf, 0]
            else:
                scores += walk.value[leaf]
        if self.n_outputs == 1:
            return (scores[:, 0] > 0).astype(np.int32), scores
        return scores.argmax(axis=1).astype(np.int32), scores

    def favour(self, by: int) -> TreeEnsemble:
        """The same trees, but another class than 0 must be ahead of it by more than `by`.

        Raises InputError for majority votes, which are no scores, and where the scores would leave int32.
        """
        if self.votes == "majority":
            raise InputError(
                "model",
                "its trees vote, so nothing says how sure it is",
                "let them add up class fractions: leave out --majority, and import it again",
            )
        first = self.base[0] - by if self.n_outputs == 1 else self.base[0] + by
        try:
            return replace(self, base=(first, *self.base[1:]))
        except InputError:
            raise _no_room(by) from None

    def favour_from(self, feature: int, start: int, by: int) -> TreeEnsemble:
        """As `favour`, but only for rows whose feature is `start` or more: one tree more, of one test."""
        self.favour(0)  # says so, if it has no scores
        ahead = -by if self.n_outputs == 1 else by
        alone = self.n_outputs > 1 and all(tree.output is not None for tree in self.trees)
        zeros = (0,) * (0 if alone else self.n_outputs - 1)
        test = Tree(
            feature=(feature, LEAF, LEAF),
            threshold=(start - 1, 0, 0),
            left=(1, LEAF, LEAF),
            right=(2, LEAF, LEAF),
            value=((), (0, *zeros), (ahead, *zeros)),
            output=0 if alone else None,
        )
        try:
            return replace(self, trees=(*self.trees, test))
        except InputError:
            raise _no_room(by) from None

    def renumbered(self, first: int) -> TreeEnsemble:
        """The same trees and the same decisions, equal scores included, with class `first` as class 0.

        The classes after it follow, then those before it: (class - first) modulo n_classes. Raises InputError
        where trees vote and votes can be equal, because those go to the lowest class.
        """
        if first == 0:
            return self
        if self.votes == "majority":
            if len(self.trees) > 1 and (self.n_classes > 2 or len(self.trees) % 2 == 0):
                raise InputError(
                    "model",
                    "its trees vote, and equal votes go to the class with the lowest number",
                    "let them add up class fractions (no majority vote)",
                )
            return self._with_leaves(lambda leaf: ((leaf[0] - first) % self.n_classes,), self.base)
        if self.n_outputs == 1:
            return self._with_leaves(lambda leaf: (-leaf[0],), (1 - self.base[0],))
        return self._with_leaves(
            lambda leaf: leaf if len(leaf) == 1 else (*leaf[first:], *leaf[:first]),
            rules.renumbered_scores(self.base, first),
            first,
        )

    def _with_leaves(self, change: Callable[[Ints], Ints], base: Ints, first: int = 0) -> TreeEnsemble:
        trees = tuple(
            replace(
                tree,
                value=tuple(change(leaf) if leaf else () for leaf in tree.value),
                output=None if tree.output is None else (tree.output - first) % self.n_outputs,
            )
            for tree in self.trees
        )
        return replace(self, trees=trees, base=base)

    def leaves(self, x: NDArray[np.int64]) -> NDArray[np.int64]:
        """Leaf node reached in each tree, (n, trees)."""
        x = rules.as_rows(x, self.n_features)
        return np.stack([walk.leaves(x) for walk in self._walks], axis=1)

    @cached_property
    def _walks(self) -> tuple[_Walk, ...]:
        return tuple(_Walk.of(tree) for tree in self.trees)

    # -- facts

    @cached_property
    def used_features(self) -> tuple[int, ...]:
        """Indices of the features that some tree tests, ascending."""
        return tuple(sorted(set(chain.from_iterable(tree.feature for tree in self.trees)) - {LEAF}))

    @property
    def depth(self) -> int:
        return max(tree.depth for tree in self.trees)

    @property
    def n_nodes(self) -> int:
        return sum(tree.n_nodes for tree in self.trees)

    @cached_property
    def reads(self) -> Ints:
        """How many tests read each feature, (n_features,): what the model leans on, roughly."""
        counts = Counter(chain.from_iterable(tree.feature for tree in self.trees))
        return tuple(counts[index] for index in range(self.n_features))

    def details(self) -> dict[str, Any]:
        """Sizes of the trees, for people and programs."""
        depths, nodes = [tree.depth for tree in self.trees], [tree.n_nodes for tree in self.trees]
        return {
            "trees": len(self.trees),
            "votes": self.votes,
            "outputs": self.n_outputs,
            "depth": {"least": min(depths), "median": median(depths), "most": max(depths)},
            "nodes": {"least": min(nodes), "median": median(nodes), "most": max(nodes), "all": sum(nodes)},
        }

    def __repr__(self) -> str:
        return f"<TreeEnsemble: {self.describe()}>"

    def describe(self) -> str:
        """One line for people: trees, depth, leaves, features used, votes, classes."""
        trees = "1 tree" if len(self.trees) == 1 else f"{len(self.trees)} trees"
        votes = "majority vote" if self.votes == "majority" else "sum of integer scores"
        leaves = sum(tree.n_leaves for tree in self.trees)
        return (
            f"{trees}, depth {self.depth}, {leaves:,} {'leaf' if leaves == 1 else 'leaves'}, "
            f"{len(self.used_features)} of {self.n_features} features used, {votes}, {self.n_classes} classes"
        )

    # -- serialisation

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and integers, ready for JSON."""
        return {
            "family": self.family,
            "version": self.version,
            "n_features": self.n_features,
            "n_classes": self.n_classes,
            "votes": self.votes,
            "n_outputs": self.n_outputs,
            "base": list(self.base),
            "trees": [
                {
                    "feature": list(tree.feature),
                    "threshold": list(tree.threshold),
                    "left": list(tree.left),
                    "right": list(tree.right),
                    "value": [list(value) for value in tree.value],
                    "output": tree.output,
                }
                for tree in self.trees
            ],
        }

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> TreeEnsemble:
        """The inverse of `to_dict`; InputError: unknown version, missing or unknown key, broken rule."""
        rules.check_family(document, cls.family, cls.version)
        check_keys("model", document, {"family", "version", *(field.name for field in fields(cls))})
        trees = document["trees"]
        if not isinstance(trees, list):
            raise InputError("model", "trees is not a list")
        return cls(
            n_features=document["n_features"],
            n_classes=document["n_classes"],
            votes=document["votes"],
            trees=tuple(_tree_from_dict(index, tree) for index, tree in enumerate(trees)),
            n_outputs=document["n_outputs"],
            base=as_tuple("model", "base", document["base"]),
        )

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the canonical JSON of `to_dict`."""
        return rules.digest(self.to_dict())


@dataclass(frozen=True)
class _Walk:
    """A tree as arrays in which a leaf leads to itself, so that all rows take the same number of steps."""

    feature: NDArray[np.int64]
    threshold: NDArray[np.int64]
    children: NDArray[np.int64]  # (nodes, 2): right, left
    value: NDArray[np.int64]
    depth: int

    @classmethod
    def of(cls, tree: Tree) -> _Walk:
        feature = np.array(tree.feature, np.int64)
        leaf = feature == LEAF
        itself = np.arange(tree.n_nodes)
        children = np.stack([np.where(leaf, itself, tree.right), np.where(leaf, itself, tree.left)], axis=1)
        width = len(tree.value[int(leaf.argmax())])
        value = np.array([value or (0,) * width for value in tree.value], np.int64)
        return cls(
            np.where(leaf, 0, feature), np.array(tree.threshold, np.int64), children, value, tree.depth
        )

    def leaves(self, x: NDArray[np.int64]) -> NDArray[np.int64]:
        row = np.arange(len(x)) * x.shape[1]  # take() on flat arrays is twice as fast as indexing
        node = np.zeros(len(x), np.int64)
        for _ in range(self.depth):
            goes_left = x.ravel().take(row + self.feature.take(node)) <= self.threshold.take(node)
            node = self.children.ravel().take(2 * node + goes_left)
        return node


# -- rules


def _no_room(margin: int) -> InputError:
    return InputError(
        "model",
        f"its scores fill 32 bits and leave no room for a margin of {margin:,}",
        "compile the estimator itself, because its import did not know of the margin",
    )


def _check_shape(model: TreeEnsemble) -> None:
    rules.check_size(model.n_features, model.n_classes)
    if model.votes not in ("majority", "sum"):
        raise InputError("model", f"votes is {model.votes!r}, known are 'majority' and 'sum'")
    one_output = model.votes == "sum" and model.n_classes == 2 and model.n_outputs == 1
    if not one_output and (type(model.n_outputs) is not int or model.n_outputs != model.n_classes):
        raise InputError(
            "model", f"has {model.n_outputs} outputs for {model.n_classes} classes",
            "give one output per class (or a single one for two classes with sum votes)",
        )  # fmt: skip
    if len(model.base) != model.n_outputs or not all(is_int(b, INT32_MIN, INT32_MAX) for b in model.base):
        raise InputError("model", f"base is not {model.n_outputs} 32-bit integers")
    if model.votes == "majority" and any(model.base):
        raise InputError("model", "base must be zero with majority votes")
    if not model.trees:
        raise InputError("model", "has no trees", "train it with at least one")


def _check_tree(model: TreeEnsemble, index: int, tree: Tree) -> None:
    where = f"model, tree {index}"
    n = tree.n_nodes
    columns = (tree.feature, tree.threshold, tree.left, tree.right)
    if n == 0 or any(len(column) != n for column in (*columns, tree.value)):
        raise InputError(where, "feature, threshold, left, right and value must have one element per node")
    if set(map(type, chain(*columns, *tree.value))) != {int}:
        raise InputError(where, "holds something that is not an integer")
    if min(tree.threshold) < INT64_MIN or max(tree.threshold) > INT64_MAX:
        raise InputError(where, "a threshold does not fit a signed 64-bit integer")
    if min(map(min, columns)) < INT64_MIN or max(map(max, columns)) > INT64_MAX:
        raise InputError(where, "an index is out of range")
    feature, threshold, left, right = (np.array(column, np.int64) for column in columns)

    leaf = feature == LEAF
    if ((feature < LEAF) | (feature >= model.n_features)).any():
        raise InputError(where, f"tests a feature outside 0 to {model.n_features - 1}")
    if (left[leaf] != LEAF).any() or (right[leaf] != LEAF).any() or threshold[leaf].any():
        raise InputError(where, "a leaf has children (must be -1) or a threshold (must be 0)")
    children = np.concatenate([left[~leaf], right[~leaf]])
    if (children <= np.tile(np.flatnonzero(~leaf), 2)).any() or (children >= n).any():
        raise InputError(where, "a child does not come after its parent, or does not exist")
    if not np.array_equal(np.sort(children), np.arange(1, n)):
        raise InputError(where, "a node has no parent or several")

    if tree.output is not None and not (model.votes == "sum" and is_int(tree.output, 0, model.n_outputs - 1)):
        raise InputError(where, f"adds to output {tree.output}, which does not exist")
    width = 1 if model.votes == "majority" or tree.output is not None else model.n_outputs
    if any(
        len(value) != (width if is_leaf else 0)
        for value, is_leaf in zip(tree.value, leaf.tolist(), strict=True)
    ):
        raise InputError(where, f"a leaf needs {width} value(s), an inner node none")
    low, high = (0, model.n_classes - 1) if model.votes == "majority" else (INT32_MIN, INT32_MAX)
    if any(not low <= part <= high for part in chain(*tree.value)):
        raise InputError(where, f"a leaf value is outside {low} to {high}")


def _check_scores_fit(model: TreeEnsemble) -> None:
    """The sum of the largest magnitudes, so that no order of additions leaves int32 on its way."""
    reach = [abs(base) for base in model.base]
    for tree in model.trees:
        if model.votes == "majority":
            reach = [votes + 1 for votes in reach]
            continue
        largest = [max(map(abs, column)) for column in zip(*filter(None, tree.value), strict=True)]
        outputs = range(model.n_outputs) if tree.output is None else (tree.output,)
        for output, part in zip(outputs, largest, strict=True):
            reach[output] += part
    if max(reach) > INT32_MAX:
        raise InputError(
            "model",
            f"scores can reach {max(reach):,}, which does not fit a signed 32-bit integer",
            "scale the leaf scores down",
        )


def _tree_from_dict(index: int, document: Any) -> Tree:
    where = f"model, tree {index}"
    check_keys(where, document, {field.name for field in fields(Tree)})
    columns = {
        name: as_tuple(where, name, document[name])
        for name in ("feature", "threshold", "left", "right", "value")
    }
    columns["value"] = tuple(as_tuple(where, "value", value) for value in columns["value"])
    return Tree(**columns, output=document["output"])
