# SPDX-License-Identifier: Apache-2.0
"""What a shell is offered at the cursor, asked as the script of `wirewise --show-completion` asks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.test_bundle import make
from wirewise.feature_sets import PRESETS


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("one.wirewise", "two.wirewise", "mine.yaml", "capture.pcap", ".hidden.wirewise"):
        (tmp_path / name).write_text("")
    (tmp_path / "older").mkdir()
    (tmp_path / "older" / "three.wirewise").write_text("")
    return tmp_path


def offered(words: str, folder: Path) -> list[str]:
    """For the last word of a command line, which may be empty."""
    environment = os.environ | {
        "_WIREWISE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")),
    }  # fmt: skip
    asked = [sys.executable, "-c", "from wirewise.cli import app; app(prog_name='wirewise')"]
    done = subprocess.run(asked, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.split()


def test_bundles_and_folders_on_the_way_to_them(folder: Path) -> None:
    assert offered("wirewise inspect ", folder) == ["older/", "one.wirewise", "two.wirewise"]
    assert offered("wirewise inspect t", folder) == ["two.wirewise"]
    assert offered("wirewise emit older/", folder) == ["older/three.wirewise"]
    assert offered("wirewise inspect nowhere/", folder) == []


def test_presets_and_files_of_feature_sets(folder: Path) -> None:
    assert offered("wirewise compile --feature-set ", folder) == [*PRESETS, "mine.yaml", "older/"]
    assert offered("wirewise features -f hara2026", folder) == ["hara2026"]


def test_classes_of_the_bundle_that_runs(folder: Path) -> None:
    make().write(folder / "running.wirewise")
    line = "wirewise compile m --keep-state-of running.wirewise --classes "
    assert offered(line, folder) == ["benign,attack"]
    assert offered(line.replace("running", "one"), folder) == []
    assert offered("wirewise compile m --classes ", folder) == []
