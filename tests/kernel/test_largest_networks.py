# SPDX-License-Identifier: Apache-2.0
"""Networks that are promised to load, by the oldest and the newest clang that this machine has."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bench.programs import NETWORKS, network
from tests import needs
from tests.largest import many_classes, thermometer, wide
from wirewise import agent
from wirewise.feature_sets import PRESETS
from wirewise.targets import ebpf

CLANGS = ("clang-14", "clang-19")
LARGEST = {"int8 12-64-64-7": many_classes, "int8 64-128-64-16": wide, "binary 200-64": thermometer}
NAMES = [*NETWORKS, *LARGEST]
# Ten seconds and more with any clang, and what the oldest makes but of one; `make test-kernels` has those.
SLOW = {(name, "clang-14") for name in NAMES[1:]}
SLOW |= {("binary 200-64", "clang-19"), ("int8 64-128-64-16", "clang-19")}
LOADED = [
    pytest.param(name, clang, marks=pytest.mark.slow if (name, clang) in SLOW else [])
    for name in NAMES
    for clang in CLANGS
]


@pytest.mark.root
@needs.root
@pytest.mark.parametrize(("name", "clang"), LOADED)
def test_a_network_loads(name: str, clang: str, tmp_path: Path) -> None:
    path = shutil.which(clang)
    if path is None:
        pytest.skip(f"clang: {clang} is not installed")
    if name in NETWORKS:
        model, feature_set = network(*NETWORKS[name]), PRESETS["hara2023"]
    else:
        model, feature_set = LARGEST[name]()
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
