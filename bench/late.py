# SPDX-License-Identifier: Apache-2.0
"""What a second model for flows that last would find beside a first one, on sources neither has seen.

    python -m bench.late CAPTURES [CAPTURES ...] [--feature-set intrusion] [--dealings 4] [--json]

CAPTURES: folders with manifests that name sources (docs/labels.md). The first model is trained by the recipe
of docs/training.md. The second one learns from the 30th packet of flows on, and judges packets 30, 100
and every 100th after that. Both are cross-validated over sources. A share of the benign loss is given to the
second model; the first one alone has all of it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bench.files import captured
from bench.unseen import RECIPE, spread
from wirewise.datasets import Table
from wirewise.errors import WirewiseError
from wirewise.evaluate import matrix, numbers, out_of_fold
from wirewise.evaluate.classes import check_classes
from wirewise.evaluate.lesson import Lesson, Recipe
from wirewise.evaluate.split import folds
from wirewise.evaluate.train import FOLDS, make_estimator
from wirewise.feature_sets import PRESETS

FIRST = 30
"""The first packet of a flow that the second model judges."""
STEP = 100
LEARNED = 20
"""Rows of a flow that the second model learns from, one in ten packets."""
SECOND = (("forest", 20, 12), ("boosting", 30, 4), ("extra-trees", 20, 12))
SHOWN = (0.001, 0.01, 0.02)
"""Shares of benign flows that may lose a packet."""
SHARES = (0.0, 0.5)
"""Parts of that loss that the second model may use."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.late", description=__doc__.split("\n")[0])
    parser.add_argument("captures", type=Path, nargs="+", help="folders with manifest.json")
    parser.add_argument("--feature-set", default="intrusion", choices=sorted(PRESETS), help="[intrusion]")
    parser.add_argument("--dealings", type=int, default=4, help="ways to deal the sources [4]")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    try:
        table = captured(options.captures, PRESETS[options.feature_set])
        found = [line for seed in range(options.dealings) for line in measured(table.labelled, seed)]
    except WirewiseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if options.json:
        names = " ".join(folder.name for folder in options.captures)
        command = f"python -m bench.late {names} --feature-set {options.feature_set}"
        print(
            json.dumps(
                {"command": f"{command} --dealings {options.dealings} --json", "found": found}, indent=1
            )
        )
        return 0
    keys = ("second", "wish", "share")
    for which in dict.fromkeys(tuple(line[key] for key in keys) for line in found):
        lines = [line for line in found if tuple(line[key] for key in keys) == which]
        name, wish, share = which
        shown = ", ".join(
            f"{of} {spread([line[of] for line in lines])}"
            for of in ("lost", "families", "captures", "sources")
        )
        print(f"{name}, {100 * wish:g} % asked, {100 * share:g} % of it for the second: {shown}")
    return 0


def measured(table: Table, seed: int) -> Iterator[dict[str, Any]]:
    """What is found in one dealing, for each second model, loss and share of it."""
    frame, rows = table.frame, matrix(table)
    classes = check_classes(table, two=True)
    truth = numbers(table, classes)
    at = frame.select(pl.int_range(1, pl.len() + 1).over("capture", "flow")).to_series().to_numpy()
    asked = (at == FIRST) | ((at > FIRST) & (at % STEP == 0))
    learned = (at >= FIRST) & ((at - FIRST) % 10 == 0) & (at < FIRST + 10 * LEARNED)
    late = Table(frame.filter(pl.Series(learned)), table.feature_set)
    lessons = [
        _lesson(table, rows, truth, classes, RECIPE, seed),
        _lesson(late, rows[learned], truth[learned], classes, Recipe(flows=500, alike="capture"), seed),
    ]
    place = np.cumsum(learned) - 1
    said = {name: np.zeros((len(rows), len(classes))) for name in ("first", *map(_name, SECOND))}
    tested = np.zeros(len(rows), np.bool_)
    for part in folds(frame, "source", FOLDS, seed=seed, classes=truth):
        first = lessons[0].teach(make_estimator("forest", trees=20, depth=12, seed=seed), part.learn)
        said["first"][part.test] = out_of_fold.scores(first, rows[part.test], len(classes))
        tested[part.test] = True
        on, over = part.learn[learned[part.learn]], part.test[asked[part.test]]
        for kind in SECOND:
            estimator = make_estimator(kind[0], trees=kind[1], depth=kind[2], seed=seed)
            second = lessons[1].teach(estimator, place[on])
            said[_name(kind)][over] = out_of_fold.scores(second, rows[over], len(classes))
    flows = out_of_fold.flows(frame.filter(pl.Series(tested)), truth[tested], said["first"][tested])
    for kind in SECOND:
        which = tested & asked
        of = out_of_fold.flows(frame.filter(pl.Series(which)), truth[which], said[_name(kind)][which])
        both = flows.join(
            of.select("capture", "flow", late="1"), on=["capture", "flow"], how="left", maintain_order="left"
        ).with_columns(pl.col("late").fill_null(np.iinfo(np.int64).min))
        for wish in SHOWN:
            for share in SHARES:
                yield {
                    "second": _name(kind),
                    "seed": seed,
                    "wish": wish,
                    "share": share,
                    **_found(both, wish, share),
                }


