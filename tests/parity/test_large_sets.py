# SPDX-License-Identifier: Apache-2.0
"""Sets of many features by several aggregates, whose program has to be cut to fit the kernel's stack."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import pytest

from tests.multiplicity import first, seeds
from tests.parity.cases import Case, model_of_kind, random_feature, random_fuzzer, shape_of_kind
from tests.parity.harness import assert_agree, needs_kernel
from wirewise.errors import InputError
from wirewise.feature_sets import FeatureSet
from wirewise.feature_sets.feature_set import AGGREGATES
from wirewise.targets import ebpf
from wirewise.targets.ebpf.clang import MAXIMUM_SPLIT
from wirewise.targets.ebpf.target import ask_verifier

pytestmark = needs_kernel

CLANGS = first(path for name in ("clang-19", "clang-14") if (path := shutil.which(name)))
DRAWS = 4


def bytes_and_pairs() -> FeatureSet:
    """88 features, by source, destination, pair, client port and hosts."""
    return FeatureSet.load(Path(__file__).with_name("bytes_and_pairs.yaml"))


def random_large_set(random: Random) -> FeatureSet:
    """40 to 128 features of two windows, most of them by every aggregate that there is."""
    wanted = random.choice((40, 64, 88, 128))
    specs: list[str] = [f"count(by={by}, window=1s)" for by in AGGREGATES]
    windows = {"1s"}
    while len(specs) < wanted:
        spec = random_feature(random, True)
        if "by=" not in spec and random.random() < 0.6:
            continue
        window = spec.partition("window=")[2].partition(",")[0].rstrip(")")
        if window and window not in windows and len(windows) == 2:
            continue
        windows |= {window} - {""}
        if spec not in specs:
            specs.append(spec)
    return FeatureSet.from_dict(
        {
            "name": "large", "key": "five-tuple-bidirectional", "features": specs, "aggregates_size": 64,
            "decapsulate": random.choice(([], ["gtp-u"], ["gre", "vxlan"])),
        }
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        ("rows and one-output trees", "tail-calls"),
        pytest.param("int8", "functions", marks=pytest.mark.slow),
        pytest.param("majority", "inline", marks=pytest.mark.slow),
        pytest.param("bank", "functions", marks=pytest.mark.slow),
    ],
)
def test_a_program_in_more_functions_agrees(kind: str, shape: str, tmp_path: Path) -> None:
    random = Random(f"large {kind}")
    feature_set = bytes_and_pairs()
    frames = random_fuzzer(random, feature_set).packets(1200)
    model = model_of_kind(kind, random, feature_set, frames)
    shape = shape_of_kind(kind, shape)
    built = ebpf.build(ebpf.emit(model, feature_set, shape=shape))
    assert built.split == MAXIMUM_SPLIT
    policy = {
        "version": 1,
        "classes": {"c1": {"action": "drop", "after": 2}, "c0": {"dscp": "CS1"}},
        "deny": {"ports": ["tcp/23"]},
        "trigger": random.choice(("every", {"packets": [1, 3]})),
    }
    assert_agree(Case("large", feature_set, model, policy, "enforce", shape), frames, tmp_path)


@pytest.mark.parametrize("clang", CLANGS)
@pytest.mark.parametrize("draw", seeds(1, DRAWS))
def test_a_large_set_loads_or_is_refused_by_name(draw: int, clang: str) -> None:
    random = Random(f"large set {draw}")
    feature_set = random_large_set(random)
    frames = random_fuzzer(random, feature_set).packets(400)
    model = model_of_kind("majority", random, feature_set, frames)
    try:
        built = ebpf.build(ebpf.emit(model, feature_set), clang=clang)
    except InputError as error:
        assert len(feature_set.features) == 128, error
        assert error.subject == "feature set 'large'"
        assert "of stack with this model" in error.rule
        return
    statistics, why = ask_verifier(built.object, must=True)
    assert statistics, why


@pytest.mark.parametrize("clang", CLANGS)
@pytest.mark.parametrize(
    "kind",
    [
        "majority",
        pytest.param("one-output trees", marks=pytest.mark.slow),
        pytest.param("int8", marks=pytest.mark.slow),
    ],
)
def test_the_set_of_bytes_and_pairs_loads(kind: str, clang: str) -> None:
    feature_set, random = bytes_and_pairs(), Random(kind)
    frames = random_fuzzer(random, feature_set).packets(400)
    model = model_of_kind(kind, random, feature_set, frames)
    statistics, why = ask_verifier(ebpf.build(ebpf.emit(model, feature_set), clang=clang).object, must=True)
    assert statistics, why
