# SPDX-License-Identifier: Apache-2.0
"""Splits by capture and time, cross-validation over captures, and what makes a report doubtful."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from wirewise.datasets import Table
from wirewise.errors import InputError
from wirewise.evaluate import Split, folds, split, train
from wirewise.evaluate.leaks import separating
from wirewise.feature_sets import FeatureSet

FEATURES = FeatureSet.from_dict({"name": "two", "features": ["length", "count"]})
ROWS = 40  # of a capture

# Captures, each with the labels of its flows.
captures = st.lists(st.lists(st.sampled_from("abcd"), min_size=1, max_size=4), min_size=2, max_size=12)


def frame_of(labels_of: list[list[str]]) -> pl.DataFrame:
    rows = [
        (f"c{capture}", f"c{capture}f{flow}", label, 100 * capture + flow)
        for capture, labels in enumerate(labels_of)
        for flow, label in enumerate(labels)
        for _ in range(2)
    ]
    return pl.DataFrame(rows, schema=["capture", "flow", "label", "time_ns"], orient="row")


def assert_apart(frame: pl.DataFrame, parts: Split) -> None:
    learn, test = frame[parts.learn], frame[parts.test]
    assert sorted([*parts.learn, *parts.test]) == list(range(len(frame)))
    assert not set(learn["flow"]) & set(test["flow"])
    shared = ~pl.col("label").is_in(list(parts.alone))
    assert not set(learn.filter(shared)["capture"]) & set(test.filter(shared)["capture"])


@examples(100)
@given(captures, st.floats(0.05, 0.95), st.integers(0, 9))
def test_no_capture_is_on_both_sides_and_no_class_is_lost(
    labels_of: list[list[str]], share: float, seed: int
) -> None:
    frame = frame_of(labels_of)
    try:
        parts = split(frame, test_share=share, seed=seed)
    except InputError:
        return
    assert set(frame["label"][parts.learn]) == set(frame["label"])
    if parts.by == "capture":
        assert_apart(frame, parts)


def test_no_host_is_on_both_sides() -> None:
    flows = [(host, label, flow) for host in range(1, 9) for label in "ab" for flow in range(3)]
    rows = [
        ("c", f"6 10.0.0.{host}|{1000 + flow + 10 * (label == 'a')} 10.0.1.1|80", label, flow, sender)
        for host, label, flow in flows
        for sender in (1, 2)  # the answer belongs to who asked
    ]
    frame = pl.DataFrame(rows, schema=["capture", "flow", "label", "time_ns", "sender"], orient="row")
    host = frame["flow"].str.extract(r"10\.0\.0\.(\d)")
    for parts in (split(frame, "host"), *folds(frame, "host", 3)):
        assert parts.by == "host" and not parts.alone
        assert not set(host[parts.learn]) & set(host[parts.test])
    # All from one host: its flows are split.
    served = frame.with_columns(sender=pl.lit(2))
    assert split(served, "host").alone == ("a", "b")
    with pytest.raises(InputError, match="no column 'sender'"):
        split(frame.drop("sender"), "host")
    report = train(
        Table(frame.with_columns(length=pl.int_range(pl.len()), count=1, status=0), FEATURES),
        "tree", group="host", depth=2,
    )  # fmt: skip
    assert report.facts["split"] == "by host"


@examples(100)
@given(captures, st.integers(2, 6), st.integers(0, 9))
def test_folds_test_every_row_once(labels_of: list[list[str]], count: int, seed: int) -> None:
    frame = frame_of(labels_of)
    parts = list(folds(frame, "capture", count, seed=seed))
    for part in parts:
        assert_apart(frame, part)
    if parts:
        assert sorted(row for part in parts for row in part.test) == list(range(len(frame)))


def test_a_label_of_one_capture_is_kept_apart_where_its_class_has_others() -> None:
    """Benign against attack, `b` comes from one capture only, and `c` is the attack to learn from."""
    frame = frame_of([["a", "a"], ["a", "c"], ["b", "b"], ["c", "a"]])
    attack = (frame["label"] != "a").cast(pl.Int64).to_numpy()
    for part in folds(frame, "capture", 4, classes=attack):
        assert not part.alone
        assert_apart(frame, part)
    by_label = list(folds(frame, "capture", 4))
    assert by_label and all(part.alone == ("b",) for part in by_label)
    alone = folds(
        frame_of([["a"], ["a"], ["b", "c"]]), "capture", 2, classes=np.array([0, 0, 0, 0, 1, 1, 1, 1])
    )
    assert [part.alone for part in alone] == [("b", "c"), ("b", "c")], "the class has one capture"


def test_the_default_is_by_capture_where_a_class_has_two() -> None:
    assert split(frame_of([["a", "a"], ["b", "b"]])).by == "flow"
    mixed = split(frame_of([["a"], ["a"], ["b", "b", "b"]]))
    assert mixed.by == "capture" and mixed.alone == ("b",)
    with pytest.raises(InputError, match="there are: source, capture, host, time, flow"):
        split(frame_of([["a"], ["a"]]), "port")


def test_by_time_the_later_flows_of_each_label_are_tested() -> None:
    frame = frame_of([["a"] * 5 + ["b"] * 5, ["a"] * 5 + ["b"] * 5])
    parts = split(frame, "time", test_share=0.3)
    for label in "ab":
        began = frame.with_row_index().filter(pl.col("label") == label)
        learn, test = (
            began.filter(pl.col("index").is_in(rows.tolist()))["time_ns"]
            for rows in (parts.learn, parts.test)
        )
        assert learn.max() < test.min() and len(test) == 6  # type: ignore[operator]


def table(place: int) -> Table:
    """Eight captures of two classes told apart by `count`, or by `length` if it says the capture's place."""
    rng = np.random.default_rng(0)
    parts = []
    for capture in range(8):
        label = ("benign", "flood")[capture % 2]
        noise = rng.integers(0, 8, ROWS)
        parts.append(
            pl.DataFrame(
                {
                    "time_ns": np.arange(ROWS),
                    "capture": [f"c{capture}"] * ROWS,
                    "packet": np.arange(1, ROWS + 1),
                    "flow": [f"c{capture}f{row}" for row in range(ROWS)],
                    "length": capture * place + noise,
                    "count": rng.integers(0, 8, ROWS) + 3 * (label == "flood"),
                    "label": [label] * ROWS,
                    "status": np.zeros(ROWS, np.int32),
                }
            )
        )
    return Table(pl.concat(parts), FEATURES)


