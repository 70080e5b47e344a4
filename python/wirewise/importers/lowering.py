# SPDX-License-Identifier: Apache-2.0
"""What all importers share: float comparisons to integer thresholds, float scores to integer scores.

An importer reads a library's trees into `SourceTree`s, in the library's own node numbers, for `build`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wirewise.errors import InputError, MissingFeatureError
from wirewise.importers.request import Floats, Request, Rows
from wirewise.models.rules import INT32_MAX, INT64_MAX, INT64_MIN
from wirewise.models.tree import LEAF, Tree, TreeEnsemble, Votes

# Multiples of lcm(1..16) keep equal sums of small fractions (1/2 + 1/2, 1/3 + 2/3, ...) equal as integers.
FRACTIONS = 720_720

# The largest rounding of a sum of margins (log-odds) that is accepted: beyond it classes would differ.
COARSEST = 1e-3


@dataclass(frozen=True)
class Cuts:
    """Tests as integers: `x <= threshold` goes left, except where `never` (not even INT64_MIN goes left)."""

    threshold: NDArray[np.int64]
    never: NDArray[np.bool_]


def cuts(goes_left: Callable[[Rows], NDArray[np.bool_]], count: int) -> Cuts:
    """The largest integer that goes left in each of `count` tests, by bisection over all of int64.

    `goes_left` applies the estimator's own arithmetic to one integer per test. Rounding to a float type is
    monotone, so each test has one such integer (INT64_MAX if all go left).
    """
    low, high = np.full(count, INT64_MIN), np.full(count, INT64_MAX)
    never = ~goes_left(low)
    always = goes_left(high)
    for _ in range(64):  # invariant: low goes left, high does not
        middle = (low & high) + ((low ^ high) >> 1)  # mean without overflow
        left = goes_left(middle)
        low, high = np.where(left, middle, low), np.where(left, high, middle)
    return Cuts(np.where(always, INT64_MAX, np.where(never, INT64_MIN, low)), never)


def cuts_at(threshold: Floats, rounds_to: type[np.floating[Any]], *, strict: bool = False) -> Cuts:
    """Tests `rounds_to(x) <= threshold` (or `<`), the right side as it is; NaN thresholds never go left."""
    less = np.less if strict else np.less_equal
    return cuts(lambda x: less(x.astype(rounds_to), threshold), len(threshold))


@dataclass(frozen=True)
class SourceTree:
    """A tree in a library's node numbers: feature (-1 at a leaf), cuts, children, a row of scores a node.

    scores: (nodes, outputs), or (nodes, 1) when the tree adds to `output` only; read at leaves. ids: the
    library's number of each node if that is not its position.
    """

    feature: NDArray[np.int64]
    cuts: Cuts
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    scores: NDArray[np.float64]
    output: int | None = None
    ids: NDArray[np.int64] | None = None


@dataclass(frozen=True)
class Built:
    """What `build` makes of source trees; `note` says what rounding the scores can change ("" if nothing)."""

    model: TreeEnsemble
    node_ids: tuple[tuple[int, ...], ...]
    note: str


def build(
    request: Request,
    trees: Sequence[SourceTree],
    *,
    n_features: int,
    n_classes: int,
    votes: Votes = "sum",
    base: Sequence[float] = (0.0,),
    zero_is_class_1: bool = False,
    fractions: bool = False,
) -> Built:
    """The integer model.

    base: one number per output, before scaling. zero_is_class_1: for libraries that decide `score >= 0`.
    fractions: the scores are fractions with small denominators, so choose a scale that keeps their ties.
    """
    kept = [_prune(request, tree) for tree in trees]
    if votes == "majority":
        values = [
            tree.scores[part.nodes].argmax(axis=1)[:, None] for tree, part in zip(trees, kept, strict=True)
        ]
        integer_base, note = [0] * n_classes, ""
    else:
        scores = [
            np.where(part.leaf, tree.scores[part.nodes].T, 0.0).T
            for tree, part in zip(trees, kept, strict=True)
        ]
        scale = _scale(request, trees, scores, base, fractions)
        values = [np.rint(score * scale).astype(np.int64) for score in scores]
        integer_base = [round(part * scale) for part in base]
        note = (
            f"leaf scores are multiplied by {scale:.6g} and rounded to integers: a sum is within "
            f"{_rounding(len(trees), scale):.1e} of the exact one, only closer calls can differ"
        )
    if zero_is_class_1:
        integer_base[0] += 1
    lowered = tuple(_tree(tree, part, value) for tree, part, value in zip(trees, kept, values, strict=True))
    try:
        model = TreeEnsemble(n_features, n_classes, votes, lowered, len(integer_base), tuple(integer_base))
    except InputError as error:  # say whose model it is
        subject = error.subject.replace("model", request.subject, 1)
        way_out = error.way_out or "the file is damaged: save the estimator again"
        raise InputError(subject, error.rule, way_out) from None
    ids = (
        part.nodes if tree.ids is None else tree.ids[part.nodes]
        for tree, part in zip(trees, kept, strict=True)
    )
    return Built(model, tuple(tuple(numbers.tolist()) for numbers in ids), note)


@dataclass(frozen=True)
class _Kept:
    """The nodes of a source tree that some integer reaches, in our order: children after their parent."""

    nodes: NDArray[np.int64]
    leaf: NDArray[np.bool_]
    children: list[list[int]]  # of our numbers; [] at a leaf


def _prune(request: Request, source: SourceTree) -> _Kept:
    """Walks the tree with the range each feature still has; a test that leaves no choice is skipped."""
    feature, never = source.feature.tolist(), source.cuts.never.tolist()
    threshold, left, right = source.cuts.threshold.tolist(), source.left.tolist(), source.right.tolist()
    nodes: list[int] = []
    children: list[list[int]] = []
    visits = 0
    stack: list[tuple[int, dict[int, tuple[int, int]], list[int]]] = [(0, {}, [])]
    while stack:
        node, ranges, siblings = stack.pop()
        visits += 1
        if not 0 <= node < len(feature) or visits > len(feature):
            raise request.refuse(
                "has a tree whose nodes do not form a tree", "it is damaged, save the model again"
            )
        tested, cut = feature[node], threshold[node]
        low, high = ranges.get(tested, (INT64_MIN, INT64_MAX))
        if tested != LEAF and (never[node] or cut < low):
            stack.append((right[node], ranges, siblings))
        elif tested != LEAF and cut >= high:
            stack.append((left[node], ranges, siblings))
        else:
            siblings.append(len(nodes))
            nodes.append(node)
            own: list[int] = []
            children.append(own)
            if tested != LEAF:  # the left child is popped first
                stack.append((right[node], {**ranges, tested: (cut + 1, high)}, own))
                stack.append((left[node], {**ranges, tested: (low, cut)}, own))
    kept = np.array(nodes)
    return _Kept(kept, source.feature[kept] == LEAF, children)


ROOM_FOR_MARGIN = 4
"""A margin is at most the distance of two scores, so a score with it at most three times the largest."""


def _scale(
    request: Request,
    trees: Sequence[SourceTree],
    scores: Sequence[NDArray[np.float64]],
    base: Sequence[float],
    fractions: bool,
) -> float:
    """The largest factor that keeps every sum of rounded scores, and a margin, in int32."""
    reach = np.abs(np.array(base, np.float64))
    for tree, score in zip(trees, scores, strict=True):
        largest = np.abs(score).max(axis=0)
        if tree.output is None:
            reach += largest
        else:
            reach[tree.output] += largest[0]
    if not np.isfinite(reach).all():
        raise request.refuse("has a leaf score or base score that is not a finite number", "train it again")
    # Rounding adds at most half to each leaf and to the base, deciding `score >= 0` adds 1 to the base.
    room = INT32_MAX // ROOM_FOR_MARGIN - len(trees) - 2
    largest_sum = float(reach.max())
    scale = room / largest_sum if largest_sum > 1e-290 else float(room)
    if not fractions and _rounding(len(trees), scale) > COARSEST:
        raise request.refuse(
            f"has sums of leaf scores up to {largest_sum:.1e}, beside which small scores vanish in 32 bits",
            "it has diverged: train it with a smaller learning rate, fewer trees or more regularisation",
        )
    return scale // FRACTIONS * FRACTIONS if fractions and scale >= FRACTIONS else scale


def _rounding(n_trees: int, scale: float) -> float:
    """How far a sum of rounded scores can be from the exact sum, in the estimator's unit."""
    return (n_trees + 1) / 2 / scale


