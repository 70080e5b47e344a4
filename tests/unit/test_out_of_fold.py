# SPDX-License-Identifier: Apache-2.0
"""Margins by cross-validation: against the obvious loop, and what they promise of other sources."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.tree import DecisionTreeClassifier

import wirewise as ww
from wirewise import FeatureSet
from wirewise.datasets import Table
from wirewise.errors import InputError
from wirewise.evaluate import out_of_fold, train
from wirewise.evaluate.operating_point import COMPARED
from wirewise.evaluate.out_of_fold import WISHES
from wirewise.importers import import_model


def drawn(rng: np.random.Generator, sources: int = 12, flows: int = 30) -> Table:
    """Flows of three packets whose lengths hardly tell attacks from benign traffic; sources differ."""
    rows = []
    for source in range(sources):
        shift = rng.normal(0, 40)
        for flow in range(flows * (5 if source == 0 else 1)):
            kind = ("benign", "benign", "flood", "scan")[flow % 4]
            length = 300 + shift + {"benign": 0, "flood": 150, "scan": 60}[kind]
            rows += [
                (f"c{source}", f"{source} {flow}", kind, f"s{source}", int(rng.normal(length, 50)), packet)
                for packet in range(3)
            ]
    schema = ["capture", "flow", "label", "source", "length", "time_ns"]
    made = pl.DataFrame(rows, schema=schema, orient="row").with_columns(status=0, ttl=pl.col("length") % 7)
    return Table(made, FeatureSet("x", ["length", "ttl"]))


@pytest.fixture(scope="module")
def table() -> Table:
    return drawn(np.random.default_rng(1))


def test_margins_are_those_of_the_obvious_loop() -> None:
    rng = np.random.default_rng(0)
    rows = pl.DataFrame(
        {
            "capture": [f"c{n % 7}" for n in range(200)],
            "unit": [f"s{n % 7 // 2}" for n in range(200)],
            "label": ["benign" if n % 3 else "flood" if n % 2 else "scan" for n in range(200)],
            "attack": [n % 3 == 0 for n in range(200)],
            **{str(after): rng.integers(-50, 900, 200) * 10**6 for after in COMPARED},
        }
    )
    short = pl.int_range(pl.len()) % 11 == 0  # flows without three verdicts
    rows = rows.with_columns(pl.when(short).then(np.iinfo(np.int64).min).otherwise("3").alias("3"))
    benign, attack = (rows.filter(pl.col("attack") == kind) for kind in (False, True))

    def lost(part: pl.DataFrame, column: str) -> NDArray[np.float64]:
        """By each margin, in thousandths."""
        scores = [own[column].to_numpy()[:, None] for _, own in part.group_by("capture")]
        of = [(each > np.arange(901) * 1e6).mean(axis=0) for each in scores]
        return np.asarray(np.mean(of, axis=0))

    for point in out_of_fold.points(rows):
        column = str(point.after)
        assert point.by == np.flatnonzero(lost(benign, column) <= point.wish + 1e-9)[0]
        assert point.loss == pytest.approx(lost(benign, column)[int(point.by)])
        elsewhere = 0.0
        for (unit,), own in benign.group_by("unit"):
            others = benign.filter(pl.col("unit") != unit)
            by = np.flatnonzero(lost(others, column) <= point.wish + 1e-9)[0]
            elsewhere += lost(own, column)[by] * own["capture"].n_unique() / benign["capture"].n_unique()
        assert point.elsewhere == pytest.approx(elsewhere)
        caught = attack[column] > point.by * 1e6
        assert point.recall == pytest.approx(caught.mean())
        by_unit = attack.with_columns(caught=caught).group_by("label", "unit").agg(pl.col("caught").mean())
        families = by_unit.group_by("label").agg(pl.col("caught").mean())["caught"].mean()
        assert point.families == pytest.approx(families)


@pytest.mark.parametrize(
    "estimator",
    [
        DecisionTreeClassifier(max_depth=4),
        RandomForestClassifier(7, max_depth=4, random_state=0),
        ExtraTreesClassifier(7, max_depth=4, random_state=0),
        HistGradientBoostingClassifier(max_iter=7, random_state=0),
    ],
)
@pytest.mark.parametrize("classes", [2, 3])
def test_scores_are_a_multiple_of_the_integers(table: Table, estimator: Any, classes: int) -> None:
    rows = table.frame.select("length", "ttl").to_numpy()
    labels = table.frame["label"].replace_strict({"benign": 0, "flood": 1, "scan": classes - 1}).to_numpy()
    fitted = estimator.fit(rows, labels)
    said = out_of_fold.scores(fitted, rows, classes)
    assert said is not None and said.shape == (len(rows), classes)
    model = import_model(fitted, margin=True).model
    factor = out_of_fold.units(model, rows, said)
    assert factor is not None and factor > 1000
    assert out_of_fold.units(model, rows, said**3) is None, "a curve is no multiple"


def test_a_class_that_a_fold_has_not_met_has_no_score(table: Table) -> None:
    rows, labels = table.frame.select("length", "ttl").to_numpy(), np.zeros(len(table.frame), np.int64)
    labels[::2] = 2
    for estimator in (RandomForestClassifier(3), HistGradientBoostingClassifier(max_iter=3)):
        said = out_of_fold.scores(estimator.fit(rows, labels), rows, 4)
        assert said is not None and (said[:, [0, 2]].max(axis=1) >= said[:, [1, 3]].max(axis=1)).all()
    named = RandomForestClassifier(3).fit(rows, np.where(labels == 0, "benign", "attack"))
    assert out_of_fold.scores(named, rows, 2) is None


@pytest.mark.parametrize("estimator", ["forest", "boosting", "tree"])
def test_a_margin_needs_no_table(table: Table, estimator: str) -> None:
    training = train(table, estimator, depth=4, trees=8, two_classes=True, refit=True, seeds=2)
    compiled = ww.compile(training, max_benign_loss=0.05)
    point = (compiled.bundle.manifest.fidelity or {})["operating_point"]
    assert point["how"] == "each source by a model that has not seen it; a mean over 12 captures"
    assert point["by"] > 0 and point["loss"] <= 0.05 < point["loss_before"]
    assert 0 < point["recall"] < point["recall_before"]
    assert [one["after"] for one in point["compared"]] == [2, 3]
    careful = ww.compile(training, max_benign_loss=0.05, after=2)
    assert (careful.bundle.manifest.fidelity or {})["operating_point"]["after"] == 2


def test_a_wish_between_two_steps_takes_the_lower_one(table: Table) -> None:
    training = train(table, "forest", depth=4, two_classes=True, seeds=1)
    model = import_model(training.estimator, classes=training.classes, margin=True).model
    by = {wish: out_of_fold.chosen(training.facts, model, None, wish, 1) for wish in (0.05, 0.07, 0.1)}
    assert all(by.values()) and by[0.05].by == by[0.07].by >= by[0.1].by  # type: ignore[union-attr]
    assert out_of_fold.chosen(training.facts, model, None, 0.05, 4) is None
    assert out_of_fold.chosen(training.facts, model.favour(1), None, 0.05, 1) is None, "another model"
    with pytest.raises(InputError, match="must be a share"):
        out_of_fold.chosen(training.facts, model, None, 1.5, 1)


def test_another_table_says_more_of_where_it_comes_from(table: Table) -> None:
    training = train(table, "forest", depth=4, two_classes=True, seeds=1)
    other = drawn(np.random.default_rng(2), sources=4)
    point = ww.compile(training, table=other, max_benign_loss=0.05).bundle.manifest.fidelity or {}
    assert "each source by a model" not in point["operating_point"]["how"]


def test_what_has_no_such_scores_keeps_no_margins(table: Table) -> None:
    for estimator in (MLPClassifier((4,), max_iter=5), LogisticRegression()):
        training = train(table, estimator, two_classes=True, folds=2, seeds=1)
        recorded = training.facts.get(out_of_fold.KEY)
        assert recorded is None or isinstance(estimator, LogisticRegression)
    assert out_of_fold.KEY not in train(table, "forest", two_classes=True, folds=0).facts


def test_a_damaged_record_is_refused(table: Table) -> None:
    training = train(table, "tree", depth=3, two_classes=True, seeds=1)
    model = import_model(training.estimator, classes=training.classes, margin=True).model
    for damaged in ({"points": [{}]}, {}, {**training.facts[out_of_fold.KEY], "more": 1}):
        with pytest.raises(InputError, match="damaged margins"):
            out_of_fold.chosen({out_of_fold.KEY: damaged}, model, None, 0.05, 1)


def test_few_sources_lose_little_more_than_was_asked() -> None:
    """By the margin that a training keeps, sources that nobody has seen lose about what was asked for."""
    lost = []
    for seed in range(8):
        rng = np.random.default_rng(100 + seed)
        known, met = drawn(rng), drawn(rng)
        training = train(known, "forest", depth=5, two_classes=True, refit=True, seeds=1)
        model = import_model(training.estimator, classes=training.classes, margin=True).model
        point = out_of_fold.chosen(training.facts, model, None, 0.1, 1)
        assert point is not None
        benign = met.frame.filter(pl.col("label") == "benign")
        said = model.favour(point.by).predict(benign.select("length", "ttl").to_numpy())[0]
        flows = benign.with_columns(flagged=said > 0).group_by("capture", "flow").agg(pl.col("flagged").any())
        lost.append(float(flows.group_by("capture").agg(pl.col("flagged").mean())["flagged"].mean()))  # type: ignore[arg-type]
    assert 0.03 < np.mean(lost) < 0.2


def test_points_are_plain_for_json(table: Table) -> None:
    training = train(table, "tree", depth=3, two_classes=True, seeds=1)
    recorded = training.facts[out_of_fold.KEY]
    assert len(recorded["points"]) == len(COMPARED) * len(WISHES)
    benign = table.frame.filter(pl.col("label") == "benign")
    assert recorded["benign"] == benign["flow"].n_unique()
    assert json.loads(json.dumps(recorded)) == recorded
