# SPDX-License-Identifier: Apache-2.0
"""A model of its own for flows that last: `wirewise train --late-from`."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import wirewise as ww
from wirewise import FeatureSet
from wirewise.cli import main
from wirewise.datasets import Table
from wirewise.errors import InputError
from wirewise.evaluate import matrix, out_of_fold, train
from wirewise.evaluate.lesson import Recipe
from wirewise.evaluate.moments import At
from wirewise.evaluate.operating_point import COMPARED, LateMargin, OperatingPoint
from wirewise.evaluate.per_flow import usual
from wirewise.evaluate.phases import EVERY, ROWS, Late, Phase, Phases, packets_feature, start_of
from wirewise.feature_sets import Feature
from wirewise.formats.bundle import Bundle
from wirewise.importers import import_model
from wirewise.models import TreeEnsemble, random_tree_ensemble
from wirewise.models.tree import Votes

START = 8
Command = Callable[..., str]
COUNTED = Feature.parse({"name": "packets", "is": "count"})
FEATURES = FeatureSet("x", [Feature.parse("length"), COUNTED, Feature.parse("ttl")])
LATE = Late(START, trees=5, depth=4)


def conversations(rng: np.random.Generator, sources: int = 8, flows: int = 12) -> Table:
    """Flows of 3 to 20 packets. A scan shows from its first packet on, a tunnel by the TTL of late ones."""
    rows = []
    for source in range(sources):
        for flow in range(flows):
            kind = ("benign", "scan", "tunnel")[flow % 3]
            for packet in range(1, 4 if kind == "scan" else 21):
                length = rng.normal(400 if kind == "scan" else 250, 60)
                ttl = rng.normal(90 if kind == "tunnel" and packet >= START else 60, 8)
                rows.append(
                    (f"c{source}", f"{source} {flow}", kind, f"s{source}", int(length), packet, int(ttl))
                )
    schema = ["capture", "flow", "label", "source", "length", "packets", "ttl"]
    made = pl.DataFrame(rows, schema=schema, orient="row")
    return Table(made.with_columns(status=0, time_ns=pl.int_range(pl.len()) * 10**6), FEATURES)


@pytest.fixture(scope="module")
def table() -> Table:
    return conversations(np.random.default_rng(4))


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs `wirewise` in this process; gives what it printed."""

    def run(*arguments: object, code: int = 0) -> str:
        monkeypatch.setattr("sys.argv", ["wirewise", *map(str, arguments)])
        capsys.readouterr()
        ended = 0
        try:
            main()
        except SystemExit as end:
            ended = int(end.code or 0)
        said = capsys.readouterr()
        assert ended == code, said
        return said.out if code == 0 else said.err

    return run


def trained(table: Table, estimator: str = "forest", **options: Any) -> Any:
    return train(
        table, estimator, trees=4, depth=4, group="source", folds=4, seeds=2, late=LATE, at=At((3,)),
        **options,
    )  # fmt: skip


# -- what each of the two learns, and judges


def test_each_learns_from_what_it_judges() -> None:
    phase = Phase("packets", START, late=True)
    first, late = Recipe(first=3, flows=2, alike="capture").of_phases(phase)
    assert (first.first, late.first) == (3, None) and late.flows == first.flows == 2
    frame = pl.DataFrame({"packets": range(1, 500)})
    assert Phase("packets", START, late=False).judged(frame).tolist() == [n < START for n in range(1, 500)]
    learned = [START + EVERY * n for n in range(ROWS)]
    assert frame.filter(pl.Series(phase.learned(frame)))["packets"].to_list() == learned
    assert phase.judged(frame).tolist() == [n >= START for n in range(1, 500)]


