# SPDX-License-Identifier: Apache-2.0
"""Kept objects: what was compiled before is found, and nothing else is."""

from __future__ import annotations

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