def test_a_feature_that_names_the_capture_shows_as_the_difference_between_the_splits() -> None:
    told = train(table(place=100), "tree")
    assert told.split.by == "capture" and told.by_flow is not None and told.folds is not None
    assert told.by_flow.accuracy == 1.0 and told.report.accuracy < 0.9
    assert told.folds.report.packets == 3 * 8 * ROWS and told.folds.report.accuracy < 0.9


def test_a_feature_that_tells_the_classes_apart_alone_is_said() -> None:
    honest = table(place=0)
    told = Table(honest.frame.with_columns(length=5 * (pl.col("label") == "flood").cast(pl.Int64)), FEATURES)
    assert any("one feature alone" in doubt and "length (100.0 %)" in doubt for doubt in train(told).doubts)


def test_rows_seen_twice_rare_classes_and_lone_captures_are_said() -> None:
    honest = table(place=0)
    assert not [doubt for doubt in train(honest, "tree").doubts if "alone" in doubt or "only" in doubt]
    same = Table(honest.frame.with_columns(length=pl.lit(1), count=pl.lit(1)), FEATURES)
    assert any("equal, feature by feature" in doubt for doubt in train(same, "tree").doubts)
    few = pl.concat([honest.frame[:1]] * 2).with_columns(
        capture=pl.lit("c9"), label=pl.lit("odd"), flow=pl.Series(["x", "y"])
    )
    rare = train(Table(pl.concat([honest.frame, few]), FEATURES), "tree")
    assert rare.split.alone == ("odd",)
    assert any("rare classes: odd (2 rows)" in doubt for doubt in rare.doubts)
    assert any("of one capture only: odd; their flows were split" in doubt for doubt in rare.doubts)


def test_features_that_separate_alone_are_the_ones_that_do() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 3000)
    rows = np.column_stack([rng.integers(0, 99, 3000), labels * 7, labels % 2]).astype(np.int64)
    assert separating(rows, labels, ["noise", "label", "half"]) == [("label", 1.0)]


def test_no_source_is_on_both_sides() -> None:
    frame = frame_of([["a"], ["b"], ["a", "b"]] * 4)
    names = {name: f"owner/{int(name.strip('c')) % 4}" for name in frame["capture"].unique()}
    named = frame.with_columns(source=pl.col("capture").replace_strict(names))
    assert split(named).by == "source" and split(frame).by == "capture"
    for part in (split(named), *folds(named, "source", 3)):
        learned, tested = (set(named["source"].gather(rows)) for rows in (part.learn, part.test))
        assert not learned & tested and tested
    with pytest.raises(InputError, match="does not say where its captures come from"):
        split(frame, "source")
    with pytest.raises(InputError, match="does not say where its captures come from"):
        split(frame.with_columns(source=pl.lit("")), "source")
