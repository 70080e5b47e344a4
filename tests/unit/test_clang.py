# SPDX-License-Identifier: Apache-2.0
"""What compiling says on a machine that lacks something for it, and what it leaves in place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.multiplicity import few
from wirewise.errors import MissingFeatureError
from wirewise.feature_sets import PRESETS
from wirewise.models.random import random_tree_ensemble
from wirewise.targets import ebpf
from wirewise.targets.ebpf.clang import MAXIMUM_SPLIT, compile_sources


def test_without_clang_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingFeatureError, match=r"no clang found.*apt-get install clang libbpf-dev"):
        compile_sources({"main.bpf.c": "int nothing;\n"})


def test_without_a_header_the_error_names_it_and_what_to_install() -> None:
    with pytest.raises(MissingFeatureError, match=r"bpf/missing\.h; apt-get install clang libbpf-dev"):
        compile_sources({"main.bpf.c": "#include <bpf/missing.h>\n"})


@pytest.mark.parametrize(
    ("name", "sharing"), few(["hara2023", "hara2026", "galvao2026"], ["shared", "per-cpu"])
)
def test_the_stack_leaves_ipv4_in_place_beside_an_actor(name: str, sharing: str) -> None:
    features = replace(PRESETS[name], sharing=sharing)
    model = random_tree_ensemble(
        np.random.default_rng(7), n_features=len(features.features), n_trees=1, depth=8, full=True
    )
    assert not ebpf.build(ebpf.emit(model, features)).split


@pytest.mark.parametrize(("name", "split"), [("hara2023", 0), ("flood", 1), ("intrusion", MAXIMUM_SPLIT)])
def test_without_a_model_what_is_large_is_cut_as_far_as_can_be(name: str, split: int) -> None:
    """Linux 6.1 follows a million instructions at most; cut less, `intrusion` took 829,203 of them."""
    assert ebpf.build(ebpf.emit(None, PRESETS[name])).split == split
