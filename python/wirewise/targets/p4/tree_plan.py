# SPDX-License-Identifier: Apache-2.0
"""Trees as look-ups: a feature's range match gives the number of the interval between its thresholds; a leaf
is a box of such numbers, one entry of its tree's table (as Planter and IIsy encode them).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from wirewise.models import Tree, TreeEnsemble
from wirewise.targets.p4.limits import DoesNotFit, Limits
from wirewise.targets.p4.options import Options
from wirewise.targets.p4.program import CLASS_BITS, MODEL_BITS, count_bits

LEAF = -1
SCORE_BITS = 32
"""Scores and votes wrap around at 32 bits; the IR's rules keep their sums within."""
Box = dict[int, tuple[int, int]]
"""Feature -> first and last number of the intervals."""


@dataclass(frozen=True)
class Leaf:
    """A leaf that some packet can reach. box : has only the features that matter."""

    box: Box
    value: tuple[int, ...]


@dataclass(frozen=True)
class TreePlan:
    """thresholds : per feature, ascending, those of all trees. leaves : per tree; () of a tree without tests,
    whose leaf `base` holds already. base : per output.
    """

    thresholds: dict[int, tuple[int, ...]]
    leaves: tuple[tuple[Leaf, ...], ...]
    base: tuple[int, ...]
    phv_bits: int
    stages: int

    def code_bits(self, feature: int) -> int:
        return count_bits(len(self.thresholds[feature]))

    def keys(self, tree: int) -> list[int]:
        """Features that a tree's table compares."""
        return sorted({feature for leaf in self.leaves[tree] for feature in leaf.box})


def plan_trees(
    model: TreeEnsemble, options: Options, limits: Limits, header_bits: int, bounded: Collection[int]
) -> TreePlan:
    """The layout. bounded : features that have bounds. Raises InputError, with the size that would fit."""

    def attempt(trees: Sequence[Tree]) -> TreePlan:
        return _plan(replace(model, trees=tuple(trees)), options, limits, header_bits, bounded)

    try:
        return attempt(model.trees)
    except DoesNotFit as error:
        raise error.refused(_way_out(model, attempt)) from None


def _way_out(model: TreeEnsemble, attempt: Callable[[Sequence[Tree]], TreePlan]) -> str:
    """The largest part of this ensemble that fits: fewer trees, then a tree of less depth."""

    def fits(trees: Sequence[Tree]) -> bool:
        try:
            attempt(trees)
        except DoesNotFit:
            return False
        return True

    first = model.trees[0]
    for n_trees in range(len(model.trees) - 1, 0, -1):
        if fits(model.trees[:n_trees]):
            return f"of these trees the first {n_trees} would fit: train no more"
    for depth in range(first.depth - 1, 0, -1):
        if fits([cut(first, depth)]):
            return f"one tree of depth {depth} would fit"
    return "not even one test of one feature fits"


def cut(tree: Tree, depth: int) -> Tree:
    """The tree down to a depth, below which the leftmost leaf stands for all."""
    columns: list[tuple[int, int, list[int], tuple[int, ...]]] = []

    def add(node: int, left_over: int) -> int:
        if not left_over:
            while tree.feature[node] != LEAF:
                node = tree.left[node]
        here = len(columns)
        children = [LEAF, LEAF]
        columns.append((tree.feature[node], tree.threshold[node], children, tree.value[node]))
        if tree.feature[node] != LEAF:
            children[0] = add(tree.left[node], left_over - 1)
            children[1] = add(tree.right[node], left_over - 1)
        return here

    add(0, depth)
    return Tree(
        tuple(one[0] for one in columns),
        tuple(one[1] for one in columns),
        tuple(one[2][0] for one in columns),
        tuple(one[2][1] for one in columns),
        tuple(one[3] for one in columns),
        tree.output,
    )


def _plan(
    model: TreeEnsemble, options: Options, limits: Limits, header_bits: int, bounded: Collection[int]
) -> TreePlan:
    thresholds = _thresholds(model)
    base, leaves = list(model.base), []
    for tree in model.trees:
        found = tuple(_leaves(tree, thresholds))
        if len(found) == 1:  # nothing is tested, or nothing that matters
            for output, part in additions(model, tree, found[0].value):
                base[output] += part
            found = ()
        leaves.append(found)
    words = 64 * len({*model.used_features, *bounded})
    codes = sum(count_bits(len(steps)) for steps in thresholds.values())
    scores, choosing = model.n_outputs * SCORE_BITS, model.n_outputs * (SCORE_BITS + CLASS_BITS)
    phv_bits = header_bits + (64 * len(bounded)) + max(words + codes, codes + scores, choosing + scores)
    tables = sum(1 for found in leaves if found)
    read = 2 if options.input == "registers" else 0  # flow hash, then its registers
    stages = read + 2 + tables + (model.n_outputs - 1).bit_length() + 1
    plan = TreePlan(thresholds, tuple(leaves), tuple(base), phv_bits, stages)
    limits.check("phv_bits", phv_bits)
    limits.check("stages", stages)
    if thresholds:
        limits.check("table_bytes", (MODEL_BITS + 64) // 8)
    for index in range(len(leaves)):
        _check_tables(plan, index, model, limits)
    return plan


def _thresholds(model: TreeEnsemble) -> dict[int, tuple[int, ...]]:
    found: dict[int, set[int]] = {feature: set() for feature in model.used_features}
    for tree in model.trees:
        for feature, threshold in zip(tree.feature, tree.threshold, strict=True):
            if feature != LEAF:
                found[feature].add(threshold)
    return {feature: tuple(sorted(steps)) for feature, steps in found.items()}


def _check_tables(plan: TreePlan, tree: int, model: TreeEnsemble, limits: Limits) -> None:
    """A look-up compares the model's number and the intervals, and gives what the leaf adds."""
    if plan.leaves[tree]:
        key = MODEL_BITS + sum(plan.code_bits(feature) for feature in plan.keys(tree))
        given = 0 if model.votes == "majority" else len(plan.leaves[tree][0].value) * SCORE_BITS
        limits.check("table_bytes", -(-max(key, given) // 8))


def additions(model: TreeEnsemble, tree: Tree, value: tuple[int, ...]) -> list[tuple[int, int]]:
    """(output, what a leaf adds to it)."""
    if model.votes == "majority":
        return [(value[0], 1)]
    if tree.output is not None:
        return [(tree.output, value[0])]
    return list(enumerate(value))


def _leaves(tree: Tree, thresholds: dict[int, tuple[int, ...]]) -> Iterator[Leaf]:
    """The leaves that can be reached, each with its box."""
    stack: list[tuple[int, Box]] = [(0, {})]
    while stack:
        node, box = stack.pop()
        feature = tree.feature[node]
        if feature == LEAF:
            yield Leaf(box, tree.value[node])
            continue
        steps = thresholds[feature]
        low, high = box.get(feature, (0, len(steps)))
        at = bisect_left(steps, tree.threshold[node])  # intervals 0 to at are <= the threshold
        for child, (first, last) in (
            (tree.right[node], (max(low, at + 1), high)),
            (tree.left[node], (low, min(high, at))),
        ):
            if first <= last:
                stack.append((child, {**box, feature: (first, last)}))
