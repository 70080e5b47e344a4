# SPDX-License-Identifier: Apache-2.0
"""Networks that are promised to load, by the oldest and the newest clang that this machine has."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from bench.programs import NETWORKS, network
from tests.largest import many_classes, wide
from wirewise import agent
from wirewise.features import PRESETS
from wirewise.targets import ebpf

CLANGS = ("clang-14", "clang-19")


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
