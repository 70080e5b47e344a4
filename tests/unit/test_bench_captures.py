# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.captures`: folds over captures, on made ones."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from bench import captures
from wirewise.datasets import write_capture
from wirewise.traffic import LABELS, MIX, generate


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten captures of benign traffic of two kinds, five of attacks, and their manifest."""
    place = tmp_path_factory.mktemp("folds")
    benign = {kind: share for kind, share in MIX.items() if LABELS[kind] == "benign"}
    attack = {kind: share for kind, share in MIX.items() if kind not in benign}
    entries = []
    for number in range(15):
        label = "benign" if number < 10 else "attack"
        traffic = generate(
            seed=number, duration_s=3, packets=300, mix=benign if label == "benign" else attack
        )
        name = f"{number}.pcap"
        write_capture(place / name, ((packet.time_ns, packet.frame) for packet in traffic))
        kind = ("web", "mail")[number % 2] if label == "benign" else "flood"
        entry = {"path": name, "link_type": "ETHERNET", "packets": 300, "class": kind, "label": label}
        entries.append(entry | ({"attack_rule": {"all": True}} if label == "attack" else {}))
    (place / "manifest.json").write_text(json.dumps(entries))
    return place


def test_every_flow_is_judged_by_a_model_that_has_not_seen_its_capture(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert captures.main([str(folder), "--dealings", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["dealings"]
    assert [one["seed"] for one in found] == [0, 1]
    for one in found:
        assert one["f1"] > 0.8 and one["benign_flagged"] <= 0.01
        assert set(one["applications"]) <= {"web", "mail"} and set(one["missed"]) <= {"flood"}
        assert 0 < one["attacks"] < one["flows"]
    assert captures.main([str(folder), "--dealings", "1", "--feature-set", "flood"]) == 0
    assert capsys.readouterr().out.startswith("dealing 0: F1 0.")


def test_a_model_learns_from_the_other_captures_only() -> None:
    """With a feature that is the capture's number, there is nothing to learn for the others."""
    rows = pl.DataFrame(
        {"capture": [f"c{n // 40}" for n in range(800)], "one": [n // 40 for n in range(800)]}
    )
    rows = rows.with_columns(
        attack=(pl.col("one") * 7919 % 5 < 2), number=pl.int_range(pl.len()).over("capture")
    )
    scores = captures.scored(rows, ["one"], 0)
    each = rows.with_columns(score=pl.Series(scores)).group_by("capture").agg(pl.col("score").n_unique())
    assert each["score"].max() == 1


def test_a_folder_without_captures_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert captures.main([str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("error: ")
