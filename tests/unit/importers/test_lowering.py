# SPDX-License-Identifier: Apache-2.0
"""Float comparisons to integer thresholds, pruning, scaling."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from wirewise.errors import InputError
from wirewise.importers.lowering import ROOM_FOR_MARGIN, Cuts, SourceTree, build, cuts_at
from wirewise.importers.request import Request
from wirewise.models.rules import INT32_MAX, INT64_MAX, INT64_MIN
from wirewise.models.tree import LEAF

REQUEST = Request(subject="a.model")


def rounded(x: int, bits: int) -> Fraction:
    """x rounded to a float of so many significant bits, ties to even, in exact arithmetic."""
    excess = max(abs(x).bit_length() - bits, 0)
    return Fraction(round(Fraction(x, 2**excess)) * 2**excess)


def goes_left(x: int, threshold: float, bits: int, strict: bool) -> bool:
    value = rounded(x, bits)
    return value < threshold if strict else value <= threshold


@given(
    st.one_of(
        st.floats(allow_nan=False),
        st.floats(-(2.0**64), 2.0**64, width=32),
        st.integers(INT64_MIN, INT64_MAX).map(float),
        st.integers(-(2**26), 2**26).map(lambda n: n + 0.5),
    ),
    st.sampled_from([(np.float32, 24), (np.float64, 53)]),
    st.booleans(),
)
@example(2.0**63, (np.float32, 24), True)
@example(-(2.0**63), (np.float32, 24), False)
@example(-(2.0**63), (np.float64, 53), True)
@example(16777216.0, (np.float32, 24), True)
@example(16777217.0, (np.float32, 24), False)
@example(math.inf, (np.float32, 24), False)
@example(-math.inf, (np.float64, 53), False)
def test_the_threshold_is_the_last_integer_that_goes_left(
    threshold: float, kind: tuple[type[np.floating], int], strict: bool
) -> None:
    cuts = cuts_at(np.array([threshold]), kind[0], strict=strict)
    cut, never = int(cuts.threshold[0]), bool(cuts.never[0])
    if never:
        assert not goes_left(INT64_MIN, threshold, kind[1], strict)
    else:
        assert goes_left(cut, threshold, kind[1], strict)
        assert cut == INT64_MAX or not goes_left(cut + 1, threshold, kind[1], strict)


def chain(thresholds: list[float], feature: int = 0) -> SourceTree:
    """Tests one after the other on the right: leaf i holds score i."""
    n = len(thresholds)
    nodes = 2 * n + 1
    left, right = np.full(nodes, LEAF), np.full(nodes, LEAF)
    left[:n], right[:n] = np.arange(n, 2 * n), np.arange(1, n + 1)
    right[n - 1] = 2 * n
    return SourceTree(
        feature=np.where(np.arange(nodes) < n, feature, LEAF),
        cuts=cuts_at(np.array([*thresholds, *[0.0] * (n + 1)]), np.float64),
        left=left,
        right=right,
        scores=np.maximum(np.arange(nodes) - n, 0)[:, None].astype(float),
    )


def lower(*trees: SourceTree, **options: object):  # type: ignore[no-untyped-def]
    return build(REQUEST, trees, **{"n_features": 1, "n_classes": 2, **options})


@pytest.mark.parametrize(
    ("thresholds", "left"),
    [
        ([3.2, 3.7], 1),  # no integer is between
        ([5.0, 4.0], 1),  # nothing at most 4 is left
        ([math.inf, 1.0], 0),  # always left: a lone leaf
        ([-math.inf, 1.0], 1),  # never left
        ([-1e300, 1e300], 0),
        ([-(2.0**63), 0.0], 2),  # INT64_MIN does go left
    ],
)
def test_branches_that_no_integer_takes_are_pruned(thresholds: list[float], left: int) -> None:
    built = lower(chain(thresholds))
    assert built.model.trees[0].n_leaves == left + 1
    for x in (INT64_MIN, INT64_MIN + 1, -1, 0, 1, 3, 4, 5, 6, INT64_MAX):
        expected = next((i for i, t in enumerate(thresholds) if float(x) <= t), len(thresholds))
        assert built.node_ids[0][built.model.path([x])[0][-1]] == len(thresholds) + expected


def leaf(*scores: float, output: int | None = None) -> SourceTree:
    one = np.array([LEAF])
    return SourceTree(
        one, Cuts(np.array([0]), np.array([False])), one, one, np.array([scores], float), output
    )


@given(
    st.lists(st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=3), min_size=1, max_size=50),
    st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=3),
)
@example(leaves=[[0.0, 0.0, 1e-290]], base=[0.0, 0.0, 0.0])
def test_scores_fill_their_room_and_keep_their_proportions(
    leaves: list[list[float]], base: list[float]
) -> None:
    model = lower(
        *(leaf(*scores) for scores in leaves), n_classes=3, base=base
    ).model  # would raise if it overflowed
    exact = [sum(map(Fraction, column)) for column in zip(*leaves, base, strict=True)]
    _, scores = model.predict_one([0])
    reach = max(sum(abs(Fraction(part)) for part in column) for column in zip(*leaves, base, strict=True))
    if reach > Fraction(1e-290):  # what is smaller counts as zero
        scale = Fraction(INT32_MAX // ROOM_FOR_MARGIN) / reach
        for ours, theirs in zip(scores, exact, strict=True):
            assert abs(ours - theirs * scale) <= 2 * (len(leaves) + 4)


def test_equal_fractions_stay_equal() -> None:
    halves = [leaf(1 / 2, 1 / 2, 0), leaf(1 / 2, 1 / 2, 0), leaf(1 / 3, 2 / 3, 0), leaf(2 / 3, 1 / 3, 0)]
    classes, scores = lower(*halves, n_classes=3, base=(0, 0, 0), fractions=True).model.predict_one([0])
    assert classes == 0 and scores[0] == scores[1]


def test_zero_can_be_class_1_and_all_zero_scores_are_fine() -> None:
    assert lower(leaf(0.0)).model.predict_one([0])[0] == 0
    assert lower(leaf(0.0), zero_is_class_1=True).model.predict_one([0])[0] == 1
    assert lower(leaf(-1e-9), zero_is_class_1=True).model.predict_one([0])[0] == 0


def test_scores_too_far_apart_for_32_bits_are_refused() -> None:
    lower(leaf(1e5), leaf(-1e5))
    with pytest.raises(
        InputError, match=r"sums of leaf scores up to 1.0e\+15, .* it has diverged: train it with a smal"
    ):
        lower(leaf(1e15), leaf(0.1))


@pytest.mark.parametrize("score", [math.inf, math.nan])
def test_scores_that_are_not_finite_are_refused(score: float) -> None:
    with pytest.raises(
        InputError, match=r"a\.model: has a leaf score or base score that is not a finite number; train"
    ):
        lower(leaf(score))


def test_refusals_of_the_model_name_the_input() -> None:
    with pytest.raises(
        InputError, match=r"^a\.model: has 200 features, allowed are 1 to 128; train it on fewer"
    ):
        lower(leaf(1.0), n_features=200)


@pytest.mark.parametrize("child", [0, 1, 9, -2])
def test_nodes_that_form_no_tree_are_refused(child: int) -> None:
    tree = chain([1.0, 2.0])
    tree.right[1] = child
    with pytest.raises(InputError, match="do not form a tree"):
        lower(tree)
