# SPDX-License-Identifier: Apache-2.0
"""What is learned: `--learn-first`, `--flows-per-capture`, `--weights`, `--beside` and `--two-classes`."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from sklearn.tree import DecisionTreeClassifier

import wirewise as ww
from wirewise import FeatureSet
from wirewise.cli import main
from wirewise.datasets import Table
from wirewise.errors import InputError
from wirewise.evaluate import Training, numbers, train
from wirewise.evaluate.lesson import Recipe

CAPTURES = {"flood": (40, "s0"), "scan": (4, "s1"), "home": (12, "s1"), "office": (2, "")}
"""Flows and source of each."""


def frame(packets: int = 5, name: str = "") -> pl.DataFrame:
    rows = [
        (capture + name, f"{capture} {flow}", label, source, packet)
        for capture, (flows, source) in CAPTURES.items()
        for label in ("benign" if capture in ("home", "office") else "attack",)
        for flow in range(flows)
        for packet in range(packets)
    ]
    return pl.DataFrame(rows, schema=["capture", "flow", "label", "source", "length"], orient="row")


def test_all_is_learned_from_and_weighs_the_same_by_default() -> None:
    assert Recipe().kept(frame(), 0).all() and Recipe().weights(frame()) is None and not Recipe().facts()


def test_the_first_packets_of_each_flow() -> None:
    rows = frame()
    kept = rows.filter(pl.Series(Recipe(first=2).kept(rows, 0)))
    assert set(kept["length"]) == {0, 1} and kept["flow"].n_unique() == rows["flow"].n_unique()


def test_some_flows_of_each_class_of_a_capture() -> None:
    rows = frame()
    kept = rows.filter(pl.Series(Recipe(flows=3).kept(rows, 0)))
    assert dict(kept.group_by("capture").agg(pl.col("flow").n_unique()).iter_rows()) == {
        "flood": 3, "scan": 3, "home": 3, "office": 2,
    }  # fmt: skip
    assert len(kept) == 5 * kept["flow"].n_unique(), "whole flows"
    again = rows.filter(pl.Series(Recipe(flows=3).kept(rows, 0)))
    other = rows.filter(pl.Series(Recipe(flows=3).kept(rows, 1)))
    assert kept.equals(again) and not kept.equals(other), "drawn by the seed"


@pytest.mark.parametrize("alike", ["capture", "source"])
def test_captures_or_sources_weigh_the_same(alike: str) -> None:
    rows = frame()
    weights = Recipe(alike=alike).weights(rows)
    assert weights is not None and weights.mean() == pytest.approx(1)
    unit = (
        "capture"
        if alike == "capture"
        else pl.when(pl.col("source") == "").then("capture").otherwise("source")
    )
    totals = rows.with_columns(weight=weights).group_by("label", unit).agg(pl.col("weight").sum())["weight"]
    assert totals.to_list() == pytest.approx([totals[0]] * len(totals))


def test_kinds_of_attacks_weigh_the_same() -> None:
    capture = pl.col("capture")
    rows = pl.concat([frame(name=name) for name in "abc"]).filter(~capture.is_in(["scana", "scanb"]))
    label = pl.when(pl.col("label") == "attack").then(capture.str.head(4)).otherwise("label")
    rows = rows.with_columns(label=label)  # of three captures of floods, one of scans and six without attacks
    alike = Recipe(alike="kind").weights(rows)
    assert alike is not None and alike.mean() == pytest.approx(1)
    of = rows.with_columns(weight=alike * 10 / alike.sum())
    captures = of.group_by("capture").agg(pl.col("weight").sum())
    weights = {name: weight for name, weight in captures.iter_rows() if name[:4] in ("floo", "scan")}
    assert weights == pytest.approx({"flooda": 2 / 3, "floodb": 2 / 3, "floodc": 2 / 3, "scanc": 2})
    benign = captures.filter(~capture.is_in(list(weights)))["weight"].to_list()
    assert benign == pytest.approx([1] * 6), "they weigh as many captures as they are"


def two_days() -> Table:
    rows = pl.concat([frame(name=name) for name in "ab"])
    return Table(rows.with_columns(time_ns=0, status=0), FeatureSet("x", ["length"]))


def root_of(training: Training) -> tuple[int, list[float]]:
    """Rows that a tree has learned from, and the shares that its classes have of their weights."""
    tree = training.estimator.tree_
    return int(tree.n_node_samples[0]), tree.value[0, 0].tolist()


def test_what_is_learned_changes_and_what_is_tested_does_not() -> None:
    table, chosen = two_days(), Recipe(first=2, flows=3, alike="capture")
    plain = train(table, DecisionTreeClassifier(), folds=0, group="capture")
    cut = train(table, DecisionTreeClassifier(), folds=0, group="capture", recipe=chosen)
    assert cut.report.packets == plain.report.packets
    captures = table.frame[plain.split.learn].group_by("capture", "label").agg(pl.col("flow").n_unique())
    assert root_of(plain)[0] == 5 * captures["flow"].sum()
    benign = float((captures["label"] == "benign").mean())  # type: ignore[arg-type]
    expected = 2 * captures["flow"].clip(upper_bound=3).sum(), pytest.approx([benign, 1 - benign])
    assert root_of(cut) == expected, "each capture weighs the same"
    facts = {"learn_first": 2, "flows_per_capture": 3, "weights": "capture"}
    assert cut.facts | facts == cut.facts and not plain.facts.keys() & facts.keys()


def test_balanced_classes_on_top_of_captures() -> None:
    balanced = train(
        two_days(), DecisionTreeClassifier(), folds=0, class_weight="balanced", group="capture",
        recipe=Recipe(alike="capture"),
    )  # fmt: skip
    assert root_of(balanced)[1] == pytest.approx([0.5, 0.5])
    seen = balanced.split.learn
    weights = Recipe(alike="capture").weights(two_days().frame[seen])
    assert weights is not None and weights.max() > 3 * weights.min(), "or there was nothing to balance"


def made() -> Table:
    """One capture of a class that no other table has; its packets are longer than all others."""
    rows = frame().filter(pl.col("capture") == "flood")
    rows = rows.with_columns(
        capture=pl.lit("made"), label=pl.lit("reflection"), length=pl.col("length") + 900
    )
    return Table(rows.with_columns(time_ns=0, status=0), FeatureSet("x", ["length"]))


def test_another_table_is_learned_from_in_every_fold_and_never_tested() -> None:
    table, recipe = two_days(), Recipe(first=2, flows=3, alike="capture")
    plain = train(table, DecisionTreeClassifier(), folds=3, seeds=2, group="capture", recipe=recipe)
    more = train(
        table, DecisionTreeClassifier(), folds=3, seeds=2, group="capture", recipe=recipe, beside=made()
    )
    assert more.report.packets == plain.report.packets and more.classes == [*plain.classes, "reflection"]
    assert plain.folds is not None and more.folds is not None
    assert [len(flows) for flows in more.folds.scored] == [len(flows) for flows in plain.folds.scored] != []
    assert root_of(more)[0] == root_of(plain)[0] + 2 * 3, "the recipe is for both tables"
    assert more.facts["packets_beside"] == 2 * 3 and "packets_beside" not in plain.facts
    assert more.estimator.predict([[905]]).tolist() == [more.classes.index("reflection")]
    weight = root_of(more)[1][more.classes.index("reflection")]
    assert weight == pytest.approx(1 / (1 + more.table.frame[more.split.learn]["capture"].n_unique()))


def test_a_table_beside_has_the_same_features() -> None:
    other = Table(made().frame.with_columns(ttl=64), FeatureSet("x", ["length", "ttl"]))
    with pytest.raises(InputError, match="the table beside: has other features"):
        train(two_days(), DecisionTreeClassifier(), beside=other)


def test_the_command_takes_a_table_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    other = Table(made().frame.with_columns(ttl=64), FeatureSet("x", ["length", "ttl"]))
    for name, table in {"t": two_days(), "made": made(), "other": other}.items():
        Table(table.frame.with_columns(packet=0, sender=0), table.feature_set).write(f"{name}.parquet")

    def call(*words: str) -> None:
        monkeypatch.setattr("sys.argv", ["wirewise", "train", "t.parquet", "--by", "capture", *words])
        main()

    call("--beside", "made.parquet", "--json")
    said = json.loads(capsys.readouterr().out)
    assert said["training"]["packets_beside"] == 200 and said["classes"] == ["benign", "attack", "reflection"]
    with pytest.raises(SystemExit) as refused:
        call("--beside", "other.parquet")
    assert refused.value.code == 2
    assert "--beside other.parquet: has other features than t.parquet" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"first": 0}, "0 packets to learn from: must be 1 or more"),
        ({"flows": -1}, "-1 flows of a capture: must be 1 or more"),
        ({"alike": "captures"}, "are not known"),
    ],
)
def test_a_wrong_recipe_is_refused(given: dict[str, Any], rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        Recipe(**given)


def kinds_of_attacks() -> Table:
    """Ten sources; floods are long packets, scans are not to be told from benign ones."""
    rows = [
        (f"s{source} {label}", f"{source} {label} {flow}", label, f"s{source}", length + packet, packet)
        for source in range(10)
        for label, length in (("benign", 10), ("flood", 900), ("scan", 10))
        for flow in range(40)
        for packet in range(2)
    ]
    schema = ["capture", "flow", "label", "source", "length", "time_ns"]
    return Table(
        pl.DataFrame(rows, schema=schema, orient="row").with_columns(status=0), FeatureSet("x", ["length"])
    )


def test_two_classes_are_judged_by_kind_of_attack(tmp_path: Path) -> None:
    table = kinds_of_attacks()
    training = train(table, DecisionTreeClassifier(max_depth=3), two_classes=True, group="source", folds=3)
    assert training.classes == ["benign", "attack"]
    assert training.folds is not None
    assert set(training.folds.recall) == {"attack", "flood", "scan"}
    assert min(training.folds.recall["flood"]) == 1 and max(training.folds.recall["scan"]) < 0.1
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # flood and scan are no strangers to it
        compiled = ww.compile(training)
    found = ww.judge(compiled, table)
    assert [family.name for family in found.verdict.families] == ["attack"]
    advice = {kind.name: kind.advice for kind in found.verdict.kinds}
    assert advice["flood"] != "not visible" and advice["scan"] == "not visible"
    assert "Not visible to these features at packet 5: scan" in found.verdict.sentence
    assert found.mean_recall["families"] == pytest.approx(0.5)
    ww.write_report(tmp_path / "page.html", found)
    assert "flood" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_two_classes_need_benign_rows() -> None:
    table = kinds_of_attacks()
    attacks = Table(table.frame.filter(pl.col("label") != "benign"), table.feature_set)
    with pytest.raises(InputError, match="has no row labelled benign"):
        train(attacks, "tree", two_classes=True)


def test_other_labels_are_attacks_only_to_a_model_of_benign_and_attack() -> None:
    rows = kinds_of_attacks()
    assert set(numbers(rows, ["benign", "attack"]).tolist()) == {0, 1}
    assert set(numbers(rows, ["benign", "flood"]).tolist()) == {0, 1, -1}
    assert set(numbers(rows, ["attack", "benign"]).tolist()) == {1, 0}
