# SPDX-License-Identifier: Apache-2.0
"""Searching: what trials are judged by, and that a search is the same however it was worked on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import needs
from tests.examples import examples
from wirewise.datasets import Table
from wirewise.errors import InputError
from wirewise.evaluate.importance import chi_squared
from wirewise.evaluate.moments import At
from wirewise.evaluate.per_flow import per_flow
from wirewise.feature_sets import FeatureSet
from wirewise.importers import import_model
from wirewise.parallel import Workers
from wirewise.tuning import Limits, Settings, Space, search
from wirewise.tuning import costs as costs_of
from wirewise.tuning.elimination import features_worth
from wirewise.tuning.journal import Journal
from wirewise.tuning.run import Stopped
from wirewise.tuning.trial import BINS, HALF, Data, fit, judge, score, threshold

FEATURES = FeatureSet.from_dict({"name": "three", "features": ["length", "count", "ttl"]})
SPACE = Space(estimators=("tree", "extra-trees"), trees=(2, 4), depth=(2, 4), features=(3, 2))
CLASSES = ["benign", "flood", "scan"]


def table(captures: int = 12, flows: int = 6, packets: int = 4, seed: int = 0) -> Table:
    """Captures of three classes whose lengths overlap; `ttl` says nothing."""
    rng = np.random.default_rng(seed)
    rows = []
    for capture in range(captures):
        label = CLASSES[capture % 3]
        for flow in range(flows):
            for count in range(1, packets + 1):
                length = int(rng.normal({"benign": 300, "flood": 200, "scan": 60}[label], 60))
                rows.append((f"c{capture}", f"f{flow}", label, count, max(40, length), int(rng.integers(64))))
    frame = pl.DataFrame(
        rows, schema=["capture", "flow", "label", "count", "length", "ttl"], orient="row"
    ).with_columns(time_ns=pl.int_range(pl.len()))
    return Table.of(frame, FEATURES)


def numbered_table() -> Table:
    """As `table`, with packets numbered as those of captures are."""
    made = table()
    numbers = (pl.int_range(pl.len()).over("capture") + 1).alias("packet")
    return Table(made.frame.with_columns(numbers), made.feature_set)


def settings(**other: Any) -> Settings:
    return Settings(**{
        "estimator": "extra-trees", "depth": 4, "trees": 3, "leaf": 1, "hidden": (), "benign": "1",
        "features": 3, "packet": 2, "learn": "every", "weigh": "rows", **other,
    })  # fmt: skip


@examples(60)
@given(st.lists(st.lists(st.integers(0, BINS - 1), max_size=20), min_size=1, max_size=4), st.floats(0, 0.99))
def test_the_threshold_keeps_the_wish_and_is_the_least(benign: list[list[int]], wish: float) -> None:
    folds = [{"losing": np.bincount(fold, minlength=BINS).astype(float)} for fold in benign]
    every = np.array([bin_ for fold in benign for bin_ in fold])
    if not len(every):
        return
    at = threshold(folds, wish)
    assert at >= HALF and (every > at).sum() <= wish * len(every)
    assert at == HALF or (every > at - 1).sum() > int(wish * len(every))


@pytest.mark.parametrize("kind", ["tree", "extra-trees", "boosting"])
@pytest.mark.parametrize("learn", ["every", "first"])
def test_a_fold_is_judged_as_flows_are(kind: str, learn: str) -> None:
    """Without a wish, the histograms give what `per_flow` says of the same model's verdicts."""
    data = Data.of(table(), CLASSES, "capture", 3, 0)
    asked = settings(estimator=kind, learn=learn)
    found = score([judge(data, (asked, 1))], None)
    learned, test = data.folds[1]
    said = np.asarray(fit(data, asked, learned).predict(data.rows[test]), np.int64)
    flows = per_flow(table().frame[test], data.labels[test], said, CLASSES, at=At((2,)))
    assert found.f1 == pytest.approx(flows.attack.classes[1].f1)
    assert found.flagged == pytest.approx(1 - flows.attack.classes[0].recall)
    assert 0 < found.f1 < 1 and found.losing >= found.flagged


