# SPDX-License-Identifier: Apache-2.0
"""Kept objects: what was compiled before is found, and nothing else is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import objects
from wirewise.errors import WirewiseError
from wirewise.feature_sets import PRESETS
from wirewise.targets import ebpf
from wirewise.targets.ebpf import clang


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(objects, "FOLDER", tmp_path / "objects")
    return tmp_path / "objects"


def test_a_kept_object_is_what_clang_makes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = ebpf.emit(None, PRESETS["hara2023"])
    built = ebpf.build(sources)
    assert built == clang.compile_sources(sources.files)
    assert [file.name for file in folder.iterdir()] == [objects.digest(sources.files, clang.find_clang())]
    monkeypatch.setattr(clang, "compile_sources", None)
    assert ebpf.build(sources) == built


def test_other_sources_and_what_does_not_compile_are_not_found(folder: Path) -> None:
    sources = ebpf.emit(None, PRESETS["hara2023"])
    path = clang.find_clang()
    names = {objects.digest(sources.files, path)}
    for name, text in sources.files.items():
        names |= {objects.digest(sources.files | {name: text + " "}, path)}
    names |= {objects.digest({**sources.files, "x.h": ""}, path)}
    assert len(names) == len(sources.files) + 2
    with pytest.raises(WirewiseError):
        objects.compile_sources(sources.files | {"ww_model.h": "#error no"})
    assert not folder.exists()


def test_what_was_not_used_for_longest_is_forgotten(folder: Path) -> None:
    folder.mkdir()
    for age, name in enumerate(("newest", "newer", "older", "oldest")):
        (folder / name).write_bytes(bytes(100))
        os.utime(folder / name, (1_000_000 - age, 1_000_000 - age))
    objects.forget(folder, 400)
    assert len(list(folder.iterdir())) == 4
    objects.forget(folder, 250)
    assert {path.name for path in folder.iterdir()} == {"newest", "newer"}


def test_an_object_that_is_found_counts_as_used(folder: Path) -> None:
    sources = ebpf.emit(None, PRESETS["hara2023"])
    ebpf.build(sources)
    (kept,) = folder.iterdir()
    os.utime(kept, (0, 0))
    ebpf.build(sources)
    assert kept.stat().st_mtime > 0
