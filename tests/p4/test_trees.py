# SPDX-License-Identifier: Apache-2.0
"""Tree ensembles as P4 equal the reference."""

from __future__ import annotations

import numpy as np
import pytest

from tests.multiplicity import seeds
from tests.p4.cases import Case, bounded, options_for, random_trees, rows_for
from wirewise.models import random_tree_ensemble
from wirewise.targets.p4 import Options
from wirewise.targets.p4.tree_plan import cut


def agree(seed: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    model = bounded(rng, random_trees(rng))
    Case.of(model, options_for(seed, model)).check(rows_for(rng, model, rows))


@pytest.mark.parametrize("seed", seeds(12, of=40))
def test_random_trees_equal_the_reference(seed: int) -> None:
    agree(seed, 30)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_a_thousand_random_ensembles_equal_the_reference(part: int) -> None:
    for seed in range(1000 + 100 * part, 1100 + 100 * part):
        agree(seed, 30)


def test_a_deep_forest_equals_the_reference() -> None:
    rng = np.random.default_rng(1)
    model = random_tree_ensemble(rng, n_features=12, n_classes=4, n_trees=10, depth=8, votes="majority")
    Case.of(model, Options(scores="yes")).check(rows_for(rng, model, 50))


def test_each_reachable_leaf_is_one_entry() -> None:
    model = random_tree_ensemble(
        np.random.default_rng(2), n_features=6, n_trees=3, depth=4, full=True, thresholds=(0, 10**9)
    )
    text = Case.of(model, Options()).sources.files["model.txt"]
    for index, tree in enumerate(model.trees):
        assert text.count(f"WwIngress.tree_{index} ") <= tree.n_leaves
    assert sum(text.count(f"WwIngress.tree_{index} ") for index in range(3)) > 30


def test_a_cut_tree_takes_the_same_path_above_the_cut() -> None:
    model = random_tree_ensemble(
        np.random.default_rng(3), n_trees=1, depth=6, full=True, thresholds=(0, 1500)
    )
    (tree,) = model.trees
    part = cut(tree, 3)
    assert part.depth == 3 and part.n_leaves == 8
    for row in np.random.default_rng(4).integers(0, 1500, (50, model.n_features)).tolist():
        tested = [(tree.feature[n], tree.threshold[n]) for n in tree.path(row)[:3]]
        assert [(part.feature[n], part.threshold[n]) for n in part.path(row)[:3]] == tested
