# SPDX-License-Identifier: Apache-2.0
"""Training says how far it is, and learns the same whether anyone listens or not."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from tests import needs
from tests.unit.test_evaluate import table
from wirewise.evaluate import matrix, train


@pytest.mark.parametrize("name", ["tree", "mlp", "bnn"])
def test_training_tells_its_share(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    if name == "bnn":
        needs.package("jax")
    data, told = table(), list[float]()
    folds = {"folds": 2} if name == "mlp" else {}
    heard = train(data, name, hidden=(4,), progress=told.append, **folds)  # type: ignore[arg-type]
    alone = train(data, name, hidden=(4,), **folds)  # type: ignore[arg-type]
    assert told == sorted(told) and told[-1] == 1 and min(told) >= 0
    assert len(told) > (5 if name != "tree" else 0), "a network tells more than that it is done"
    predicted = [one.estimator.predict(matrix(data)) for one in (heard, alone)]
    assert np.array_equal(*predicted)
    assert not capsys.readouterr().out, "what it prints to be counted is not shown"
    pickle.dumps(heard.estimator)
    if name == "mlp":
        assert not heard.estimator.steps[-1][1].verbose