def _tree(source: SourceTree, kept: _Kept, values: NDArray[np.int64]) -> Tree:
    leaf = kept.leaf.tolist()
    return Tree(
        feature=tuple(source.feature[kept.nodes].tolist()),
        threshold=tuple(np.where(kept.leaf, 0, source.cuts.threshold[kept.nodes]).tolist()),
        left=tuple(own[0] if own else LEAF for own in kept.children),
        right=tuple(own[1] if own else LEAF for own in kept.children),
        value=tuple(
            tuple(row) if is_leaf else () for row, is_leaf in zip(values.tolist(), leaf, strict=True)
        ),
        output=source.output,
    )


def class_names(request: Request, own: Sequence[object]) -> list[str]:
    """The names the user gave, else the model's own, as text; as many as the model has classes."""
    if len(own) < 2:
        raise request.refuse("has a single class, so it decides nothing", "train it on two classes or more")
    names = [str(name) for name in (own if request.classes is None else request.classes)]
    if len(names) != len(own):
        raise request.refuse(
            f"has {len(own)} classes, {len(names)} class names were given", "name each class"
        )
    if len(set(names)) != len(names) or "" in names:
        raise request.refuse(f"class names {names} are not distinct and non-empty", "give other class names")
    return names


def check_features(request: Request, n_features: int) -> int:
    """The number of features of the model, which must be the number asked for."""
    if request.n_features not in (None, n_features):
        raise request.refuse(
            f"was trained on {n_features} features, the feature set has {request.n_features}",
            "use the feature set whose table it was trained on",
        )
    return n_features


def only_sum(request: Request) -> None:
    """Refuses majority votes where the leaves hold margins."""
    if request.votes == "majority":
        raise request.refuse("boosted trees add up margins, they do not vote", "leave out votes=majority")


def library(name: str) -> Any:
    """An optional library, imported when first needed; the error says how to install a missing one."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0].replace("sklearn", "scikit-learn")
        raise MissingFeatureError(
            f"this model needs the Python library {name}, which cannot be imported ({error}); "
            f"pip install {package}"
        ) from None
