# SPDX-License-Identifier: Apache-2.0
"""PyTorch's nn.Sequential, where torch is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests import needs
from wirewise.errors import InputError
from wirewise.importers import import_model
from wirewise.quantize import Options

torch = needs.package("torch", "torch")
nn = torch.nn
RNG = np.random.default_rng(6)
X = RNG.integers(0, 1500, (400, 5))
Q16 = Options("q16")


def trained(*modules: Any) -> Any:
    """A Sequential in evaluation mode whose BatchNorm1d layers have seen rows."""
    torch.manual_seed(0)
    module = nn.Sequential(*modules)
    module.train()
    with torch.no_grad():
        module(torch.from_numpy(X).float())
    return module.eval()


@pytest.mark.parametrize(
    "modules",
    [
        lambda: (nn.BatchNorm1d(5), nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3)),
        lambda: (
            nn.Linear(5, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 3),
            nn.Softmax(1),
        ),
        lambda: (nn.Sequential(nn.Linear(5, 8), nn.ReLU()), nn.Linear(8, 1), nn.Sigmoid()),
        lambda: (nn.Linear(5, 4), nn.Linear(4, 1)),
    ],
)  # fmt: skip
def test_the_float_network_says_what_torch_says(modules: Any) -> None:
    imported = import_model(trained(*modules()), rows=X, options=Q16)
    assert imported.network is not None
    said = imported.predict(X)
    assert (imported.network.predict(X) == said).mean() > 0.99
    assert (imported.model.predict(X)[0] == said).mean() > 0.98


@pytest.mark.parametrize(
    ("modules", "says"),
    [
        (lambda: (nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 2)), r"its module 1 \(Tanh\) is not supported"),
        (lambda: (nn.Linear(5, 4), nn.Sigmoid(), nn.Linear(4, 2)), r"its module 2 \(Linear\)"),
        (lambda: (nn.Linear(5, 4), nn.ReLU()), "does not end with a Linear layer"),
    ],
)
def test_what_cannot_be_imported_is_refused(modules: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        import_model(trained(*modules()), rows=X)


def hooked() -> Any:
    linear = nn.Linear(5, 2)
    linear.register_forward_hook(lambda module, inputs, output: -output)
    return linear


@pytest.mark.parametrize(
    ("modules", "says"),
    [
        (
            lambda: (nn.Linear(5, 2), nn.Softmax(0)),
            r"its module 1 \(Softmax\) has dim=0, which mixes packets",
        ),
        (lambda: (nn.Flatten(0), nn.Linear(5, 2)), r"its module 0 \(Flatten\) has start_dim=0"),
        (lambda: (hooked(),), r"its module 0 \(Linear\) has hooks"),
        (lambda: (nn.Linear(5, 1), nn.Softmax(1)), r"its module 1 \(Softmax\) is not supported there"),
    ],
)
def test_settings_that_change_what_a_module_does_are_refused(modules: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        import_model(nn.Sequential(*modules()), rows=X)


def test_predicting_leaves_the_module_in_its_mode() -> None:
    module = trained(nn.Linear(5, 4), nn.ReLU(), nn.Dropout(), nn.Linear(4, 2)).train()
    imported = import_model(module, rows=X, options=Q16)
    assert (imported.predict(X) == imported.predict(X)).all() and module.training
