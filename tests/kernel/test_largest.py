# SPDX-License-Identifier: Apache-2.0
"""The largest forest that is promised to load: 100 full trees of depth 10, 64 features, 16 classes.

By the oldest and the newest clang that this machine has.
"""

from __future__ import annotations

import os
import shutil
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from wirewise import agent
from wirewise.features import FeatureSet
from wirewise.models.random import random_tree_ensemble
from wirewise.targets import ebpf

CLANGS = ("clang-14", "clang-19")
FIELDS = ("length", "payload_length", "ttl", "tcp_window", "iat", "tos")
WHOLE = ("first", "sum", "count", "min", "max", "mean", "variance", "mean_abs_deviation")
WINDOWED = ("mean", "max", "min", "sum")


def features() -> FeatureSet:
    """64 features, 16 of them over windows."""
    specs = [f"{name}({field})" for field, name in product(FIELDS, WHOLE)]
    specs += [f"{name}({field}, window=500ms)" for field, name in product(FIELDS[:4], WINDOWED)]
    return FeatureSet.from_dict({"name": "largest", "features": specs})


@pytest.mark.largest
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="loading programs needs root")
@pytest.mark.parametrize("clang", CLANGS)
def test_the_largest_forest_loads(clang: str, tmp_path: Path) -> None:
    path = shutil.which(clang)
    if path is None:
        pytest.skip(f"{clang} is not installed")
    feature_set = features()
    model = random_tree_ensemble(
        np.random.default_rng(1),
        n_features=len(feature_set.features),
        n_classes=16,
        n_trees=100,
        depth=10,
        votes="majority",
        full=True,
        thresholds=(0, 100_000),
    )
    assert (len(model.used_features), model.n_nodes) == (64, 100 * 2047)
    sources = ebpf.emit(model, feature_set)
    file = tmp_path / "largest.bpf.o"
    file.write_bytes(ebpf.build(sources, clang=path).object)
    said = agent.call("verify", "--object", file, timeout=None)
    assert said["accepted"], said["refusal"]
    # Half of the limit for each program, so that another compiler's code still fits.
    assert max(program["verified_instructions"] for program in said["programs"]) < 500_000
