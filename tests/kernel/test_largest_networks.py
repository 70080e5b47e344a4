# SPDX-License-Identifier: Apache-2.0
"""Networks that are promised to load, by the oldest and the newest clang that this machine has."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from bench.programs import NETWORKS, network
from tests.kernel.test_largest import CLANGS, features
from wirewise import agent
from wirewise.features import PRESETS, FeatureSet
from wirewise.models import Model, random_quantized_mlp
from wirewise.targets import ebpf


def wide() -> tuple[Model, FeatureSet]:
    """int8 64-128-64-16 over 64 features."""
    feature_set = features()
    model = random_quantized_mlp(
        np.random.default_rng(1), n_features=64, layers=(128, 64), n_classes=16, ranges=(0, 100_000)
    )
    assert len(model.used_features) == 64
    return model, feature_set


def many_classes() -> tuple[Model, FeatureSet]:
    """int8 12-64-64-7."""
    return random_quantized_mlp(np.random.default_rng(1), layers=(64, 64), n_classes=7), PRESETS["hara2023"]


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="loading programs needs root")
@pytest.mark.parametrize("clang", CLANGS)
@pytest.mark.parametrize("name", [*NETWORKS, "int8 12-64-64-7", "int8 64-128-64-16"])
def test_a_network_loads(name: str, clang: str, tmp_path: Path) -> None:
    path = shutil.which(clang)
    if path is None:
        pytest.skip(f"{clang} is not installed")
    if name in NETWORKS:
        model, feature_set = network(*NETWORKS[name]), PRESETS["hara2023"]
    else:
        model, feature_set = wide() if "128" in name else many_classes()
    sources = ebpf.emit(model, feature_set)
    built = ebpf.build(sources, clang=path)
    file = tmp_path / "network.bpf.o"
    file.write_bytes(built.object)
    said = agent.call("verify", "--object", file, timeout=None)
    assert said["accepted"], said["refusal"]
    # Half of the limit for each program, so that another compiler's code still fits.
    assert max(program["verified_instructions"] for program in said["programs"]) < 500_000
    # The prediction decides the shape.
    assert 0.7 < built.instructions / sources.predicted["instructions"] < 1.3
    assert "about" in sources.why
