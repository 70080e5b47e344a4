# SPDX-License-Identifier: Apache-2.0
"""The tree IR: its meaning, its rules, its serialisation."""

from __future__ import annotations

import copy
import dataclasses
import json
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirewise.errors import InputError
from wirewise.models import MODELS, Tree, TreeEnsemble, load, random_tree_ensemble
from wirewise.models.rules import INT32_MAX, INT64_MAX, INT64_MIN

#      x0 <= 5
#     /       \
#   10      x1 <= -3
#           /      \
#          -4       7
STUMP = Tree(
    (0, -1, 1, -1, -1), (5, 0, -3, 0, 0), (1, -1, 3, -1, -1), (2, -1, 4, -1, -1), ((), (10,), (), (-4,), (7,))
)


def one(tree: Tree = STUMP, **changes: object) -> TreeEnsemble:
    fields = {"n_features": 2, "n_classes": 2, "votes": "sum", "trees": (tree,), "n_outputs": 1, "base": (0,)}
    return TreeEnsemble(**{**fields, **changes})  # type: ignore[arg-type]


def test_a_tree_by_hand() -> None:
    model = one()
    assert model.predict_one([5, 0]) == (1, [10])
    assert model.predict_one([6, -3]) == (0, [-4])
    assert model.predict_one([6, -2]) == (1, [7])
    assert model.path([6, -3]) == [[0, 2, 3]]
    assert model.path([INT64_MIN, 0]) == [[0, 1]]
    assert (model.depth, model.used_features, model.n_nodes) == (2, (0, 1), 5)
    assert (
        model.describe()
        == "1 tree, depth 2, 3 leaves, 2 of 2 features used, sum of integer scores, 2 classes"
    )


def test_a_score_of_zero_is_class_0_and_base_counts() -> None:
    assert one(base=(4,)).predict_one([6, -3]) == (0, [0])
    assert one(base=(5,)).predict_one([6, -3]) == (1, [1])


def vote(*classes: int) -> tuple[Tree, ...]:
    return tuple(Tree((-1,), (0,), (-1,), (-1,), ((c,),)) for c in classes)


def test_majority_ties_go_to_the_lowest_class() -> None:
    model = TreeEnsemble(1, 3, "majority", vote(2, 1, 1, 2), 3, (0, 0, 0))
    assert model.predict_one([0]) == (1, [0, 2, 2])


def test_sum_ties_go_to_the_lowest_class_and_a_tree_can_add_to_one_output() -> None:
    trees = (
        Tree((-1,), (0,), (-1,), (-1,), ((1, 5, 2),)),
        Tree((-1,), (0,), (-1,), (-1,), ((3,),), output=2),
    )
    assert TreeEnsemble(1, 3, "sum", trees, 3, (4, 0, 0)).predict_one([0]) == (0, [5, 5, 5])


VOTES = st.sampled_from([("majority", None), ("sum", 1), ("sum", 2), ("sum", 5)])


def ensemble(seed: int, kind: tuple[str, int | None], full: bool = False, n_trees: int = 5) -> TreeEnsemble:
    votes, outputs = kind
    return random_tree_ensemble(
        np.random.default_rng(seed),
        n_features=4,
        n_classes=5 if outputs in (None, 5) else 2,
        n_trees=n_trees,
        depth=5,
        votes=votes,  # type: ignore[arg-type]
        n_outputs=outputs,
        full=full,
        thresholds=[(-5, 5), (0, 1500), (2**40, 2**41), (INT64_MIN, INT64_MAX)],
    )


@given(st.integers(0, 2**32), VOTES, st.booleans())
def test_predict_is_predict_one(seed: int, kind: tuple[str, int | None], full: bool) -> None:
    model = ensemble(seed, kind, full)
    rng = np.random.default_rng(seed)
    ranges = [(-6, 7), (-1, 1502), (2**40, 2**41), (INT64_MIN, INT64_MAX)]
    x = np.stack([rng.integers(low, high, 20) for low, high in ranges], axis=1)
    classes, scores = model.predict(x)
    assert classes.dtype == np.int32 and scores.dtype == np.int64
    leaves = model.leaves(x)
    for row, got, score, leaf in zip(
        x.tolist(), classes.tolist(), scores.tolist(), leaves.tolist(), strict=True
    ):
        assert model.predict_one(row) == (got, score)
        assert [path[-1] for path in model.path(row)] == leaf


