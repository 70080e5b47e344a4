# SPDX-License-Identifier: Apache-2.0
"""Margins: what favouring benign means for every family, and the least margin that keeps the wished loss."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from wirewise.errors import InputError
from wirewise.evaluate.operating_point import (
    by_flow,
    choose,
    choose_from,
    in_a_row,
    lead,
    least_margin,
    margins,
)
from wirewise.importers import import_model
from wirewise.models import (
    Model,
    random_binary_bank,
    random_binary_mlp,
    random_fixed_point_mlp,
    random_quantized_mlp,
    random_tree_ensemble,
)
from wirewise.units import parse_share

FAMILIES = {
    "trees": lambda rng, classes: random_tree_ensemble(rng, votes="sum", n_classes=classes, n_features=3),
    "trees of one output": lambda rng, classes: random_tree_ensemble(
        rng, votes="sum", n_classes=2, n_outputs=1, n_features=3
    ),
    "int8": lambda rng, classes: random_quantized_mlp(rng, n_classes=classes, n_features=3),
    "q16": lambda rng, classes: random_fixed_point_mlp(rng, n_classes=classes, n_features=3),
    "binary": lambda rng, classes: random_binary_mlp(rng, n_classes=classes, n_features=3),
    "bank": lambda rng, classes: random_binary_bank(rng, networks=classes, n_features=3),
}


@pytest.mark.parametrize("family", FAMILIES)
@examples(20)
@given(seed=st.integers(0, 2**31 - 1), classes=st.sampled_from([2, 3, 5]), by=st.integers(0, 2000))
def test_a_class_must_be_ahead_by_more_than_the_margin(family: str, seed: int, classes: int, by: int) -> None:
    rng = np.random.default_rng(seed)
    model: Model = FAMILIES[family](rng, classes)
    rows = rng.integers(-1000, 1000, (200, 3))
    before, ahead = model.predict(rows)[0], margins(model, rows)
    assert ((before > 0) == (ahead > 0)).all()
    try:
        favoured = model.favour(by)
    except InputError as error:  # scores of random trees may fill 32 bits
        assert "no room" in str(error) or "overflow" in str(error) or "fit" in str(error)
        return
    after = favoured.predict(rows)[0]
    # int8: what a bias adds is a multiple of its neuron's multiplier.
    step = model.layers[-1].multiplier[0] if family == "int8" and model.n_outputs > 1 else 1  # type: ignore[union-attr]
    assert (after[ahead <= by] == 0).all()
    assert (after[ahead > by + step] == before[ahead > by + step]).all()
    assert [favoured.predict_one(row)[0] for row in rows[:20].tolist()] == after[:20].tolist()


@examples(100)
@given(st.lists(st.integers(-20, 20), min_size=1, max_size=50), st.floats(0, 0.99), st.integers(-20, 20))
def test_the_least_margin_keeps_the_wish_and_is_the_least(benign: list[int], wish: float, other: int) -> None:
    flows = np.array(benign)
    by = least_margin(flows, wish)
    assert by >= 0 and (flows > by).mean() <= wish
    if 0 <= other < by:
        assert (flows > other).mean() > wish


@examples(100)
@given(
    st.integers(0, 2**31 - 1), st.sampled_from([1, 2, 3, 5]), st.sampled_from([1, 2, 4]), st.integers(-3, 9)
)
def test_verdicts_in_a_row_are_counted_as_the_policy_counts_them(
    seed: int, after: int, n_classes: int, by: int
) -> None:
    rng = np.random.default_rng(seed)
    count = 60
    flows = rng.integers(0, 6, count)
    width = 1 if n_classes == 1 else n_classes + 1
    scores = rng.integers(-4, 8, (count, width))
    frame = pl.DataFrame({"capture": ["c"] * count, "flow": [str(flow) for flow in flows]})
    found = by_flow(frame, (flows % 2).astype(np.int64), scores, [after])
    for flow in np.unique(flows):
        said, run, acts = -1, 0, False
        for row in scores[flows == flow]:
            ahead, margin = (0, row[0]) if width == 1 else (int(row[1:].argmax()), row[1:].max() - row[0])
            verdict = ahead if margin > by else -1
            run = run + 1 if verdict == said else 1
            said = verdict
            acts |= verdict >= 0 and run >= after
        least = found.filter(pl.col("flow") == str(flow))[str(after)].item()
        assert (least > by) == acts
    best = np.zeros(count, np.int64) if width == 1 else scores[:, 1:].argmax(axis=1)
    verdicts = np.where(lead(scores) > by, best + 1, 0)
    counted = in_a_row(frame, verdicts, after)
    assert set(np.unique(flows[counted > 0])) == {
        int(flow)
        for flow in np.unique(flows)
        if found.filter(pl.col("flow") == str(flow))[str(after)].item() > by
    }


def test_more_verdicts_in_a_row_ask_for_less_of_a_margin() -> None:
    model = FAMILIES["trees"](np.random.default_rng(1), 2)
    rng = np.random.default_rng(0)
    rows = rng.integers(-1000, 1000, (3000, 3))
    frame = pl.DataFrame({"capture": ["c"] * 3000, "flow": [f"f{n // 6}" for n in range(3000)]})
    truth = np.repeat(rng.integers(0, 2, 500), 6)
    points = [choose(model, frame, rows, truth, 0.1, after=after) for after in (1, 2, 3)]
    assert [point.after for point in points] == [1, 2, 3]
    assert points[0].by >= points[1].by >= points[2].by and all(point.loss <= 0.1 for point in points)
    assert [it.after for it in points[1].compared] == [1, 3]
    best = choose(model, frame, rows, truth, 0.1, after=None)
    assert best.recall == max(point.recall for point in points)
    for wrong in (0, 16):
        with pytest.raises(InputError, match="must be from 1 to 15"):
            choose(model, frame, rows, truth, 0.1, after=wrong)


def test_the_margin_is_chosenby_flows_and_what_to_expect_by_other_captures() -> None:
    sklearn = pytest.importorskip("sklearn.ensemble")
    rng = np.random.default_rng(0)
    count = 4000
    truth = rng.integers(0, 2, count)
    rows = np.column_stack([rng.normal(100 + 30 * truth, 20), rng.integers(0, 9, count)]).astype(np.int64)
    forest = sklearn.RandomForestClassifier(10, max_depth=6, random_state=0).fit(rows, truth)
    imported = import_model(forest, margin=True)
    numbers = range(count)
    frame = pl.DataFrame(
        {"capture": [f"c{n // 2 % 8}" for n in numbers], "flow": [f"f{n // 2}" for n in numbers]}
    )
    truth = np.repeat(truth[::2], 2)  # of both packets of a flow
    point = choose(imported.model, frame, rows, truth, 0.05)
    assert point.loss <= 0.05 < point.loss_before and 0 < point.recall < point.recall_before
    assert point.elsewhere is not None and 0.01 < point.elsewhere < 0.12
    favoured = imported.model.favour(point.by)
    said = pl.Series(favoured.predict(rows)[0] > 0)
    lost = frame.with_columns(said=said, truth=pl.Series(truth)).filter(pl.col("truth") == 0)
    share = lost.group_by("capture", "flow").agg(pl.col("said").any())["said"].mean()
    assert share == pytest.approx(point.loss)


def test_what_has_no_scores_or_no_room_is_refused_with_the_way_out() -> None:
    rng = np.random.default_rng(0)
    voting = random_tree_ensemble(rng, votes="majority", n_classes=2, n_features=3)
    with pytest.raises(InputError, match="leave out --majority"):
        voting.favour(1)
    full = random_tree_ensemble(rng, votes="sum", n_classes=3, n_features=3)
    with pytest.raises(InputError, match="no room for a margin of 2,147,483,647"):
        full.favour(2**31 - 1)
    for wrong in ("5 %!", "100%", "-1%", "much"):
        with pytest.raises(InputError, match="no share"):
            parse_share(wrong, what="--max-benign-loss")
    assert parse_share("0.1%", what="x") == pytest.approx(0.001) and parse_share(" 0.02 ", what="x") == 0.02


def test_benign_must_be_the_first_class() -> None:
    model = FAMILIES["trees"](np.random.default_rng(1), 2)
    with pytest.raises(InputError, match="has benign as class 1"):
        choose_from(model, ["attack", "benign"], None, 0.01, quantised=False)  # type: ignore[arg-type]


def test_every_imported_ensemble_has_room_for_a_margin() -> None:
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier

    rng = np.random.default_rng(5)
    rows = rng.integers(0, 1000, (400, 3))
    labels = (rows[:, 0] + rng.integers(0, 400, 400) > 700).astype(int)
    for estimator in (RandomForestClassifier(5), HistGradientBoostingClassifier(max_iter=5)):
        model = import_model(estimator.fit(rows, labels)).model  # as `wirewise import` does
        by = int(margins(model, rows).max())
        assert by > 10**7 and (model.favour(by).predict(rows)[0] == 0).all()
