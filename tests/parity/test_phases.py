# SPDX-License-Identifier: Apache-2.0
"""A model of its own for flows that last, on every plane: which of the two judges, and by which margin."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier

from tests.parity.cases import Case
from tests.parity.harness import Run, assert_agree, needs_kernel
from tests.parity.test_sequences import conversations
from wirewise.evaluate.apart import Together
from wirewise.evaluate.operating_point import LateMargin, OperatingPoint
from wirewise.evaluate.phases import Phases
from wirewise.feature_sets import FeatureSet
from wirewise.importers import import_model

START = 6


@needs_kernel
@pytest.mark.parametrize(
    ("kind", "classes", "shape"),
    [
        ("forest", 2, "inline"),
        ("forest", 3, "functions"),
        ("forest", 4, "tail-calls"),
        ("boosting", 2, "tail-calls"),
        ("boosting", 3, "inline"),
        ("forest, and one of its own", 3, "functions"),
    ],
)
def test_planes_agree(kind: str, classes: int, shape: str, tmp_path: Path) -> None:
    random = Random(f"{kind} {classes} {shape}")
    rng = np.random.default_rng(random.getrandbits(32))
    feature_set = FeatureSet.from_dict(
        {
            "name": "phases", "key": "five-tuple-bidirectional", "idle_timeout": "20s",
            "features": ["length", "count", "mean(length)", "iat"],
        }
    )  # fmt: skip

    def part(classes: int = classes) -> RandomForestClassifier | HistGradientBoostingClassifier:
        rows = rng.integers(0, (300, 40, 300, 2000), (400, 4))
        made = (
            RandomForestClassifier(5, max_depth=4, random_state=1)
            if kind.startswith("forest")
            else HistGradientBoostingClassifier(max_iter=4, max_depth=3)
        )
        return made.fit(rows, rng.integers(0, classes, 400))

    first, late = (Together(part(2), part(2)), part(2)) if "own" in kind else (part(), part())
    imported = import_model(Phases(first, late, 1, START, classes), margin=True).model
    spread = int(np.abs(imported.predict(rng.integers(0, 300, (200, 4)))[1]).mean())
    point = OperatingPoint(0, spread // 9, 1, 1, 0, None, 0, 0, 0, late=LateMargin(1, START, spread // 3))
    case = Case("phases", feature_set, point.set(imported), {"version": 1, "classes": {}}, shape=shape)
    runs: list[Run] = []
    assert_agree(case, conversations(random, 2000), tmp_path, seen=runs.append)
    packets = runs[0].features[:, 1]
    assert 100 < (packets >= START).sum() < len(packets) - 100, "both have judged"