@pytest.mark.parametrize("estimator", ["tree", "forest", "extra-trees", "boosting"])
@pytest.mark.parametrize("two", [True, False])
def test_the_integers_say_what_the_one_in_charge_says(table: Table, estimator: str, two: bool) -> None:
    if estimator == "boosting" and not two:
        with pytest.raises(InputError, match="has met 2 of 3 classes"):
            import_model(trained(table, estimator).estimator)
        return
    training = trained(table, estimator, two_classes=two, refit=True)
    fitted, rows = training.estimator, matrix(table)
    assert isinstance(fitted, Phases)
    late = rows[:, 1] >= START
    alone = np.where(late, fitted.late.predict(rows), fitted.first.predict(rows))
    assert (fitted.predict(rows) == alone).all() and 0 < late.mean() < 1
    model = import_model(fitted, classes=training.classes, margin=True).model
    assert isinstance(model, TreeEnsemble)
    said, _ = model.predict(rows)
    assert (said == alone).all()
    assert [model.predict_one(row)[0] for row in rows[:50].tolist()] == said[:50].tolist()
    units = out_of_fold.units(model, rows, fitted.decision_function(rows))
    assert units is not None and units > 1000, "one unit for both"
    assert training.facts["late"] == {
        "feature": "packets", "start": START, "trees": 5, "depth": 4, "leaf": None
    }  # fmt: skip


def test_nodes_have_the_numbers_that_the_library_gave_them(table: Table) -> None:
    fitted = trained(table, two_classes=True).estimator
    imported = import_model(fitted)
    trees = [*fitted.first.estimators_, *fitted.late.estimators_]
    for tree, ids, own in zip(imported.model.trees, imported.node_ids, trees, strict=True):  # type: ignore[union-attr]
        for feature, node in zip(tree.feature, ids, strict=True):
            if node >= 0 and feature >= 0:
                assert own.tree_.feature[node] == feature
        assert ids[0] == -1 and tree.feature[0] == 1 and tree.threshold[0] == START - 1


@pytest.mark.parametrize("votes", ["sum", "majority"])
def test_a_margin_from_some_value_on(votes: Votes) -> None:
    rng = np.random.default_rng(2)
    for n_classes in (2, 3, 5):
        for seed in range(6):
            model = random_tree_ensemble(
                np.random.default_rng(seed), n_features=3, n_classes=n_classes, votes=votes
            )
            if votes == "majority":
                with pytest.raises(InputError, match="nothing says how sure"):
                    model.favour_from(1, 5, 3)
                continue
            rows = rng.integers(-20, 20, (200, 3))
            by = int(rng.integers(1, 50))
            late = rows[:, 1] >= 5
            expected = np.where(late, model.favour(by).predict(rows)[0], model.predict(rows)[0])
            assert (model.favour_from(1, 5, by).predict(rows)[0] == expected).all()
            point = OperatingPoint(0.1, 7, 1, 1, 0, None, 0, 0, 0, late=LateMargin(1, 5, by))
            both = np.where(late, model.favour(by).predict(rows)[0], model.favour(7).predict(rows)[0])
            assert (point.set(model).predict(rows)[0] == both).all()
            with pytest.raises(InputError, match="leave no room for a margin"):
                model.favour_from(1, 5, 2**31 - 1)


# -- margins


def test_each_phase_spends_its_own_part() -> None:
    """Against the obvious loop over margins of both."""
    rng = np.random.default_rng(0)
    n = 400
    never = np.iinfo(np.int64).min
    rows = pl.DataFrame(
        {
            "capture": [f"c{i % 8}" for i in range(n)],
            "unit": [f"s{i % 4}" for i in range(n)],
            "label": ["benign" if i % 5 else "scan" if i % 2 else "tunnel" for i in range(n)],
            "attack": [i % 5 == 0 for i in range(n)],
            **{str(after): rng.integers(0, 400, n) * 10**6 for after in COMPARED},
            **{f"late {after}": rng.integers(0, 400, n) * 10**6 for after in COMPARED},
        }
    )
    short = pl.int_range(pl.len()) % 3 > 0  # most flows do not last
    rows = rows.with_columns(pl.when(short).then(never).otherwise(pl.col("^late .*$")).name.keep())
    benign = rows.filter(~pl.col("attack"))

    def least(part: pl.DataFrame, column: str, wish: float) -> int:
        """The least margin, in millions, at which a mean over captures of what is lost is within the wish."""
        for by in range(401):
            over = part.select("capture", over=pl.col(column) > by * 10**6)
            if over.group_by("capture").agg(pl.col("over").mean())["over"].mean() <= wish + 1e-12:  # type: ignore[operator]
                return by
        raise AssertionError

    for point in out_of_fold.points(rows):
        shares = (1 - out_of_fold.LATE_SHARE, out_of_fold.LATE_SHARE)
        wishes = [point.wish * share if point.wish < 1 else 1.0 for share in shares]
        columns = (str(point.after), f"late {point.after}")
        assert point.late is not None
        assert [point.by, point.late] == [
            least(benign, name, wish) for name, wish in zip(columns, wishes, strict=True)
        ]
        over = (pl.col(columns[0]) > point.by * 10**6) | (pl.col(columns[1]) > point.late * 10**6)
        lost = benign.select("capture", over=over).group_by("capture").agg(pl.col("over").mean())["over"]
        assert point.loss == pytest.approx(lost.mean())
        assert point.loss <= point.wish + 1e-9
        assert point.recall == pytest.approx(rows.filter("attack").select(over.mean()).item())


