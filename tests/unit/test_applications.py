# SPDX-License-Identifier: Apache-2.0
"""Applications of benign traffic: from labels, from a folder's manifest, from a column."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from wirewise.datasets import CaptureFolder, Table
from wirewise.datasets.applications import by_folder, by_labels
from wirewise.errors import InputError
from wirewise.evaluate import train
from wirewise.feature_sets import FeatureSet

FEATURES = FeatureSet.from_dict({"name": "one", "features": ["length"]})


def test_labels_are_taken_apart() -> None:
    labels = ["benign/web", "benign", "flood", "", "web/benign", "benign/a/b"]
    found = by_labels(pl.DataFrame({"label": labels}))
    assert found["label"].to_list() == ["benign", "benign", "flood", "", "web/benign", "benign"]
    assert found["application"].to_list() == ["web", "", "", "", "", "a/b"]
    plain = pl.DataFrame({"label": ["benign", "flood"]})
    assert by_labels(plain).equals(plain)


def test_a_table_has_them_and_training_sees_one_benign_class(tmp_path: Path) -> None:
    rows = 200
    frame = pl.DataFrame(
        {
            "time_ns": range(rows), "capture": [f"c{row % 4}" for row in range(rows)], "packet": range(rows),
            "flow": [str(row // 4) for row in range(rows)], "length": [row % 4 * 100 for row in range(rows)],
            "label": [("benign/web", "benign/dns", "flood", "scan")[row % 4] for row in range(rows)],
            "status": [0] * rows,
        }
    )  # fmt: skip
    path = tmp_path / "t.parquet"
    Table(frame, FEATURES).write(path)
    for table in (Table.read(path), Table.of(frame, FEATURES)):
        assert train(table, "tree").classes == ["benign", "flood", "scan"]
        assert table.frame["application"].unique().sort().to_list() == ["", "dns", "web"]


@pytest.fixture
def folder(tmp_path: Path) -> CaptureFolder:
    entries = [
        {"path": path, "link_type": "ETHERNET", "packets": 1, "class": kind, "label": label}
        for path, kind, label in (
            ("web/a.pcap", "web_tls", "benign"),
            ("b.pcap", "syn_flood", "attack"),
        )
    ]
    (tmp_path / "manifest.json").write_text(json.dumps(entries))
    return CaptureFolder.read(tmp_path)


def test_a_folder_names_those_of_its_captures(folder: CaptureFolder) -> None:
    names = [str(folder.path / "web" / "a.pcap"), str(folder.path / "b.pcap"), "/else/c.pcap"]
    frame = pl.DataFrame({"capture": names})
    assert by_folder(frame, folder)["application"].to_list() == ["web-tls", "", ""]
    said = frame.with_columns(application=pl.Series(["video", None, ""]))
    assert by_folder(said, folder)["application"].to_list() == ["video", "", ""], "what is said stays"
    with pytest.raises(InputError, match="names none of the table's captures"):
        by_folder(pl.DataFrame({"capture": ["/else/c.pcap"]}), folder)
