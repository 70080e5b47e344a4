# SPDX-License-Identifier: Apache-2.0
"""The same test over many drawn cases: the first few in `make test`, the others in `make test-slow`."""

from __future__ import annotations

from typing import Any

import pytest


def seeds(usual: int, of: int) -> list[Any]:
    """Parameters 0 to `of` - 1; those from `usual` on are slow."""
    return [pytest.param(seed, marks=pytest.mark.slow if seed >= usual else ()) for seed in range(of)]