@given(st.integers(0, 2**32), VOTES)
def test_survives_json(seed: int, kind: tuple[str, int | None]) -> None:
    model = ensemble(seed, kind)
    again = load(json.loads(json.dumps(model.to_dict())))
    assert again == model and again.digest == model.digest


def test_digest_depends_on_every_number() -> None:
    digests = {one().digest, one(base=(1,)).digest, one(n_features=3).digest}
    for index in range(5):
        if STUMP.feature[index] >= 0:
            changed = list(STUMP.threshold)
            changed[index] += 1
            digests.add(one(dataclasses.replace(STUMP, threshold=tuple(changed))).digest)
        else:
            value = list(STUMP.value)
            value[index] = (value[index][0] + 1,)
            digests.add(one(dataclasses.replace(STUMP, value=tuple(value))).digest)
    assert len(digests) == 8


LEAF = Tree((-1,), (0,), (-1,), (-1,), ((0,),))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"n_features": 200}, "model: has 200 features, allowed are 1 to 128; train it on fewer features"),
        ({"n_classes": 65, "n_outputs": 65, "base": (0,) * 65}, "has 65 classes, allowed are 2 to 64"),
        ({"n_classes": 1}, "has 1 classes"),
        ({"n_classes": 3}, "has 1 outputs for 3 classes"),
        ({"n_features": True}, "has True features"),
        ({"votes": "mean"}, "known are 'majority' and 'sum'"),
        ({"base": (0, 0)}, "base is not 1 32-bit integers"),
        ({"base": (0.5,)}, "base is not 1 32-bit integers"),
        ({"trees": ()}, "has no trees"),
        ({"trees": (Tree((), (), (), (), ()),)}, "one element per node"),
        ({"trees": (dataclasses.replace(STUMP, left=(1, -1, 3, -1)),)}, "one element per node"),
        ({"trees": (dataclasses.replace(STUMP, feature=(0, -1, 2, -1, -1)),)}, "outside 0 to 1"),
        ({"trees": (dataclasses.replace(STUMP, feature=(0, -1, -2, -1, -1)),)}, "outside 0 to 1"),
        ({"trees": (dataclasses.replace(STUMP, threshold=(5.5, 0, -3, 0, 0)),)}, "not an integer"),
        ({"trees": (dataclasses.replace(STUMP, threshold=(True, 0, -3, 0, 0)),)}, "not an integer"),
        ({"trees": (dataclasses.replace(STUMP, threshold=(2**63, 0, -3, 0, 0)),)}, "signed 64-bit"),
        ({"trees": (dataclasses.replace(STUMP, threshold=(5, 1, -3, 0, 0)),)}, "a leaf has children"),
        ({"trees": (dataclasses.replace(STUMP, left=(0, -1, 3, -1, -1)),)}, "after its parent"),
        ({"trees": (dataclasses.replace(STUMP, left=(1, -1, 1, -1, -1)),)}, "after its parent"),
        (
            {"trees": (dataclasses.replace(STUMP, right=(2, -1, 5, -1, -1)),)},
            "after its parent, or does not exist",
        ),
        ({"trees": (dataclasses.replace(STUMP, right=(2, -1, 2**70, -1, -1)),)}, "out of range"),
        ({"trees": (dataclasses.replace(STUMP, left=(2, -1, 3, -1, -1)),)}, "no parent or several"),
        ({"trees": (dataclasses.replace(STUMP, value=((), (10,), (), (-4,), ())),)}, "needs 1 value(s)"),
        ({"trees": (dataclasses.replace(STUMP, value=((1,), (10,), (), (-4,), (7,))),)}, "needs 1 value(s)"),
        ({"trees": (dataclasses.replace(STUMP, value=((), (2**31,), (), (-4,), (7,))),)}, "outside"),
        ({"trees": (dataclasses.replace(STUMP, output=1),)}, "adds to output 1"),
        ({"trees": (LEAF, dataclasses.replace(LEAF, feature=(0,)))}, "model, tree 1"),
        ({"votes": "majority", "n_outputs": 2, "base": (0, 0)}, "outside 0 to 1"),
        ({"votes": "majority", "n_outputs": 2, "base": (0, 1), "trees": vote(1)}, "base must be zero"),
        ({"votes": "majority", "n_outputs": 1, "trees": vote(1)}, "has 1 outputs for 2 classes"),
    ],
)
def test_rules(changes: dict[str, object], says: str) -> None:
    with pytest.raises(InputError) as refused:
        one(**changes)
    assert says in str(refused.value)
    assert refused.value.exit_code == 2


