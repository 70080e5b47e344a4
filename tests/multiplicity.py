# SPDX-License-Identifier: Apache-2.0
"""The same test over many cases: a few in `make test`, the others in `make test-slow`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations, product
from typing import Any

import pytest


def first(values: Iterable[Any], usual: int = 1) -> list[Any]:
    """Parameters for each of `values`; those after the first `usual` are slow."""
    return [
        pytest.param(value, marks=pytest.mark.slow if place >= usual else ())
        for place, value in enumerate(values)
    ]


def seeds(usual: int, of: int) -> list[Any]:
    """Parameters 0 to `of` - 1; those from `usual` on are slow."""
    return first(range(of), usual)


def few(*values: Sequence[Any], times: int = 1) -> list[Any]:
    """Parameters: every combination of `values`. Not slow are as many as it takes to have each value `times`
    times, chosen so that they have many different pairs of values.
    """
    places = list(product(*(range(len(each)) for each in values)))
    usual: list[tuple[int, ...]] = []
    seen, pairs = Counter[tuple[int, int]](), set[Any]()

    def gain(place: tuple[int, ...]) -> tuple[int, int, int]:
        """How many values it has that are still wanted, how many new pairs, and how rare its values are."""
        parts = list(enumerate(place))
        new = sum(pair not in pairs for pair in combinations(parts, 2))
        return sum(seen[part] < times for part in parts), new, -sum(seen[part] for part in parts)

    while len(usual) < len(places):
        best = max((place for place in places if place not in usual), key=gain)
        if not gain(best)[0]:
            break
        usual.append(best)
        seen.update(enumerate(best))
        pairs.update(combinations(enumerate(best), 2))
    return [
        pytest.param(
            *(each[index] for each, index in zip(values, place, strict=True)),
            marks=() if place in usual else pytest.mark.slow,
        )
        for place in places
    ]
