# SPDX-License-Identifier: Apache-2.0
"""Feature tables: what the program computes in the engine is, cell by cell, what the reference computes."""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from tests import needs
from tests.parity.cases import random_fuzzer
from wirewise.datasets import LabelFile, Table, Truth, build_table, extract_table, write_capture
from wirewise.datasets.manifest import CaptureFolder
from wirewise.feature_sets import PRESETS, FeatureSet
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


@pytest.mark.skipif(not COLLECTION.is_dir(), reason="captures: ../shared/data/captures is not there")
def test_a_collection_with_its_manifest(tmp_path: Path) -> None:
    folder = CaptureFolder.read(COLLECTION)
    wanted = [entry for entry in folder.entries if entry.link_type == "ETHERNET" and entry.label != "odd"]
    captures = [folder.file(entry) for entry in wanted][::6]
    table = agree(captures, PRESETS["hara2026"], COLLECTION, tmp_path)
    assert len(table.frame) > 10_000


def frame(number: int) -> bytes:
    """A UDP packet of one of 5003 flows; each ninth is ARP, which has no features."""
    if number % 9 == 0:
        return bytes(12) + b"\x08\x06" + bytes(28)
    flow = number % 5003
    ip = struct.pack("!BxH4xBB2x4s4s", 0x45, 28 + number % 50, 64, 17, struct.pack("!I", flow), bytes(4))
    return bytes(12) + b"\x08\x00" + ip + struct.pack("!HHHH", 1024 + flow, 53, 8, 0) + bytes(number % 50)


def test_another_reader_reads_the_same(tmp_path: Path) -> None:
    """Several row groups, many flows, nulls and labels, read by Arrow's own reader and by polars."""
    parquet = needs.package("pyarrow.parquet")
    count, capture, output = 300_000, tmp_path / "many.pcap", tmp_path / "many.parquet"
    write_capture(capture, ((10**18 + 1000 * number, frame(number)) for number in range(1, count + 1)))
    (tmp_path / "labels.yaml").write_text(LABELS)
    extract_table(
        [capture], PRESETS["hara2023"], output, truth=Truth(tmp_path / "labels.yaml"), progress=False
    )
    file = parquet.ParquetFile(output)
    assert [file.metadata.row_group(i).num_rows for i in range(2)] == [262_144, count - 262_144]
    read = file.read()
    read.validate(full=True)
    table = Table.read(output).frame
    assert_frame_equal(pl.DataFrame(pl.from_arrow(read)), table)
    numbers = range(1, count + 1)
    none = [number % 9 == 0 for number in numbers]
    flow = [number % 5003 for number in numbers]
    address = [f"0.0.{f >> 8}.{f & 255}" for f in flow]
    assert read["packet"].to_pylist() == list(numbers)
    assert read["time_ns"].to_pylist() == [10**18 + 1000 * number for number in numbers]
    assert read["source_port"].to_pylist() == [
        None if n else 1024 + f for n, f in zip(none, flow, strict=True)
    ]
    assert read["flow"].to_pylist() == [
        "" if n else f"17 0.0.0.0|53 {a}|{1024 + f}" for n, a, f in zip(none, address, flow, strict=True)
    ]
    assert set(read["capture"].to_pylist()) == {str(capture)}
    assert set(read["label"].to_pylist()) == {"early"}