def test_scores_must_fit_whatever_leaves_are_reached() -> None:
    half = Tree((0, -1, -1), (0, 0, 0), (1, -1, -1), (2, -1, -1), ((), (2**30,), (-(2**30),)))
    assert one(trees=(half,), base=(2**30 - 1,)).predict_one([0, 0]) == (1, [INT32_MAX])
    with pytest.raises(InputError, match=r"scores can reach 2,147,483,648, .* 32-bit"):
        one(trees=(half,), base=(2**30,))
    with pytest.raises(
        InputError, match="32-bit"
    ):  # the sum of magnitudes counts: any order of additions must fit
        one(trees=(half, half), base=(-1,))


@pytest.mark.parametrize(
    ("where", "value", "says"),
    [
        (("family",), "svm", "family 'svm' is unknown"),
        (("version",), 2, "version 2 is unknown"),
        (("trees",), {}, "trees is not a list"),
        (("trees", 0), [], "model, tree 0: is not an object"),
        (("trees", 0, "value", 1), 3, "value is not a list"),
        (("trees", 0, "value", 1), ["3"], "not an integer"),
        (("trees", 0, "left"), None, "left is not a list"),
        (("trees", 0, "output"), "a", "adds to output a"),
        (("n_features",), "2", "has 2 features"),
        (("base",), 0, "base is not a list"),
        (("extra",), 0, "unknown keys: extra"),
        (("n_classes",), ..., "lacks n_classes"),
        (("trees", 0, "threshold"), ..., "lacks threshold"),
    ],
)
def test_a_damaged_document_is_refused(where: tuple[str | int, ...], value: object, says: str) -> None:
    document = copy.deepcopy(one().to_dict())
    target = document
    for key in where[:-1]:
        target = target[key]  # type: ignore[index]
    if value is ...:
        del target[where[-1]]  # type: ignore[arg-type]
    else:
        target[where[-1]] = value  # type: ignore[index]
    with pytest.raises(InputError) as refused:
        load(document)
    assert says in str(refused.value)


@pytest.mark.parametrize("document", [None, [], {}, {"family": []}])
def test_something_else_is_refused(document: object) -> None:
    with pytest.raises(InputError, match=r"^model"):
        load(document)


def test_rows_of_another_shape_or_type_are_refused() -> None:
    with pytest.raises(InputError, match="2 features"):
        one().predict(np.zeros((3, 4), np.int64))
    with pytest.raises(InputError, match="64-bit integers"):
        one().predict(np.full((3, 2), "1"))  # type: ignore[arg-type]
    assert one().predict(np.zeros((0, 2), np.int64))[0].shape == (0,)


def test_registry() -> None:
    assert MODELS["tree-ensemble"] is TreeEnsemble


def test_random_ensembles_are_repeatable_full_when_asked_and_fast() -> None:
    start = time.process_time()
    build = [
        random_tree_ensemble(
            np.random.default_rng(3),
            n_features=64,
            n_classes=16,
            n_trees=100,
            depth=10,
            full=True,
            thresholds=(7, 9),
        )
        for _ in range(2)
    ]
    assert time.process_time() - start < 10  # about 1.2 s; the benchmark builds it too
    assert build[0] == build[1]
    assert all(tree.n_leaves == 1024 and tree.depth == 10 for tree in build[0].trees)
    inner = [
        t for tree in build[0].trees for f, t in zip(tree.feature, tree.threshold, strict=True) if f >= 0
    ]
    assert set(inner) == {7, 8, 9}
    assert (
        random_tree_ensemble(np.random.default_rng(1), one_output_trees=True, n_classes=3).trees[2].output
        == 2
    )
