# SPDX-License-Identifier: Apache-2.0
"""Trained models as P4 equal the reference."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier

from tests import needs
from tests.p4.cases import OPTIONS, Case, rows_for
from wirewise.evaluate.binary_training import BinaryClassifier
from wirewise.importers import import_model
from wirewise.models import BinaryMlp, TreeEnsemble
from wirewise.targets.p4 import Options


def data() -> tuple[np.ndarray, np.ndarray]:
    """Three classes: a band of one feature, above a value of another, and the rest."""
    rng = np.random.default_rng(0)
    x = np.stack([rng.integers(40, 1500, 600), rng.integers(1, 255, 600), rng.integers(0, 4, 600)], axis=1)
    band = (x[:, 0] > 700) & (x[:, 0] <= 1100) & (x[:, 2] & 2 == 0)
    return x, np.where(x[:, 1] > 200, 2, band)


@pytest.mark.parametrize("estimator", [RandomForestClassifier, GradientBoostingClassifier])
def test_trained_trees_equal_the_reference(estimator: type) -> None:
    x, y = data()
    model = import_model(estimator(n_estimators=8, max_depth=4, random_state=0).fit(x, y)).model
    assert isinstance(model, TreeEnsemble)
    case = Case.of(model, Options(scores="yes"))
    case.check(x[:100])
    case.check(rows_for(np.random.default_rng(1), model, 50))


def test_a_trained_binary_network_equals_the_reference() -> None:
    for name in ("jax", "optax"):
        needs.package(name)
    x, y = data()
    model = import_model(BinaryClassifier((12, 8), bits=40).fit(x, y)).model
    assert isinstance(model, BinaryMlp)
    for options in OPTIONS[:3]:
        Case.of(model, options).check(x[:100])