def summary(found: Any) -> Any:
    return [trial.to_dict() for trial in found.trials], found.best.number, found.apart


@pytest.mark.slow
def test_a_search_is_the_same_with_any_number_of_jobs_and_from_its_journal(tmp_path: Path) -> None:
    ask = {"space": SPACE, "trials": 5, "folds": 3, "seed": 3, "limits": Limits(benign_loss=0.1)}
    journal = tmp_path / "journal"
    first = search(table(), **ask, journal=journal)
    assert summary(search(table(), **ask, jobs=2)) == summary(first)
    assert summary(search(table(), **(ask | {"seed": 4}))) != summary(first)
    # Half of the journal, its last line cut off: what is missing is done again, and nothing else.
    text = journal.read_text()
    journal.write_text(text[: len(text) // 2])
    kept = len(journal.read_text().splitlines()) - 2
    assert summary(search(table(), **ask, journal=journal)) == summary(first)
    assert sorted(journal.read_text().splitlines()[1:]) == sorted(text.splitlines()[1:]) and kept > 2
    with pytest.raises(InputError, match="another seed"):
        search(table(), **(ask | {"seed": 4}), journal=journal)


def test_an_interrupted_search_goes_on_and_can_give_the_best_so_far(tmp_path: Path) -> None:
    ask: dict[str, Any] = {"space": SPACE, "trials": 4, "folds": 2, "method": "random", "seed": 1}

    def stop_late(done: int, total: int, best: Any) -> None:
        if best and done > 10:
            raise KeyboardInterrupt

    journal = tmp_path / "journal"
    with pytest.raises(Stopped) as stopped:
        search(table(), **ask, journal=journal, progress=stop_late, keep_best=True)
    assert stopped.value.best is not None and stopped.value.best.training.estimator is not None
    with pytest.raises(Stopped) as stopped:
        search(table(), **ask, progress=stop_late)
    assert stopped.value.best is None
    assert summary(search(table(), **ask, journal=journal)) == summary(search(table(), **ask))


def test_limits_hold_and_the_price_is_that_of_the_program() -> None:
    free = search(table(), SPACE, trials=6, folds=2, method="random")
    shown = [repr(free), *map(repr, free.trials)]
    assert shown[0].startswith(f"<Found in 6 trials: {free.best.settings.describe()}, F1 ")
    assert all(len(one) < 200 and "\n" not in one for one in shown)
    assert repr(free.best).startswith(f"<Trial {free.best.number}: ") and "instructions>" in repr(free.best)
    assert [trial.f1 for trial in free.pareto] == sorted((t.f1 for t in free.pareto), reverse=True)
    assert len({trial.instructions for trial in free.trials}) > 1
    most = sorted(trial.instructions or 0 for trial in free.trials)[2]
    tight = search(table(), SPACE, trials=6, folds=2, method="random", limits=Limits(instructions=most))
    assert {t.number for t in tight.trials if not t.rejected_because} == {
        t.number for t in free.trials if (t.instructions or 0) <= most
    }
    own = tight.training.table.feature_set
    names = tight.training.classes
    model = import_model(tight.training.estimator, classes=names).model
    assert costs_of.built_of(model, own).instructions == tight.best.instructions
    with pytest.raises(InputError, match="no model within the limits"):
        search(table(), SPACE, trials=3, folds=2, limits=Limits(instructions=1))


def test_what_was_kept_apart_has_no_say_in_the_search() -> None:
    whole = table()
    first = search(whole, SPACE, trials=4, folds=2)
    apart = first.training.split.test
    number = pl.int_range(pl.len())
    changed = whole.frame.with_columns(
        length=pl.when(number.is_in(pl.Series(apart).implode())).then(9999).otherwise(pl.col("length"))
    )
    second = search(Table(changed, FEATURES), SPACE, trials=4, folds=2)
    assert [t.to_dict() for t in first.trials] == [t.to_dict() for t in second.trials]
    assert first.apart != second.apart


@pytest.mark.slow
def test_optuna_asks_the_same_again() -> None:
    needs.package("optuna")
    ask = {"space": SPACE, "trials": 10, "folds": 2, "method": "optuna"}
    assert summary(search(table(), **ask)) == summary(search(table(), **ask))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"estimators": ("forrest",)}, "did you mean 'forest'"),
        ({"depth": (0, 3)}, "depth 0-3"),
        ({"trees": (9, 3)}, "trees 9-3"),
        ({"benign": ("heavy",)}, "heavy"),
        ({"packets": (0,)}, "packet numbers"),
        ({"learn": ("evry",)}, "did you mean 'every'"),
    ],
)
def test_a_space_says_what_is_wrong(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Space(**wrong)
    with pytest.raises(InputError, match="from 1 to the table's 3"):
        search(table(), Space(features=(4,)))


@pytest.mark.parametrize("content", ["", "no json\n", '{"wirewise-search": 2}\n', "[]\n", '{"a": 1}\n'])
def test_a_journal_that_is_none_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "file").write_text(content)
    with pytest.raises(InputError, match="is no journal"):
        Journal(tmp_path / "file", {})
    assert (tmp_path / "file").read_text() == content