def _name(kind: tuple[str, int, int]) -> str:
    return f"{kind[0]} {kind[1]}x{kind[2]}"


def _lesson(
    table: Table,
    rows: NDArray[np.int64],
    truth: NDArray[np.int64],
    classes: list[str],
    recipe: Recipe,
    seed: int,
) -> Lesson:
    return Lesson.of(
        table, rows, truth, classes, class_weights=lambda labels, weights: weights, augment=(), copies=1,
        seed=seed, recipe=recipe,
    )  # fmt: skip


def _found(flows: pl.DataFrame, wish: float, share: float) -> dict[str, Any]:
    """Flows : margins `1` of the first model and `late` of the second. What is lost is that of each source by
    the margins of the others.
    """
    benign, attack = flows.filter(~pl.col("attack")), flows.filter("attack")
    weight = (1 / benign.select(pl.len().over("capture")).to_series()).to_numpy() / benign[
        "capture"
    ].n_unique()
    wishes = {"1": wish * (1 - share), "late": wish * share}

    def margins(which: NDArray[np.bool_]) -> dict[str, float]:
        return {
            name: _margin(benign[name].to_numpy()[which], weight[which], of) if of else np.inf
            for name, of in wishes.items()
        }

    def flagged(frame: pl.DataFrame, by: dict[str, float]) -> NDArray[np.bool_]:
        over = [frame[name].to_numpy() > least for name, least in by.items()]
        return np.asarray(np.any(over, axis=0), np.bool_)

    unit = benign["unit"].to_numpy()
    lost = 0.0
    for one in np.unique(unit):
        own = unit == one
        lost += weight[own][flagged(benign.filter(pl.Series(own)), margins(~own))].sum()
    caught = flagged(attack, margins(weight > 0))
    seen = attack.select("label", "unit", "capture", flagged=pl.Series(caught))

    def mean(of: str) -> float:
        return float(seen.group_by(of).agg(pl.col("flagged").mean())["flagged"].mean())  # type: ignore[arg-type]

    by_label = out_of_fold.of_kinds(seen).sort("label")
    return {
        "lost": float(lost),
        "families": float(by_label["flagged"].mean()),  # type: ignore[arg-type]
        "captures": mean("capture"),
        "sources": mean("unit"),
        "by_family": dict(by_label.iter_rows()),
    }


def _margin(margin: NDArray[np.int64], weight: NDArray[np.float64], wish: float) -> float:
    """The least margin, 0 or more, above which are flows of no more than that share of the weight."""
    order = np.argsort(margin, kind="stable")[::-1]
    above = np.cumsum(weight[order])
    place = int(np.searchsorted(above, wish * above[-1] + 1e-12, side="right"))
    return max(0.0, float(margin[order][place])) if place < len(order) else 0.0


if __name__ == "__main__":
    sys.exit(main())
