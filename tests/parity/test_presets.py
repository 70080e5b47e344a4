# SPDX-License-Identifier: Apache-2.0
"""The presets on generated traffic and on fuzzed packets, with every kind of model and in every shape."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.parity.cases import (
    CUT_KINDS,
    MODEL_KINDS,
    Case,
    model_of_kind,
    random_fuzzer,
    random_policy,
    shape_of_kind,
)
from tests.parity.frames import TimedFrame
from tests.parity.harness import assert_agree, needs_kernel
from wirewise.feature_sets import PRESETS
from wirewise.targets.ebpf import SHAPES
from wirewise.traffic import generate

pytestmark = needs_kernel

# Every kind with one preset, and every preset with some kinds; the others are slow together.
COMBINATIONS = [
    pytest.param(
        preset, kind, shape_of_kind(kind, SHAPES[index % len(SHAPES)]),
        marks=[] if (index + place) % len(PRESETS) == 0 else pytest.mark.slow,
    )
    for place, preset in enumerate(PRESETS)
    for index, kind in enumerate(MODEL_KINDS)
]  # fmt: skip


@pytest.mark.parametrize(("preset", "kind", "shape"), COMBINATIONS)
def test_preset(preset: str, kind: str, shape: str, tmp_path: Path) -> None:
    feature_set = PRESETS[preset]
    random = Random(f"{preset}/{kind}")
    frames: list[TimedFrame] = [
        (10**18 + p.time_ns, p.frame) for p in generate(seed=3, duration_s=5, packets=2000)
    ]
    fuzzer = random_fuzzer(random, feature_set)
    fuzzer.now_ns = frames[-1][0]
    frames += fuzzer.packets(2000)
    model = model_of_kind(kind, random, feature_set, frames)
    case = Case(
        f"{preset}/{kind}", feature_set, model, random_policy(random, model.n_classes),
        mode="enforce", shape=shape, kind=kind, small_limits=kind in CUT_KINDS,
    )  # fmt: skip
    comparison = assert_agree(case, frames, tmp_path)
    assert comparison.shape == shape
