# SPDX-License-Identifier: Apache-2.0
"""The largest forest that is promised to load, by the oldest and the newest clang that this machine has."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.largest import forest
from wirewise import agent
from wirewise.targets import ebpf

CLANGS = ("clang-14", "clang-19")


@pytest.mark.largest
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="loading programs needs root")
@pytest.mark.parametrize("clang", CLANGS)
def test_the_largest_forest_loads(clang: str, tmp_path: Path) -> None:
    path = shutil.which(clang)
    if path is None:
        pytest.skip(f"{clang} is not installed")
    sources = ebpf.emit(*forest())
    file = tmp_path / "largest.bpf.o"
    file.write_bytes(ebpf.build(sources, clang=path).object)
    said = agent.call("verify", "--object", file, timeout=None)
    assert said["accepted"], said["refusal"]
    # Half of the limit for each program, so that another compiler's code still fits.
    assert max(program["verified_instructions"] for program in said["programs"]) < 500_000
