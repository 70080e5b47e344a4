# SPDX-License-Identifier: Apache-2.0
"""Feature tables: what is in a row, and that any number of processes makes the same table."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from wirewise.abi import Status
from wirewise.datasets import LabelFile, Table, build_table, find_captures, write_capture
from wirewise.datasets.manifest import LeftOut
from wirewise.datasets.table import flow_id
from wirewise.errors import InputError
from wirewise.feature_sets import Extractor, FeatureSet
from wirewise.feature_sets.packet import parse
from wirewise.text import address_text
from wirewise.traffic import generate

FEATURES = FeatureSet.from_dict({"name": "small", "features": ["length", "count", "mean(iat)", "tcp_flags"]})
LABELS = """
version: 1
rules: [{label: tcp, proto: tcp}]
otherwise: other
"""


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("captures")
    paths = []
    for seed in (1, 2, 3):
        packets = [(p.time_ns, p.frame) for p in generate(seed, duration_s=3, packets=600)]
        packets.insert(5, (packets[5][0], bytes(12) + b"\x08\x06" + bytes(46)))  # ARP
        paths.append(folder / f"{seed}.pcap")
        write_capture(paths[-1], packets)
    return paths


@pytest.fixture(scope="module")
def table(captures: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Table:
    path = tmp_path_factory.mktemp("labels") / "labels.yaml"
    path.write_text(LABELS)
    return build_table(captures, FEATURES, LabelFile.read(path), jobs=1)


def test_rows_are_the_reference_extractors(captures: list[Path], table: Table) -> None:
    from wirewise.datasets import read_ethernet

    for path in captures:
        extractor = Extractor(FEATURES)
        rows = table.frame.filter(pl.col("capture") == str(path))
        assert rows["packet"].to_list() == list(range(1, len(rows) + 1))
        for row, packet in zip(rows.iter_rows(named=True), read_ethernet(path), strict=True):
            seen = extractor.process(packet.frame, packet.time_ns)
            assert (row["time_ns"], row["status"]) == (packet.time_ns, seen.status)
            assert [row[name] for name in FEATURES.feature_names] == (seen.features or [None] * 4)
            parsed = parse(packet.frame)[1]
            assert row["label"] == ("tcp" if parsed and parsed.protocol == 6 else "other")


def test_columns_have_the_types_of_the_contract(table: Table) -> None:
    assert dict(table.frame.schema) == {
        "time_ns": pl.Int64, "capture": pl.String, "packet": pl.Int64, "flow": pl.String,
        "length": pl.Int64, "count": pl.Int64, "mean_iat": pl.Int64, "tcp_flags": pl.Int64,
        "label": pl.String, "status": pl.Int32, "sender": pl.Int32,
    }  # fmt: skip


def test_several_processes_make_the_same_table(captures: list[Path], table: Table, tmp_path: Path) -> None:
    (tmp_path / "labels.yaml").write_text(LABELS)
    assert build_table(captures, FEATURES, LabelFile.read(tmp_path / "labels.yaml"), jobs=2).frame.equals(
        table.frame
    )


def test_parquet_and_back(table: Table, tmp_path: Path) -> None:
    table.write(tmp_path / "t.parquet")
    read = Table.read(tmp_path / "t.parquet")
    assert read.frame.equals(table.frame)
    assert read.feature_set == FEATURES


def test_unclassified_packets_are_not_learned_from(table: Table) -> None:
    assert set(table.frame["status"].to_list()) == {Status.CLASSIFIED, Status.NOT_IP}
    assert len(table.labelled.frame) == len(table.frame) - 3


def test_tunnels_are_looked_into_only_if_asked(tmp_path: Path) -> None:
    inner = next(iter(generate(1, duration_s=1, packets=50, mix={"dns": 1}))).frame[14:]
    outer = bytes(12) + b"\x08\x00" + bytes.fromhex("4500") + (len(inner) + 20).to_bytes(2, "big")
    outer += bytes.fromhex("00000000400400000a0000010a000002") + inner
    write_capture(tmp_path / "t.pcap", [(1, outer)])
    for tunnels, flow in ((["ip-in-ip"], "17 "), ([], "4 ")):
        feature_set = FeatureSet.from_dict({"name": "t", "features": ["protocol"], "decapsulate": tunnels})
        row = build_table([tmp_path / "t.pcap"], feature_set).frame.row(0, named=True)
        assert row["protocol"] == int(flow)
        assert row["flow"].startswith("4 ")  # flows are told apart by the outermost header


def test_both_directions_are_one_flow() -> None:
    ids: dict[str, set[str]] = {}
    for packet in generate(2, duration_s=3, packets=500, mix={"dns": 1}, both_directions=True):
        parsed = parse(packet.frame)[1]
        assert parsed is not None
        ids.setdefault(flow_id(parsed), set()).add(str((parsed.source, parsed.source_port)))
    assert sum(len(ends) == 2 for ends in ids.values()) > len(ids) / 2
    assert max(len(ends) for ends in ids.values()) == 2


def test_a_broken_capture_stops_the_table_and_names_it(captures: list[Path], tmp_path: Path) -> None:
    broken = tmp_path / "broken.pcap"
    broken.write_bytes(captures[0].read_bytes()[:-3])
    for jobs in (1, 2):
        with pytest.raises(InputError, match=r"broken\.pcap: is cut off: .* at byte"):
            build_table([captures[1], broken], FEATURES, jobs=jobs)
    with pytest.raises(InputError, match="no capture"):
        build_table([], FEATURES)


def test_what_is_no_table_is_refused(table: Table, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        Table.read(tmp_path / "no.parquet")
    (tmp_path / "text.parquet").write_text("hello")
    with pytest.raises(InputError, match="is not Parquet"):
        Table.read(tmp_path / "text.parquet")
    table.frame.write_parquet(tmp_path / "plain.parquet")
    with pytest.raises(InputError, match="does not say its feature set"):
        Table.read(tmp_path / "plain.parquet")
    Table(table.frame.drop("label"), FEATURES).write(tmp_path / "half.parquet")
    with pytest.raises(InputError, match="has no column 'label'"):
        Table.read(tmp_path / "half.parquet")


def test_what_a_manifest_leaves_out_is_named(tmp_path: Path) -> None:
    entries = [
        {"path": f"{name}.pcap", "link_type": link, "packets": 1, "class": "x", "label": label}
        for name, link, label in (
            ("a", "ETHERNET", "benign"),
            ("b", "RAW", "attack"),
            ("c", "228", "attack"),
            *((f"odd{n}", "ETHERNET", "odd") for n in range(500)),
            ("d", "SLIP", "attack"),
        )
    ]
    (tmp_path / "manifest.json").write_text(json.dumps(entries))
    paths, labels, left_out = find_captures([tmp_path])
    assert [path.name for path in paths] == ["a.pcap", "b.pcap", "c.pcap"] and labels == tmp_path
    assert left_out == [LeftOut("marked as odd", 500, "odd0.pcap"), LeftOut("link type SLIP", 1, "d.pcap")]
    (tmp_path / "manifest.json").write_text(json.dumps(entries[3:]))
    with pytest.raises(InputError, match=r"no capture to learn from.*odd0\.pcap"):
        find_captures([tmp_path])


def test_mapped_addresses_are_spelled_as_the_agent_does() -> None:
    mapped = bytes(10) + b"\xff\xff\xc0\x00\x02\x01"
    assert address_text(mapped) == "::ffff:192.0.2.1"
    assert address_text(mapped[12:]) == "192.0.2.1" and address_text(bytes(15) + b"\1") == "::1"
    assert address_text(bytes(12) + b"\1\2\3\4") == "::102:304"
