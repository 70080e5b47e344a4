# SPDX-License-Identifier: Apache-2.0
"""Splits without leaks, weights, and reports that add up."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, confusion_matrix, precision_recall_fscore_support

from tests.examples import examples
from wirewise.datasets import Table
from wirewise.errors import InputError
from wirewise.evaluate import ESTIMATORS, Report, class_names, grouped_split, matrix, train
from wirewise.evaluate.classes import counted_as
from wirewise.evaluate.train import BENIGN_ONLY
from wirewise.feature_sets import FeatureSet

FEATURES = FeatureSet.from_dict({"name": "two", "features": ["length", "count"]})


def table(rows: int = 600, seed: int = 0, classes: int = 3) -> Table:
    """Flows of four packets; the label follows from the features, but for some noise."""
    rng = np.random.default_rng(seed)
    length = rng.integers(40, 1500, rows)
    label = np.array(["benign", "flood", "scan"])[length * classes // 1500]
    return Table(
        pl.DataFrame(
            {
                "time_ns": np.arange(rows),
                "capture": pl.repeat("a", rows, eager=True),
                "packet": np.arange(1, rows + 1),
                "flow": [f"f{row // 4}" for row in range(rows)],
                "length": length,
                "count": rng.integers(1, 9, rows),
                "label": label,
                "status": np.zeros(rows, np.int32),
            }
        ),
        FEATURES,
    )


@examples(60)
@given(
    groups=st.lists(st.tuples(st.integers(1, 6), st.sampled_from("abc")), min_size=4, max_size=40),
    share=st.floats(0.05, 0.95),
    seed=st.integers(0, 9),
)
def test_no_group_is_on_both_sides(groups: list[tuple[int, str]], share: float, seed: int) -> None:
    flows = [(f"f{number}", label) for number, (size, label) in enumerate(groups) for _ in range(size)]
    frame = pl.DataFrame(flows, schema=["flow", "label"], orient="row")
    labels = [label for _, label in groups]
    if all(labels.count(label) < 2 for label in set(labels)):
        return
    learned, tested = grouped_split(frame, test_share=share, seed=seed)
    assert sorted([*learned, *tested]) == list(range(len(frame)))
    assert not set(frame["flow"][learned].to_list()) & set(frame["flow"][tested].to_list())
    for label in set(labels):  # each label is learned, and tested if it can be
        assert label in frame["label"][learned].to_list()
        if labels.count(label) > 1:
            assert label in frame["label"][tested].to_list()


def test_splits_can_be_repeated_and_cannot_be_empty() -> None:
    frame = table().frame
    first, again, other = (grouped_split(frame, seed=seed)[1].tolist() for seed in (1, 1, 2))
    assert first == again != other
    with pytest.raises(InputError, match="between 0 and 1"):
        grouped_split(frame, test_share=1.0)
    with pytest.raises(InputError, match="cannot be split"):
        grouped_split(pl.DataFrame({"flow": ["a", "b"], "label": ["x", "y"]}))


@examples(60)
@given(pairs=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=60))
def test_reports_are_scikit_learns(pairs: list[tuple[int, int]]) -> None:
    truth, predicted = np.array(pairs).T
    report = Report.of(truth, predicted, ["a", "b", "c", "d"])
    assert report.confusion == confusion_matrix(truth, predicted, labels=range(4)).tolist()
    assert report.accuracy == pytest.approx(accuracy_score(truth, predicted))
    expected = precision_recall_fscore_support(truth, predicted, labels=range(4), zero_division=0)
    there = np.bincount(truth, minlength=4) > 0
    for number, row in enumerate(report.classes):
        got = (row.precision, row.recall, row.f1, row.packets)
        assert got == pytest.approx(tuple(column[number] for column in expected))
    assert report.macro_f1 == pytest.approx(float(np.mean(expected[2][there])))
    assert report.absent == [name for name, present in zip("abcd", there, strict=True) if not present]
    assert Report.sum([report, report]).confusion == (2 * np.array(report.confusion)).tolist()


@examples(60)
@given(pairs=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3)), min_size=1, max_size=60))
def test_what_a_class_that_no_label_names_finds_of_attack_is_right(pairs: list[tuple[int, int]]) -> None:
    truth, predicted = np.array(pairs).T
    names = ["benign", "attack", "flood", "unknown"]
    report = Report.of(truth, predicted, names)
    as_attack = np.where(predicted == 2, 1, predicted)
    assert report.accuracy == pytest.approx(accuracy_score(truth, as_attack))
    expected = precision_recall_fscore_support(truth, as_attack, labels=range(4), zero_division=0)
    for number in (0, 1, 3):
        row = report.classes[number]
        assert (row.precision, row.recall, row.f1) == pytest.approx(
            tuple(column[number] for column in expected[:3])
        )
    floods = truth[predicted == 2]
    assert report.classes[2].precision == pytest.approx(floods.mean() if len(floods) else 0)
    assert report.confusion == confusion_matrix(truth, predicted, labels=range(4)).tolist()
    assert report.nameless == ["flood"] and "unknown" in report.absent
    assert counted_as(set(truth.tolist()), names)[predicted].tolist() == as_attack.tolist()


def test_a_class_that_a_label_names_finds_its_own_alone() -> None:
    report = Report.of(np.array([0, 1, 1, 2]), np.array([0, 1, 2, 2]), ["benign", "attack", "flood"])
    assert report.accuracy == 0.75 and report.nameless == []
    report = Report.of(np.array([0, 1, 1]), np.array([0, 1, 2]), ["benign", "scan", "flood"])
    assert report.accuracy == pytest.approx(2 / 3) and report.nameless == [], "no label means any attack"


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name != BENIGN_ONLY])
def test_every_estimator_learns_and_the_report_is_about_it(name: str) -> None:
    data = table()
    trained = train(data, name, trees=5, depth=6)
    assert trained.classes == ["benign", "flood", "scan"]
    assert trained.report.accuracy > 0.9
    _, tested = grouped_split(data.frame)
    assert trained.report.packets == len(tested)
    predicted = trained.estimator.predict(matrix(data)[tested])
    truth = [trained.classes.index(label) for label in data.frame["label"][tested].to_list()]
    assert trained.report.accuracy == pytest.approx(float(np.mean(predicted == truth)))


def test_refitting_learns_from_all_rows_and_reports_the_same() -> None:
    data = table()
    noisy = np.random.default_rng(1).permutation(data.frame["label"].to_numpy())
    data = Table(data.frame.with_columns(label=pl.Series(noisy)), FEATURES)
    partly, fully = (train(data, "tree", depth=32, refit=refit) for refit in (False, True))
    assert partly.report == fully.report
    truth = [partly.classes.index(label) for label in data.frame["label"].to_list()]
    right = [float(np.mean(t.estimator.predict(matrix(data)) == truth)) for t in (partly, fully)]
    assert right[1] > 0.95 > right[0]


def test_a_heavier_benign_is_stopped_less() -> None:
    data = table(seed=3)
    noise = np.random.default_rng(1).random(len(data.frame)) < 0.3
    labels = np.where(noise, "benign", data.frame["label"].to_numpy())
    noisy = Table(data.frame.with_columns(label=pl.Series(labels)), FEATURES)
    recall = [
        train(noisy, "tree", depth=4, class_weight=weight).report.classes[0].recall
        for weight in (None, {"benign": 20.0})
    ]
    assert recall[1] > recall[0]
    balanced = train(noisy, "tree", depth=4, class_weight="balanced").report
    assert balanced.packets > 0


def test_unlabelled_and_unclassified_rows_do_not_matter() -> None:
    data = table()
    more = data.frame.with_columns(label=pl.lit(""), flow=pl.lit("x") + pl.col("flow"))
    broken = data.frame.with_columns(
        status=pl.lit(3, pl.Int32), length=pl.lit(None, pl.Int64), flow=pl.lit("y") + pl.col("flow")
    )
    grown = Table(pl.concat([data.frame, more, broken]), FEATURES)
    assert train(grown, "tree").report == train(data, "tree").report


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"estimator": "woods"}, "is not known"),
        ({"depth": 0}, "must be 1 to 32"),
        ({"class_weight": {"bening": 2}}, "names no class"),
        ({"class_weight": {"benign": 0}}, "must be positive"),
        ({"class_weight": "even"}, "is not known"),
        ({"test_share": 0}, "between 0 and 1"),
    ],
)
def test_wrong_arguments_are_refused(change: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        train(table(), **change)  # type: ignore[arg-type]


def test_one_class_cannot_be_learned() -> None:
    data = table()
    for label, says in (("benign", "it has only 'benign'"), ("", "it has none")):
        with pytest.raises(InputError, match=says):
            train(Table(data.frame.with_columns(label=pl.lit(label)), FEATURES))


def test_benign_is_class_0() -> None:
    assert class_names(["scan", "benign", "abuse", "scan"]) == ["benign", "abuse", "scan"]
