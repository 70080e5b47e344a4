# SPDX-License-Identifier: Apache-2.0
"""Trees of their own for what is beside: `wirewise train --beside TABLE --apart CLASS`."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import wirewise as ww
from tests.unit.test_phases import FEATURES, LATE, START, Command, command, conversations  # noqa: F401
from wirewise.datasets import Table
from wirewise.errors import InputError
from wirewise.evaluate import matrix, out_of_fold, train
from wirewise.evaluate.apart import Apart, Together
from wirewise.evaluate.classes import class_of, numbers
from wirewise.evaluate.fidelity import HeldOut, measure
from wirewise.evaluate.naming import doubts
from wirewise.evaluate.phases import Phases
from wirewise.formats.bundle import Bundle
from wirewise.formats.losses import class_table
from wirewise.importers import import_model
from wirewise.models import TreeEnsemble

FLOOD = Apart("flood", 3)


@pytest.fixture(scope="module")
def table() -> Table:
    return conversations(np.random.default_rng(4))


@pytest.fixture(scope="module")
def beside() -> Table:
    """Flows of one packet. Floods have lengths that no capture has, and are of as many kinds as labels."""
    rng = np.random.default_rng(5)
    rows = [
        (f"made {n % 4}", f"{n}", ("benign", "syn", "udp")[n % 3], "made", 20 if n % 3 else 250, 1, 60)
        for n in range(240)
    ]
    schema = ["capture", "flow", "label", "source", "length", "packets", "ttl"]
    made = pl.DataFrame(rows, schema=schema, orient="row")
    length = pl.col("length") + pl.Series(rng.integers(-20, 20, len(made)))
    made = made.with_columns(length.alias("length"), status=0, time_ns=pl.int_range(pl.len()) * 10**6)
    return Table(made, FEATURES)


def trained(table: Table, beside: Table | None, estimator: str = "forest", **options: Any) -> Any:
    asked = {"trees": 4, "depth": 4, "group": "source", "folds": 4, "seeds": 2, "two_classes": True}
    return train(table, estimator, beside=beside, **(asked | options))


@pytest.mark.parametrize("estimator", ["tree", "forest", "extra-trees", "boosting"])
@pytest.mark.parametrize("late", [None, LATE])
def test_the_integers_say_what_the_surer_says(table: Table, beside: Table, estimator: str, late: Any) -> None:
    if late and estimator == "boosting":
        with pytest.raises(InputError, match="no room beside a late model of boosting"):
            trained(table, beside, estimator, apart=FLOOD, late=late)
        return
    apart = Apart("flood", 60) if estimator == "boosting" else FLOOD  # a round adds little
    training = trained(table, beside, estimator, apart=apart, late=late, refit=True, folds=0)
    assert training.classes == ["benign", "attack", "flood"]
    fitted, rows = training.estimator, np.concatenate([matrix(table), matrix(beside)])
    assert isinstance(fitted, Phases if late else Together)
    model = import_model(fitted, classes=training.classes, margin=True).model
    assert isinstance(model, TreeEnsemble) and (model.n_classes, model.n_outputs) == (3, 3)
    said, _ = model.predict(rows)
    assert (said == fitted.predict(rows)).all() and set(said.tolist()) == {0, 1, 2}
    assert [model.predict_one(row)[0] for row in rows[:50].tolist()] == said[:50].tolist()
    first = fitted.first if late else fitted
    if not late:
        ahead = fitted.decision_function(rows)[:, 1:].max(axis=1)
        surer = fitted.decision_function(rows)[:, 1:].argmax(axis=1) + 1
        assert (said == np.where(ahead > 0, surer, 0)).all()
    units = out_of_fold.units(model, rows, fitted.decision_function(rows))
    assert units is not None and units > 1000, "one unit for all"
    if estimator in ("forest", "extra-trees"):
        assert len(first.own.estimators_) == FLOOD.trees and len(first.usual.estimators_) == 4
    assert training.facts["apart"] == {"name": "flood", "trees": apart.trees}
    assert training.facts["packets_beside"] == len(beside.frame)
    assert not any("rare classes" in doubt for doubt in training.doubts), "floods are beside"


@pytest.mark.parametrize("late", [None, LATE])
def test_of_what_is_beside_the_others_learn_captures_without_attacks(
    table: Table, beside: Table, late: Any
) -> None:
    packets = pl.int_range(pl.len()) % (2 * START)  # some are late
    mixed = beside.frame.with_columns(packets=packets)
    assert mixed.group_by("capture").agg((pl.col("label") != "benign").any())["label"].all()
    quiet = mixed.filter(pl.col("label") == "benign").with_columns(pl.lit("quiet").alias("capture"))
    rows = np.concatenate([matrix(table), matrix(beside)])
    for more, learned in ((mixed, None), (pl.concat([mixed, quiet]), Table(quiet, FEATURES))):
        alone = trained(table, learned, late=late, folds=0).estimator
        both = trained(table, Table(more, FEATURES), apart=FLOOD, late=late, folds=0).estimator
        if late:
            assert np.allclose(both.late.predict_proba(rows), alone.late.predict_proba(rows))
            both, alone = both.first, alone.first
        assert np.allclose(both.usual.predict_proba(rows), alone.predict_proba(rows))


def test_trees_of_their_own_do_not_learn_attacks_of_the_table(table: Table, beside: Table) -> None:
    both = trained(table, beside, apart=FLOOD)
    rows = matrix(table)
    own = both.estimator.own.predict(matrix(beside))
    assert (own == (beside.frame["label"] != "benign").to_numpy()).all()
    scans = rows[(table.frame["label"] == "scan").to_numpy()]
    assert not both.estimator.own.predict(scans).any(), "attacks of the table are not theirs"


def test_what_they_find_counts_as_found(table: Table, beside: Table) -> None:
    """An attack that only trees of their own know, in captures that are tested."""
    floods = beside.frame.filter(pl.col("label") == "syn")
    floods = floods.with_columns(capture=pl.lit("c") + (pl.int_range(pl.len()) % 4).cast(pl.String))
    floods = floods.with_columns(source=pl.lit("s") + (pl.int_range(pl.len()) % 4).cast(pl.String))
    captured = Table(pl.concat([table.frame, floods], how="diagonal_relaxed"), FEATURES)
    training = trained(captured, beside, apart=FLOOD)
    assert training.folds is not None
    assert min(training.folds.recall["syn"]) > 0.9
    assert min(training.folds.recall["scan"]) > 0.5
    for flows in training.folds.scored:
        [point] = [p for p in out_of_fold.points(flows) if (p.wish, p.after) == (0.1, 1)]
        assert point.families > 0.3


def test_what_only_they_can_find_is_right(table: Table, beside: Table) -> None:
    """An attack of a single source, which the others never learn in a fold."""
    floods = beside.frame.filter(pl.col("label") == "syn")
    floods = floods.with_columns(capture=pl.lit("c") + (pl.int_range(pl.len()) % 4).cast(pl.String))
    floods = floods.with_columns(source=pl.lit("s"))
    captured = Table(pl.concat([table.frame, floods], how="diagonal_relaxed"), FEATURES)
    training, alone = trained(captured, beside, apart=Apart("flood", 4)), trained(captured, None)
    assert training.folds is not None and alone.folds is not None
    assert min(training.folds.recall["syn"]) > 0.9 and max(alone.folds.recall["syn"]) < 0.1
    assert min(training.folds.recall["scan"]) > 0.5
    for both, others in zip(training.folds.scored, alone.folds.scored, strict=True):
        found, without = (
            next(p.families for p in out_of_fold.points(flows) if (p.wish, p.after) == (0.1, 1))
            for flows in (both, others)
        )
        assert found > without + 0.1
    for report in (training.report, training.folds.report):
        (benign, *_), (_, attack, flood), _ = report.confusion
        assert report.nameless == ["flood"] and attack > 0
        assert report.accuracy == pytest.approx((benign + attack + flood) / report.packets)
    assert flood > attack / 10, "of the folds"
    imported = import_model(training.estimator, classes=training.classes)
    assert not doubts(imported.model, captured, training.classes, "captures")
    truth = numbers(captured, training.classes)
    fidelity = measure(imported, matrix(captured), HeldOut(matrix(captured), truth, "captures"))
    assert [line[0] for line in class_table(fidelity)[1]] == ["benign", "attack"]


def test_one_margin_holds_for_both(table: Table, beside: Table) -> None:
    training = trained(table, beside, apart=FLOOD)
    model = import_model(training.estimator, classes=training.classes, margin=True).model
    assert isinstance(model, TreeEnsemble)
    rows = np.concatenate([matrix(table), matrix(beside)])
    _, scores = model.predict(rows)
    ahead = scores[:, 1:].max(axis=1) - scores[:, 0]
    by = int(np.median(ahead[ahead > 0]))
    said, _ = model.favour(by).predict(rows)
    assert ((said > 0) == (ahead > by)).all() and 0 < (said > 0).sum() < (ahead > 0).sum()


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"two_classes": False}, "comes beside two classes"),
        ({"beside": None}, "has no table to learn from"),
        ({"estimator": "mlp"}, "trees without a teacher"),
        ({"teacher": "forest"}, "trees without a teacher"),
        ({"apart": Apart("flood", 0)}, "1 to 1000"),
    ],
)
def test_what_cannot_have_trees_of_their_own(
    table: Table, beside: Table, given: dict[str, Any], rule: str
) -> None:
    with pytest.raises(InputError, match=rule):
        trained(**({"table": table, "beside": beside, "apart": FLOOD, "folds": 0} | given))


@pytest.mark.parametrize(("others", "number"), [(1, 1), (10, 8), (20, 16), (40, 32)])
def test_there_are_four_for_five_of_the_others(table: Table, beside: Table, others: int, number: int) -> None:
    training = trained(table, beside, trees=others, apart=Apart("flood"), folds=0)
    assert len(training.estimator.own.estimators_) == number
    assert training.facts["apart"] == {"name": "flood", "trees": number}


@pytest.mark.parametrize("name", ["", "benign", "attack"])
def test_their_class_has_a_name_of_its_own(name: str) -> None:
    with pytest.raises(InputError, match="a name of its own"):
        Apart(name)


def test_a_label_that_is_no_class_is_an_attack() -> None:
    three = ["benign", "attack", "flood"]
    assert [class_of(label, three) for label in ("benign", "scan", "flood", "")] == [
        "benign", "attack", "flood", ""
    ]  # fmt: skip
    assert class_of("scan", ["benign", "flood"]) == "scan"


def test_from_the_command_line(
    table: Table,
    beside: Table,
    tmp_path: Path,
    command: Command,  # noqa: F811
) -> None:
    rows, more = tmp_path / "t.parquet", tmp_path / "more.parquet"
    model, made = tmp_path / "m.pkl", tmp_path / "m.wirewise"
    for path, of in ((rows, table), (more, beside)):
        Table(of.frame.with_columns(packet=0, sender=0), FEATURES).write(path)
    asked = ["train", rows, "--two-classes", "--by", "source", "--folds", 4, "--seeds", 1]
    own = ["--beside", more, "--apart", "flood", "--apart-trees", 3]
    late = ["--late-from", START, "--late-trees", 5, "--late-depth", 4]
    said = command(*asked, *own, *late, "--refit", "-o", model)
    assert "tunnel" in said and "scan" in said
    command("compile", model, "--max-benign-loss", "10%", "-o", made)
    manifest = Bundle.read(made).manifest
    assert manifest.classes == ["benign", "attack", "flood"]
    assert (manifest.fidelity or {})["operating_point"]["late"]["start"] == START
    found = json.loads(command("evaluate", model, rows, "--all-rows", "--json"))
    kinds = {kind["name"]: kind["recall"] for kind in found["verdict"]["kinds"]}
    assert kinds["scan"] > 0.8
    assert "add --apart flood" in command(*asked, "--apart-trees", 3, code=2)
    assert "no table to learn from" in command(*asked, "--apart", "flood", code=2)


def test_tables_beside_are_learned_from_together(
    table: Table,
    beside: Table,
    tmp_path: Path,
    command: Command,  # noqa: F811
) -> None:
    quiet = beside.frame.filter(pl.col("label") == "benign").with_columns(capture=pl.lit("programs"))
    parts = [beside, Table(quiet, FEATURES)]
    whole = Table.joined(parts)
    assert len(whole.frame) == len(beside.frame) + len(quiet)
    options: dict[str, Any] = {"two_classes": True, "folds": 0, "group": "source", "apart": "flood"}
    rows = np.concatenate([matrix(table), matrix(whole)])
    fits = [ww.train(table, beside=of, **options).estimator for of in (parts, whole, beside)]
    first, second, without = (fitted.decision_function(rows) for fitted in fits)
    assert np.allclose(first, second) and not np.allclose(first, without)
    with pytest.raises(InputError, match="two tables have a capture 'made 0'"):
        ww.train(table, beside=[beside, beside], **options)
    with pytest.raises(InputError, match="leave it out, or give one"):
        ww.train(table, beside=[], **options)

    files = [tmp_path / name for name in ("t.parquet", "made.parquet", "programs.parquet")]
    for path, of in zip(files, (table, *parts), strict=True):
        Table(of.frame.with_columns(packet=0, sender=0), FEATURES).write(path)
    asked = ["train", files[0], "--two-classes", "--by", "source", "--folds", 0, "--json"]
    said = json.loads(command(*asked, "--beside", files[1], "--beside", files[2], "--apart", "flood"))
    assert said["training"]["packets_beside"] == len(whole.frame)
    assert "'made 0'" in command(*asked, "--beside", files[1], "--beside", files[1], code=2)


def test_from_python(table: Table, beside: Table) -> None:
    training = ww.train(
        table, two_classes=True, folds=0, group="source", beside=beside, apart="flood", apart_trees=3
    )
    kept = pickle.loads(pickle.dumps(training.estimator))
    rows = np.concatenate([matrix(table), matrix(beside)])
    assert set(kept.predict(rows)) == {"benign", "attack", "flood"}
    compiled = ww.compile(training, verify="never")
    assert compiled.bundle.manifest.fidelity["agree"] == len(table.frame)  # type: ignore[index]