def test_flows_have_a_margin_in_each_phase(table: Table) -> None:
    said = np.random.default_rng(1).normal(size=(len(table.frame), 2)).round(3)
    truth = (table.frame["label"] != "benign").cast(pl.Int64).to_numpy()
    late = table.frame["packets"].to_numpy() >= START
    found = out_of_fold.flows(table.frame, truth, said, late)
    lead = table.frame.with_columns(lead=pl.Series(np.rint(said * 1e6)[:, 1] - np.rint(said * 1e6)[:, 0]))
    for row in found.iter_rows(named=True):
        own = lead.filter((pl.col("flow") == row["flow"]) & (pl.col("capture") == row["capture"]))
        first, second = (
            own.filter(mine)["lead"].max() for mine in (pl.col("packets") < START, pl.col("packets") >= START)
        )
        assert row["1"] == first and row["label"] == own["label"][0]
        assert row["late 1"] == (np.iinfo(np.int64).min if second is None else second)
    assert found["capture"].n_unique() * 12 == len(found)


def test_a_wish_holds_for_both(table: Table) -> None:
    training = trained(table, two_classes=True, refit=True)
    imported = import_model(training.estimator, classes=training.classes, margin=True)
    point = out_of_fold.chosen(training.facts, imported.model, None, 0.1, 1)
    assert point and point.late and (point.late.feature, point.late.start) == (1, START)
    assert point.by != point.late.by
    set_to = point.set(imported.model)
    rows = matrix(table)
    late = rows[:, 1] >= START
    for mine, by in ((~late, point.by), (late, point.late.by)):
        assert (set_to.predict(rows[mine])[0] == imported.model.favour(by).predict(rows[mine])[0]).all()
    # As JSON, it is the same; damaged, it is an error.
    facts = json.loads(json.dumps(training.facts))
    assert out_of_fold.chosen(facts, imported.model, None, 0.1, 1) == point
    for damage in ([1], [-1, 5], ["packets", 5], [1000, 5], [1, 0]):
        facts[out_of_fold.KEY]["phases"] = damage
        with pytest.raises(InputError, match="damaged margins"):
            out_of_fold.chosen(facts, imported.model, None, 0.1, 1)


def test_a_late_model_finds_what_shows_late(table: Table) -> None:
    crossed = {
        late: train(
            table,
            "forest",
            trees=6,
            depth=5,
            two_classes=True,
            recipe=Recipe(first=4),
            group="source",
            folds=4,
            seeds=2,
            late=late,
        ).folds
        for late in (None, LATE)
    }
    alone, both = (of for of in crossed.values())
    assert alone and both
    assert not alone.late and both.late["tunnel"] > 0.9 and "scan" not in both.late, "scans do not last"
    assert both.by_packet["tunnel"][16] > 0.8 > 0.5 > alone.by_packet["tunnel"][16]
    assert both.by_packet["scan"][3] == pytest.approx(alone.by_packet["scan"][3], abs=0.1)


# -- what cannot be


