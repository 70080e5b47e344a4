# SPDX-License-Identifier: Apache-2.0
"""A label belongs to a flow: both directions count, so that no rule wins by counting packets."""

from __future__ import annotations

import json
from ipaddress import ip_address
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.parity import frames
from wirewise.datasets import CaptureFolder, Table, Truth, build_table, table_of, write_capture
from wirewise.datasets.table import whole_flows
from wirewise.evaluate import train
from wirewise.evaluate.classes import matrix, numbers
from wirewise.evaluate.moments import At
from wirewise.evaluate.operating_point import choose
from wirewise.evaluate.per_flow import DECISIONS, per_flow
from wirewise.feature_sets import FeatureSet
from wirewise.feature_sets.fields import BIDIRECTIONAL
from wirewise.importers import import_model

COUNT = FeatureSet.from_dict({"name": "count", "key": BIDIRECTIONAL, "features": ["count"]})
LENGTHS = (2, 4, 6, 10, 20, 40)
"""Packets of flows, the same for both classes."""
CLASSES = ["attack", "benign"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three captures of each class, whose flows differ in nothing; of the attacks, what the attacker sends is
    labelled, and the victim's answers are excluded by the manifest's `reply_rule`.
    """
    path = tmp_path_factory.mktemp("manifest")
    entries = []
    for number in range(6):
        client, server = f"192.0.2.{number + 1}", f"198.51.100.{number + 1}"
        packets, time = [], 10**15
        for flow, length in enumerate(LENGTHS * 10):
            for nth in range(length):
                time += 1_000_000
                ends = (
                    (client, server, 1024 + flow, 80) if nth % 2 == 0 else (server, client, 80, 1024 + flow)
                )
                packets.append((time, frame(*ends)))
        write_capture(path / f"{number}.pcap", packets)
        attack = number % 2 == 0
        source = {"source_repo": f"owner/{number // 2}"}
        rules = {"attack_rule": {"src": client}, "reply_rule": {"src": server}, "rest": "none"}
        entries.append(
            {"path": f"{number}.pcap", "link_type": "ETHERNET", "packets": len(packets), "class": "attack"}
            | {"label": "attack" if attack else "benign", **source, **(rules if attack else {})}
        )
    (path / "manifest.json").write_text(json.dumps(entries))
    return path


def frame(source: str, destination: str, sport: int, dport: int) -> bytes:
    ends = (ip_address(end).packed for end in (source, destination))
    network = frames.ipv4(*ends, frames.TCP, frames.tcp(sport, dport, 0x10))
    return frames.ethernet(network, frames.IPV4)


def by_reference(folder: Path) -> Table:
    return build_table(sorted(folder.glob("*.pcap")), COUNT, CaptureFolder.read(folder), jobs=1)


def by_program(folder: Path) -> Table:
    return table_of(sorted(folder.glob("*.pcap")), COUNT, truth=Truth(folder), progress=False)[0]


@pytest.mark.parametrize("made_by", [by_reference, by_program])
def test_a_rule_that_counts_packets_is_no_better_than_chance(folder: Path, made_by: object) -> None:
    table = made_by(folder)  # type: ignore[operator]
    assert not len(table.frame.filter(pl.col("label") == ""))
    truth = (table.frame["label"] == "attack").to_numpy().astype(np.int64)
    for packet in DECISIONS:
        for above in range(1, packet + 1):
            said = (table.frame["count"] > above).to_numpy().astype(np.int64)
            found = per_flow(table.frame, truth, said, ["benign", "attack"], scores=said, at=At((packet,)))
            decided = found.by_packet[packet]
            assert decided.recall == pytest.approx(decided.benign_flagged)
            if above == packet:
                assert decided.recall == 0, "no flow is past its packet N at its packet N"
            assert found.curves is not None and found.curves.auc == pytest.approx(0.5)


def test_neither_training_nor_a_margin_learns_from_the_count(folder: Path) -> None:
    table = by_reference(folder)
    training = train(table, "boosting", trees=20, depth=4, folds=0)
    tested = table.frame[training.split.test]
    rows, truth = matrix(Table(tested, COUNT)), numbers(Table(tested, COUNT), training.classes)
    said = np.asarray(training.estimator.predict(rows), np.int64)
    found = per_flow(tested, truth, said, training.classes).by_packet
    assert all(decided.recall == pytest.approx(decided.benign_flagged) for decided in found.values())
    point = choose(import_model(training.estimator).model, tested, rows, truth, 0.3)
    assert point.recall == pytest.approx(point.loss) and point.recall_before == pytest.approx(
        point.loss_before
    )


def test_the_written_table_has_the_labels_of_whole_flows(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    table_of(sorted(folder.glob("*.pcap")), COUNT, truth=Truth(folder), output=path, progress=False)
    written = pl.read_parquet(path)
    assert set(written["label"]) == {"attack", "benign"}
    assert set(written["source"]) == {"owner/0", "owner/1", "owner/2"}
    assert Table.read(path).feature_set == COUNT


def test_only_unlabelled_packets_of_labelled_flows_get_a_label() -> None:
    def table(*rows: tuple[str, str, str]) -> pl.DataFrame:
        return pl.DataFrame(rows, schema=["capture", "flow", "label"], orient="row")

    given = table(
        ("a", "f", ""), ("a", "f", "scan"), ("a", "g", ""), ("a", "f", ""), ("b", "f", ""), ("a", "", ""),
        ("a", "", "arp-scan"), ("a", "", ""), ("a", "h", "benign"), ("a", "h", ""), ("a", "h", "scan"),
        ("a", "h", ""),
    )  # fmt: skip
    assert whole_flows(given)["label"].to_list() == [
        "scan", "scan", "", "scan", "", "", "arp-scan", "", "benign", "benign", "scan", "scan",
    ]  # fmt: skip
    again = given.with_columns(variant=pl.lit("1"))
    both = whole_flows(pl.concat([given.with_columns(variant=pl.lit("")), again]))
    assert both["label"].to_list() == 2 * whole_flows(given)["label"].to_list()
