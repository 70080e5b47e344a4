# SPDX-License-Identifier: Apache-2.0
"""`wirewised verify --rebuild` accepts what wirewise generates: every family, every shape of a program."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.parity.cases import MODEL_KINDS, Case, model_of_kind, random_fuzzer, shape_of_kind
from tests.parity.harness import Comparison
from wirewise import agent
from wirewise.feature_sets import PRESETS
from wirewise.targets.ebpf import SHAPES

QUICK = ("rows and one-output trees", "q16 with ceilings", "binary")


@pytest.mark.parametrize(
    ("index", "kind"),
    [
        pytest.param(index, kind, marks=[] if kind in QUICK else pytest.mark.slow)
        for index, kind in enumerate(MODEL_KINDS)
    ],
)
def test_generated_sources_are_accepted(index: int, kind: str, tmp_path: Path) -> None:
    random = Random(kind)
    feature_set = list(PRESETS.values())[index % len(PRESETS)]
    model = model_of_kind(kind, random, feature_set, random_fuzzer(random, feature_set).packets(300))
    shape = shape_of_kind(kind, SHAPES[index % len(SHAPES)])
    comparison = Comparison(Case(kind, feature_set, model, {"version": 1}, shape=shape, kind=kind), tmp_path)
    agent.run("verify", "--bundle", comparison.bundle, "--rebuild", "--no-load")
