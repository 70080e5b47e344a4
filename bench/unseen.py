# SPDX-License-Identifier: Apache-2.0
"""What ways of training find on sources, or on captures of known sources, that they have not seen.

    python -m bench.unseen CAPTURES [CAPTURES ...] [--feature-set intrusion] [--ways NAME] [--by source]
        [--dealings 4] [--beside TRAFFIC [TRAFFIC ...] [--apart TREES]] [--json]

CAPTURES: folders with manifests that name sources (docs/labels.md). Each of WAYS is cross-validated over
sources, or captures, as `wirewise train --by source` does, once for each dealing of the folds. With --beside,
models learn from made traffic as well, of profiles or kinds, and are judged on captures alone; with --apart,
trees of their own learn it, as with `wirewise train --apart`. Printed is what is found on any packet of a
flow with the margins that each dealing calls for, see `wirewise.evaluate.out_of_fold`: families are the mean
over kinds of attacks of the mean over their sources, sources and captures the mean over these.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from bench.files import captured
from scripts import models
from wirewise.datasets import Table
from wirewise.errors import InputError, WirewiseError
from wirewise.evaluate import out_of_fold, train
from wirewise.evaluate.apart import Apart
from wirewise.evaluate.lesson import Recipe
from wirewise.evaluate.phases import Late
from wirewise.evaluate.train import BENIGN_ONLY, TREES
from wirewise.feature_sets import FeatureSet
from wirewise.traffic import ALL_KINDS, PROFILES

RECIPE = Recipe(first=10, flows=500, alike="capture")
SHOWN = (0.001, 0.005, 0.01, 0.02)
"""Shares of benign flows that may lose a packet."""


@dataclass(frozen=True)
class Way:
    """Options of `train`, beside what all have in common."""

    estimator: str
    trees: int
    depth: int
    two_classes: bool
    recipe: Recipe
    leaf: int | None = None
    late: Late | None = None

    @property
    def name(self) -> str:
        classes = "two classes" if self.two_classes else "a class for each kind"
        rows = "all rows" if self.recipe == Recipe() else "recipe"
        leaf = f", leaves of {self.leaf}" if self.leaf else ""
        alike = ", kinds alike" if self.recipe.alike == "kind" else ""
        size = f" {self.trees}x{self.depth}" if self.estimator in TREES else ""
        return f"{self.estimator}{size}{leaf}{alike}{self._second}, {classes}, {rows}"

    @property
    def _second(self) -> str:
        if self.late is None:
            return ""
        leaf = f"/{self.late.leaf}" if self.late.leaf else ""
        return f", from packet {self.late.start} on {self.late.trees}x{self.late.depth}{leaf}"


WAYS = (
    Way("forest", 10, 10, False, Recipe()),
    Way("forest", 10, 10, True, Recipe()),
    Way("forest", 10, 10, True, RECIPE),
    Way("forest", 20, 12, True, RECIPE),
    Way("forest", 20, 12, True, RECIPE, leaf=20),
    Way("forest", 20, 12, True, RECIPE, leaf=20, late=Late(leaf=20)),
    Way("forest", 20, 12, True, replace(RECIPE, alike="kind"), leaf=20, late=Late(leaf=20)),
    Way("forest", 40, 12, True, replace(RECIPE, alike="kind"), leaf=20, late=Late(leaf=20)),
    Way("extra-trees", 20, 12, True, RECIPE),
    Way("boosting", 30, 10, True, RECIPE),
    Way(BENIGN_ONLY, 10, 10, True, RECIPE),
)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.unseen", description=__doc__.split("\n")[0])
    parser.add_argument("captures", type=Path, nargs="+", help="folders with manifest.json")
    parser.add_argument("--feature-set", default="intrusion", help="preset or file [intrusion]")
    parser.add_argument("--ways", default="", help="only those whose names have this in them")
    parser.add_argument(
        "--by", choices=("source", "capture"), default="source", help="what is dealt [source]"
    )
    parser.add_argument("--dealings", type=int, default=4, help="ways to deal the sources [4]")
    parser.add_argument(
        "--beside", nargs="+", choices=sorted({*PROFILES, *ALL_KINDS}), metavar="TRAFFIC",
        help="made traffic to learn from as well: profiles or kinds",
    )  # fmt: skip
    parser.add_argument("--apart", type=int, help="how many trees of their own learn from it")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    try:
        feature_set = FeatureSet.load(options.feature_set)
        table = captured(options.captures, feature_set)
        beside = models.made_beside(feature_set, options.beside) if options.beside else None
        chosen = [way for way in WAYS if options.ways in way.name]
        apart = None if options.apart is None else Apart("flood", options.apart)
        found = {
            way.name: measured(table, way, options.by, options.dealings, beside, apart) for way in chosen
        }
    except WirewiseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if options.json:
        names = " ".join(folder.name for folder in options.captures)
        command = f"python -m bench.unseen {names} --feature-set {options.feature_set}"
        command += f" --ways '{options.ways}'" if options.ways else ""
        command += f" --by {options.by}" if options.by != "source" else ""
        command += f" --beside {' '.join(options.beside)}" if options.beside else ""
        command += f" --apart {options.apart}" if options.apart else ""
        print(
            json.dumps(
                {"command": f"{command} --dealings {options.dealings} --json", "ways": found}, indent=1
            )
        )
        return 0
    for name, steps in found.items():
        print(name)
        for step in steps:
            print(
                f"  {100 * step['wish']:g} % asked: {spread(step['elsewhere'])} % lost, found "
                f"{spread(step['families'])} % of families, {spread(step['sources'])} % of sources, "
                f"{spread(step['captures'])} % of captures, {spread(step['recall'])} % of flows"
            )
    return 0


def measured(
    table: Table,
    way: Way,
    by: str,
    dealings: int,
    beside: Table | None = None,
    apart: Apart | None = None,
) -> list[dict[str, Any]]:
    """For each of SHOWN what each dealing lost on sources, or captures, judged by the margin of others, and
    found. beside, apart : what is learned from as well, and how.
    """
    training = train(
        table, way.estimator, trees=way.trees, depth=way.depth, leaf=way.leaf, two_classes=way.two_classes,
        recipe=way.recipe, late=way.late, group=by, seeds=dealings, beside=beside,
        apart=apart,
    )  # fmt: skip
    if training.folds is None or not training.folds.scored:
        raise InputError("the captures", "cannot be cross-validated", "give more of them")
    dealt = [out_of_fold.points(flows) for flows in training.folds.scored]
    steps = []
    for wish in SHOWN:
        points = [point for of in dealt for point in of if (point.wish, point.after) == (wish, 1)]
        steps.append(
            {
                "wish": wish,
                **{
                    name: [getattr(point, name) for point in points]
                    for name in ("elsewhere", "families", "recall")
                },
                **{
                    f"{each}s": [
                        mean_over(column, flows, point)
                        for flows, point in zip(training.folds.scored, points, strict=True)
                    ]
                    for each, column in (("source", "unit"), ("capture", "capture"))
                },
                "kinds": of_each_kind(training.folds.scored, points),
            }
        )
    return steps


def of_each_kind(
    dealt: Sequence[pl.DataFrame], points: Sequence[out_of_fold.Point]
) -> dict[str, list[float]]:
    """For each kind of attack the mean over its sources of what each dealing finds."""
    found: dict[str, list[float]] = {}
    for flows, point in zip(dealt, points, strict=True):
        seen = flows.filter("attack").with_columns(flagged=out_of_fold.above(point))
        for kind, share in sorted(out_of_fold.of_kinds(seen).iter_rows()):
            found.setdefault(kind, []).append(share)
    return found


def mean_over(column: str, flows: pl.DataFrame, point: out_of_fold.Point) -> float:
    """The share of attack flows found at a point, as a mean over sources (column `unit`) or captures."""
    seen = flows.filter("attack").group_by(column).agg(found=out_of_fold.above(point).mean())
    return float(seen["found"].mean() or 0)  # type: ignore[arg-type]


def spread(shares: list[float]) -> str:
    mean = 100 * sum(shares) / len(shares)
    return f"{mean:.1f} ({100 * min(shares):.1f} to {100 * max(shares):.1f})"


if __name__ == "__main__":
    sys.exit(main())