def test_a_damaged_entry_is_named(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    search(table(), SPACE, trials=2, folds=2, journal=journal)
    head, *lines = journal.read_text().splitlines()
    broken = [json.dumps([json.loads(line)[0], {"attack": 7}]) for line in lines]
    journal.write_text("\n".join([head, *broken]) + "\n")
    with pytest.raises(InputError, match="damaged entry"):
        search(table(), SPACE, trials=2, folds=2, journal=journal)


def test_features_that_say_nothing_go_first_and_costs_count() -> None:
    found = features_worth(table(), eliminate=True, folds=3, benign_loss=0.2)
    assert found.features[0].name == "length" and found.steps[-1].feature_set.feature_names == ["length"]
    assert [len(step.feature_set.features) for step in found.steps] == [3, 2, 1]
    assert found.chi_squared["length"] > 0.4 > found.chi_squared["ttl"]
    sizes = [step.instructions for step in found.steps]
    assert sizes[0] > 0.99 * sizes[-1]  # the compiler may lay out the rest in a few instructions more
    assert found.chosen(1.0) == found.steps[-1]


def test_costs_are_kept_and_a_broken_cache_is_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = costs_of.feature_costs(FEATURES)
    entries = list(costs_of.cache_folder().iterdir())
    # Of a field that is at hand anyway, the compiler may make fewer instructions than without it.
    assert len(entries) == 4 and max(cost.instructions for cost in first.values()) > 0
    entries[0].write_text("broken")
    assert costs_of.feature_costs(FEATURES) == first
    monkeypatch.setattr(costs_of, "build", lambda sources: pytest.fail("built again"))
    assert costs_of.feature_costs(FEATURES) == first


def test_chi_squared_is_1_for_the_label_and_0_for_a_constant() -> None:
    labels = np.repeat([0, 1, 2], 100)
    rows = np.stack([labels * 7, np.full(300, 5), np.tile(np.arange(100), 3)], axis=1)
    assert chi_squared(rows, labels) == pytest.approx([1, 0, 0], abs=1e-9)


def _double(shared: int, task: int) -> int:
    if task < 0:
        raise InputError(f"task {task}", "is negative")
    return shared * task


@pytest.mark.parametrize("jobs", [1, 2])
def test_workers_do_each_task_once_and_errors_come_through(jobs: int) -> None:
    with Workers(10, jobs=jobs) as workers:
        assert sorted(workers.over(_double, range(20))) == [(n, 10 * n) for n in range(20)]
        with pytest.raises(InputError, match="task -1: is negative"):
            list(workers.over(_double, [1, -1]))
    with pytest.raises(InputError, match="0 jobs"):
        Workers(None, jobs=0)


def test_ray_does_each_task_once_and_errors_come_through() -> None:
    needs.package("ray", "ray")
    with Workers(10, ray="local") as workers:
        assert sorted(workers.over(_double, range(5))) == [(n, 10 * n) for n in range(5)]
        with pytest.raises(InputError, match="task -1: is negative"):
            list(workers.over(_double, [1, -1]))
