# SPDX-License-Identifier: Apache-2.0
"""Feature tables: what the program computes in the engine is, cell by cell, what the reference computes."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from polars.testing import assert_frame_equal

from tests.parity.cases import random_fuzzer
from wirewise.datasets import LabelFile, Table, Truth, build_table, extract_table, write_capture
from wirewise.datasets.manifest import CaptureFolder
from wirewise.features import PRESETS, FeatureSet
from wirewise.traffic import generate

COLLECTION = Path(__file__).parents[3] / "shared" / "data" / "captures"
WINDOWS = FeatureSet.from_dict(
    {
        "name": "windows",
        "key": "five-tuple-bidirectional",
        "decapsulate": ["gtp-u", "gre"],
        "features": ["length", "direction", "mean(iat, window=500ms)", "count(window=1s, previous)"],
    }
)
LABELS = """
version: 1
rules:
  - {label: syn, proto: tcp, flags: [S, SE]}
  - {label: low, sport: [0-1023], proto: udp}
  - {label: early, until: 2s}
otherwise: other
"""


def agree(captures: list[Path], feature_set: FeatureSet, truth: Path, folder: Path) -> Table:
    labels = CaptureFolder.read(truth) if truth.is_dir() else LabelFile.read(truth)
    reference = build_table(captures, feature_set, labels, progress=False)
    output = folder / "table.parquet"
    extract_table(captures, feature_set, output, truth=Truth(truth), progress=False)
    table = Table.read(output)
    assert table.feature_set == reference.feature_set
    assert_frame_equal(table.frame, reference.frame)
    return table


@pytest.mark.parametrize("feature_set", [*PRESETS.values(), WINDOWS], ids=lambda f: f.name)
def test_made_and_fuzzed_packets(feature_set: FeatureSet, tmp_path: Path) -> None:
    made = [(10**18 + p.time_ns, p.frame) for p in generate(seed=4, duration_s=4, packets=3000)]
    fuzzer = random_fuzzer(Random(4), feature_set)
    captures = [tmp_path / "made.pcap", tmp_path / "fuzzed.pcap"]
    write_capture(captures[0], made)
    write_capture(captures[1], fuzzer.packets(3000))
    (tmp_path / "labels.yaml").write_text(LABELS)
    table = agree(captures, feature_set, tmp_path / "labels.yaml", tmp_path)
    assert {"syn", "low", "early", "other"} <= set(table.frame["label"].unique())


@pytest.mark.skipif(not COLLECTION.is_dir(), reason="no captures: ../shared/data/captures is not there")
def test_a_collection_with_its_manifest(tmp_path: Path) -> None:
    folder = CaptureFolder.read(COLLECTION)
    wanted = [entry for entry in folder.entries if entry.link_type == "ETHERNET" and entry.label != "odd"]
    captures = [folder.file(entry) for entry in wanted][::6]
    table = agree(captures, PRESETS["hara2026"], COLLECTION, tmp_path)
    assert len(table.frame) > 10_000
