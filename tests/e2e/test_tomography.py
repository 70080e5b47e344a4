# SPDX-License-Identifier: Apache-2.0
"""Real probes to a bank in the kernel, which tells of the changes that the reference has, and no others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from examples.tomography.live import play
from examples.tomography.table import DELAYS, LARGEST
from tests.e2e import needs
from wirewise.compiler import compile
from wirewise.errors import InputError
from wirewise.feature_sets import FeatureSet
from wirewise.models import Model, random_binary_bank, random_binary_mlp

pytestmark = needs.marks()
FEATURES = Path(__file__).parents[2] / "examples" / "tomography" / "features.yaml"


def bundle(model: Model, features: FeatureSet, path: Path) -> Path:
    compiled = compile(model, features, name="bank", classes=["clear", "congested"], verify="never")
    compiled.bundle.write(path)
    return path


@pytest.mark.parametrize("same_inputs", [True, False])
def test_changes_are_told(same_inputs: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    model = random_binary_bank(
        rng, networks=17, n_features=len(DELAYS), layers=(128, 64), input_bits=152, ranges=(0, LARGEST),
        steps=not same_inputs, same_inputs=same_inputs,
    )  # fmt: skip
    delays = rng.integers(0, LARGEST, (40, len(DELAYS)))
    delays[10:14] = delays[10]  # rounds in which nothing changes
    delays[rng.random(delays.shape) < 0.02] = LARGEST  # lost
    live = play(bundle(model, FeatureSet.load(FEATURES), tmp_path / "bank.wirewise"), delays, 4000)
    assert live.inferred == len(delays) and len(live.expected) > 20
    assert live.told == live.expected
    before: set[str] = set()
    for event in live.events:
        said = event["wirewise"]["answers"]
        now = set(said["yes"])
        assert (set(said["began"]), set(said["ended"])) == (now - before, before - now)
        before = now
    assert len(live.took_ns[1]) == len(delays) and len(live.took_ns[0]) == 18 * len(delays)


def test_other_bundles_are_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    small = FeatureSet.from_dict({"name": "small", "features": ["ttl"]})
    alone = random_binary_mlp(rng, n_features=1, layers=(4,), ranges=(0, 255))
    with pytest.raises(InputError, match="its model is no bank of networks; compile a folder"):
        play(bundle(alone, small, tmp_path / "alone.wirewise"), np.zeros((1, 1), np.int64), 1)
    bank = random_binary_bank(rng, n_features=1, layers=(4,), ranges=(0, 255))
    with pytest.raises(InputError, match="reads other features; compile it with -f examples"):
        play(bundle(bank, small, tmp_path / "bank.wirewise"), np.zeros((1, 1), np.int64), 1)