@pytest.mark.parametrize(
    "given, rule",
    [
        ({"estimator": "mlp"}, "is of trees"),
        ({"teacher": "forest"}, "teaches one model"),
        ({"late": Late(500)}, "no flow that lasts to packet 500"),
    ],
)
def test_what_cannot_have_a_late_model(table: Table, given: dict[str, Any], rule: str) -> None:
    asked = {"estimator": "forest", "late": LATE, **given}
    with pytest.raises(InputError, match=rule):
        train(table, folds=0, **asked)


@pytest.mark.parametrize("start", [-1, 0, 1, 2**32, 10**30])
def test_it_starts_late(start: int) -> None:
    with pytest.raises(InputError, match="must start at packet 2 to 4,294,967,295"):
        Late(start)


@pytest.mark.parametrize(
    "said",
    [
        None,
        {},
        {"late": None},
        {"late": "30"},
        {"late": {"start": "30"}},
        {"late": {"start": True}},
        {"late": {"start": -1}},
        {"late": [30]},
    ],
)
def test_a_record_may_say_anything(said: dict[str, Any] | None) -> None:
    assert start_of(said) is None and start_of({"late": {"start": 30}}) == 30


@pytest.mark.parametrize(("late", "packets"), [(None, (5,)), (3, (3, 5)), (5, (5,)), (30, (5, 30))])
def test_flows_are_judged_there_too(late: int | None, packets: tuple[int, ...]) -> None:
    assert usual(late).packets == packets


def test_margins_where_no_flow_lasts(table: Table) -> None:
    short = table.frame.filter(pl.col("packets") < START)
    said, truth = np.zeros((len(short), 2)), (short["label"] != "benign").cast(pl.Int64).to_numpy()
    found = out_of_fold.flows(short, truth, said, np.zeros(len(short), np.bool_))
    assert (found["late 1"] == np.iinfo(np.int64).min).all() and (found["1"] == 0).all()


def test_a_feature_counts_the_packets(table: Table) -> None:
    assert packets_feature(FEATURES) == 1
    other = FeatureSet("y", ["length", "count(window=1s)", "count(by=source, window=1s)"])
    with pytest.raises(InputError, match="no feature that counts the packets"):
        packets_feature(other)


# -- the command line


def test_from_the_command_line(table: Table, tmp_path: Path, command: Command) -> None:
    rows, model, made = tmp_path / "t.parquet", tmp_path / "m.pkl", tmp_path / "m.wirewise"
    Table(table.frame.with_columns(packet=0, sender=0), FEATURES).write(rows)
    asked = ["train", rows, "--two-classes", "--by", "source", "--folds", 4, "--seeds", 1]
    late = ["--late-from", START, "--late-trees", 5, "--late-depth", 4, "--late-leaf", 2]
    said = command(*asked, *late, "--refit", "-o", model)
    assert f"{START} on" in said and "tunnel" in said
    said = command("compile", model, "--max-benign-loss", "10%", "-o", made)
    assert "late margin" in said and f"from packet {START} of a flow on" in said
    point = (Bundle.read(made).manifest.fidelity or {})["operating_point"]
    assert point["late"]["start"] == START and point["late"]["feature"] == 1
    found = json.loads(command("evaluate", model, rows, "--all-rows", "--json"))
    assert found["late"] == START
    kinds = {kind["name"]: kind["late"] for kind in found["verdict"]["kinds"]}
    assert kinds["tunnel"] > 0.8 and kinds["scan"] is None
    said = command("evaluate", model, rows, "--all-rows", "--report", tmp_path / "r.html")
    assert f"{START} on" in said and f"{START} on" in (tmp_path / "r.html").read_text()
    assert "add --late-from 30" in command(*asked, "--late-trees", 5, code=2)


def test_from_python(table: Table) -> None:
    training = ww.train(
        table, two_classes=True, folds=0, late_from=START, late_trees=3, late_depth=3, group="source"
    )
    kept = pickle.loads(pickle.dumps(training.estimator))
    assert set(kept.predict(matrix(table))) == {"benign", "attack"}
    compiled = ww.compile(training, verify="never")
    assert compiled.bundle.manifest.fidelity["agree"] == len(table.frame)  # type: ignore[index]
    assert ww.judge(compiled, table).late == START
