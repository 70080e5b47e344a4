# SPDX-License-Identifier: Apache-2.0
"""Integers that find a wrong threshold, and what must hold of an import for all (fixture `adversary`)."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

os.environ["OMP_NUM_THREADS"] = (
    "1"  # read when a library is first loaded: small models gain nothing from threads
)

import numpy as np
import pytest
from numpy.typing import NDArray

from wirewise.importers import Imported
from wirewise.models.rules import INT64_MAX, INT64_MIN
from wirewise.models.tree import LEAF

Rows = NDArray[np.int64]

# Small, ordinary, beyond float32, at its edge, beyond float64, extreme, tight where float32 is coarse.
RANGES = [
    (-10, 10),
    (0, 1500),
    (-(2**26), 2**26),
    (2**24 - 40, 2**24 + 40),
    (2**53 - 400, 2**53 + 4000),
    (-(2**62), 2**62),
    (2**40, 2**40 + 300_000),
]
EDGES = [
    INT64_MIN,
    INT64_MIN + 1,
    -(2**53) - 1,
    -(2**24) - 1,
    -1,
    0,
    1,
    2**24 + 1,
    2**53 + 1,
    INT64_MAX - 1,
    INT64_MAX,
]
TIE = 1e-6  # of the largest score: closer calls may fall either way in floating point


def training_rows(rng: np.random.Generator, n: int) -> Rows:
    return np.stack([rng.integers(low, high, n, endpoint=True) for low, high in RANGES], axis=1)


def training_classes(rng: np.random.Generator, x: Rows, n_classes: int) -> NDArray[np.int64]:
    """Every feature matters, some rows are noise, every class occurs."""
    middle = [(low + high) // 2 for low, high in RANGES]
    y = (rng.integers(1, 4, len(RANGES)) * (x > middle)).sum(axis=1) % n_classes
    noise = rng.random(len(x)) < 0.1
    y[noise] = rng.integers(0, n_classes, noise.sum())
    y[:n_classes] = np.arange(n_classes)
    return y


def around(threshold: float) -> list[int]:
    """floor(t) - 1, floor(t), floor(t) + 1, in int64."""
    if not math.isfinite(threshold):
        return []
    return [min(max(math.floor(threshold) + step, INT64_MIN), INT64_MAX) for step in (-1, 0, 1)]


def rows_reaching_every_test(rng: np.random.Generator, imported: Imported, thresholds: Sequence[Any]) -> Rows:
    """For each test of each tree, rows that reach it with values around its float and integer thresholds."""
    rows: list[list[int]] = []
    for tree, ids, floats in zip(imported.model.trees, imported.node_ids, thresholds, strict=True):
        ranges = {0: [(INT64_MIN, INT64_MAX)] * imported.model.n_features}
        wild = rng.integers(INT64_MIN, INT64_MAX, len(ranges[0]), endpoint=True).tolist()
        for node, feature in enumerate(tree.feature):
            if feature == LEAF:
                continue
            own, cut = ranges[node], tree.threshold[node]
            low, high = own[feature]
            for value in {cut - 1, cut, cut + 1, *around(float(floats[ids[node]]))}:
                if low <= value <= high:
                    row = [
                        min(max(start, least), most) for start, (least, most) in zip(wild, own, strict=True)
                    ]
                    row[feature] = value
                    rows.append(row)
            ranges[tree.left[node]] = [*own[:feature], (low, cut), *own[feature + 1 :]]
            ranges[tree.right[node]] = [*own[:feature], (cut + 1, high), *own[feature + 1 :]]
    return np.array(rows, np.int64).reshape(-1, imported.model.n_features)


def rows_mixed(
    rng: np.random.Generator, tested: Sequence[tuple[int, float]], n_features: int, n: int
) -> Rows:
    """Rows that mix, per feature, values around all of its float thresholds, extremes and random integers."""
    pools: list[list[int]] = [list(EDGES) for _ in range(n_features)]
    for feature, threshold in tested:
        pools[feature] += around(threshold)
    mixed = np.stack([rng.choice(np.array(pool, np.int64), n) for pool in pools], axis=1)
    wild = rng.integers(INT64_MIN, INT64_MAX, (n, n_features), endpoint=True)
    return np.where(rng.random(mixed.shape) < 0.2, wild, mixed)


@dataclass(frozen=True)
class Original:
    """What a test tells about the library's model: thresholds[tree][node id], tests, leaves (rows -> ids)."""

    thresholds: Sequence[Any]
    tested: Sequence[tuple[int, float]]
    leaves: Callable[[Rows], NDArray[Any]] | None


def assert_same(imported: Imported, original: Original, seed: int, extra: Sequence[Rows] = ()) -> Rows:
    """Same leaf in every tree for every row; same class except in documented float ties. Returns the rows."""
    rng = np.random.default_rng(seed)
    n_features = imported.model.n_features
    x = np.concatenate(
        [
            rows_reaching_every_test(rng, imported, original.thresholds),
            rows_mixed(rng, original.tested, n_features, 2000),
            *extra,
        ]
    )
    if original.leaves is not None:
        ours = imported.model.leaves(x)
        for tree, ids in enumerate(imported.node_ids):
            np.testing.assert_array_equal(np.array(ids)[ours[:, tree]], original.leaves(x)[:, tree])
    assert_same_classes(imported, x)
    return x


def assert_same_classes(imported: Imported, x: Rows) -> None:
    classes, scores = imported.model.predict(x)
    differ = classes != imported.predict(x)
    if imported.model.votes == "majority":
        assert not differ.any()
        return
    ordered = np.sort(scores, axis=1)
    margin = np.abs(scores[:, 0]) if scores.shape[1] == 1 else ordered[:, -1] - ordered[:, -2]
    assert (margin[differ] <= TIE * 2**31).all(), x[differ & (margin > TIE * 2**31)][:3]
    assert differ.mean() < 0.02


@pytest.fixture(scope="session")
def adversary() -> ModuleType:
    """The functions above: test modules cannot import a conftest by name."""
    return sys.modules[__name__]
