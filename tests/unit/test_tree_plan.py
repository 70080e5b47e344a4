# SPDX-License-Identifier: Apache-2.0
"""Which shape trees get by their size, and by the features beside them."""

from __future__ import annotations

import numpy as np
import pytest

from wirewise.models.random import random_tree_ensemble
from wirewise.targets.ebpf import tree_plan


@pytest.mark.parametrize(
    ("trees", "features", "shape"),
    [(6, 16, "inline"), (6, 40, "inline"), (14, 16, "inline"), (14, 40, "functions"), (18, 16, "functions")],
)
def test_larger_forests_are_in_place_beside_few_features(trees: int, features: int, shape: str) -> None:
    model = random_tree_ensemble(
        np.random.default_rng(1), n_features=features, n_trees=trees, depth=8, votes="majority", full=True
    )
    assert len(model.used_features) == features
    assert tree_plan.plan(model).shape == shape
