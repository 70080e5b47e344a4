# SPDX-License-Identifier: Apache-2.0
"""What a target refuses to emit, and what fits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.p4.cases import feature_set
from wirewise.errors import InputError
from wirewise.models import Model


def refusal(emit: Callable[..., Any], model: Model, options: object) -> str:
    """The line with which a target's `emit` refuses a model."""
    with pytest.raises(InputError) as refused:
        emit(model, feature_set(model.n_features), options)
    return str(refused.value)


def fits(emit: Callable[..., Any], model: Model, options: object) -> bool:
    """Whether it emits the model."""
    try:
        emit(model, feature_set(model.n_features), options)
    except InputError:
        return False
    return True
