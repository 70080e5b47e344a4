# SPDX-License-Identifier: Apache-2.0
"""Checks the verdicts of `evaluate` by family of attacks on sources that the model has not seen.

    python -m bench.judge CAPTURES [CAPTURES ...] [--feature-set intrusion] [--dealings 3] [--json]

CAPTURES: folders with manifests that name sources (docs/labels.md). Sources are dealt to five folds. Four
fifths of them are what a user has: folds within them judge a forest, as `train` and `evaluate` do. The last
fifth is what the user meets: the forest, fitted to all four fifths, judges it. Compared are the share found
of each family, as the mean over the sources met, with the interval predicted for that number of sources;
and the benign flows that the written policy loses there with the loss that was said to be the worst.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier

import wirewise as ww
from wirewise.errors import InputError, WirewiseError
from wirewise.evaluate.families import FlowVerdicts, families, predicted
from wirewise.evaluate.per_flow import flow_verdicts, per_flow
from wirewise.evaluate.split import folds
from wirewise.evaluate.train import class_names
from wirewise.evaluate.verdict import Limits, Verdict, verdict
from wirewise.feature_sets import PRESETS

FOLDS = 5
INNER_FOLDS = 3
LEARNED_FROM = 10
"""Packets of each flow that are learned from."""
MOST_ROWS = 2000
"""Rows of one label of one source that are learned from, drawn."""
CERTAIN = 0.95
"""Probability of attack from which the forest flags a packet."""
ROUNDING = 1e-9


@dataclass(frozen=True)
class Statement:
    """A prediction for a family, and the outcome. Shares are of 0 to 1. said, sources : mean over so many
    sources. low, high : the interval predicted for the `met` sources of the held fold. found : their mean.
    """

    seed: int
    fold: int
    family: str
    advice: str
    said: float
    sources: int
    low: float
    high: float
    met: int
    found: float

    @property
    def true(self) -> bool:
        return self.low - ROUNDING <= self.found <= self.high + ROUNDING

    @property
    def says_something(self) -> bool:
        return self.high - self.low < 1


@dataclass(frozen=True)
class Policy:
    """Benign flows that lose a packet on the held fold, and what was said to be the worst on other captures
    (95 %). may_drop : the classes that are dropped; where none may be, every class of attacks is.
    """

    seed: int
    fold: int
    may_drop: list[str]
    worst: float
    lost: float


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.judge", description=__doc__.split("\n")[0])
    parser.add_argument("captures", type=Path, nargs="+", help="folders with manifest.json")
    parser.add_argument("--feature-set", default="intrusion", choices=sorted(PRESETS), help="[intrusion]")
    parser.add_argument("--dealings", type=int, default=3, help="ways to deal the sources [3]")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    try:
        parts = [ww.features([folder], options.feature_set) for folder in options.captures]
        rows = pl.concat(parts, how="diagonal_relaxed")
        found = judged(rows, PRESETS[options.feature_set].feature_names, range(options.dealings))
    except WirewiseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    names = " ".join(folder.name for folder in options.captures)
    command = f"python -m bench.judge {names} --feature-set {options.feature_set}"
    report = summary(*found)
    if options.json:
        print(json.dumps({"command": f"{command} --dealings {options.dealings} --json", **report}, indent=1))
        return 0
    for what, value in report.items():
        if not isinstance(value, list | dict):
            print(f"{what.replace('_', ' ')}: {value:g}")
    for family, line in report["families"].items():
        print(f"  {family}: {line}")
    return 0


def judged(
    rows: pl.DataFrame, features: Sequence[str], seeds: Sequence[int]
) -> tuple[list[Statement], list[Policy]]:
    """Rows : a table, with labels and sources. Raises InputError for fewer sources than folds."""
    early = pl.int_range(pl.len()).over("capture", "flow") < LEARNED_FROM
    drawn = pl.int_range(pl.len()).shuffle(seed=0).over("source", "label", "early") < MOST_ROWS
    rows = rows.filter(pl.col("label") != "").with_columns(early=early)
    if "source" not in rows.columns or rows["source"].n_unique() < FOLDS:
        raise InputError("the captures", f"are of fewer than {FOLDS} sources", "give more of them")
    rows = rows.with_columns(lesson=pl.col("early") & drawn)
    classes = class_names(rows["label"].unique().to_list())
    number = {name: at for at, name in enumerate(classes)}
    truth = rows["label"].replace_strict(number, return_dtype=pl.Int64).to_numpy()
    values = rows.select(features).to_numpy()
    statements: list[Statement] = []
    policies: list[Policy] = []
    for seed in seeds:
        for fold, part in enumerate(_by_source(rows, seed)):
            mine = rows[part]
            said = np.zeros(len(mine), np.int64)
            own, of = values[part], truth[part]
            for inner in folds(mine, "source", INNER_FOLDS, seed=seed):
                said[inner.test] = _said(mine, own, of, inner.learn, own[inner.test])
            decided, stated = evaluated(mine, of, said, classes)
            held = np.setdiff1d(np.arange(len(rows)), part)
            everything = np.arange(len(part))
            met = flow_verdicts(
                rows[held], truth[held],
                _said(mine, own, of, everything, values[held]), len(classes),
            )  # fmt: skip
            statements += compared(decided, stated, met, classes, seed, fold)
            policies += replayed(decided, met, classes, seed, fold)
    return statements, policies


def _by_source(rows: pl.DataFrame, seed: int) -> list[NDArray[np.int64]]:
    """Row numbers of what is not in each fold; whole sources, so a family of one source is in no other."""
    names = rows["source"].unique(maintain_order=True).to_list()
    order = np.random.default_rng(seed).permutation(len(names))
    fold_of = {names[index]: place % FOLDS for place, index in enumerate(order)}
    fold = rows["source"].replace_strict(fold_of, return_dtype=pl.Int64).to_numpy()
    return [np.flatnonzero(fold != number) for number in range(FOLDS)]


def _said(
    rows: pl.DataFrame,
    values: NDArray[Any],
    truth: NDArray[np.int64],
    learn: NDArray[np.int64],
    tested: NDArray[Any],
) -> NDArray[np.int64]:
    """Class numbers that a forest, fitted to rows of `learn`, predicts for `tested`."""
    first = learn[rows["lesson"].to_numpy()[learn]]
    forest = RandomForestClassifier(n_estimators=20, max_depth=14, random_state=0, n_jobs=-1)
    forest.fit(values[first], truth[first])
    shares = forest.predict_proba(tested)
    known = np.asarray(forest.classes_, np.int64)
    if 0 not in known:
        return np.asarray(known[shares.argmax(axis=1)], np.int64)
    benign = shares[:, list(known).index(0)].copy()
    shares[:, list(known).index(0)] = -1
    chosen: NDArray[np.int64] = np.where(benign < 1 - CERTAIN, known[shares.argmax(axis=1)], 0)
    return chosen


def evaluated(
    rows: pl.DataFrame, truth: NDArray[np.int64], said: NDArray[np.int64], classes: list[str]
) -> tuple[Verdict, FlowVerdicts]:
    """The verdict of `evaluate` on rows that were kept apart."""
    flows = per_flow(rows, truth, said, classes)
    captures = [rows.filter(pl.Series(kind))["capture"].n_unique() for kind in (truth == 0, truth > 0)]
    decided = verdict(flows, (captures[0], captures[1]), "kept apart", Limits())
    return decided, flows.verdicts


def compared(
    decided: Verdict, stated: FlowVerdicts, met: FlowVerdicts, classes: list[str], seed: int, fold: int
) -> list[Statement]:
    """Each family that is in both."""
    every = range(1, len(classes))
    advice = {family.name: family.advice for family in decided.families}
    held = {family.name: family for family in families(met, classes, every)}
    found = []
    for said in families(stated, classes, every):
        if (other := held.get(said.name)) is not None:
            low, high = predicted(said.of_sources, said.units, other.units)
            found.append(
                Statement(
                    seed, fold, said.name, advice[said.name], said.of_sources, said.units, low, high,
                    other.units, other.of_sources,
                )
            )  # fmt: skip
    return found


def replayed(decided: Verdict, met: FlowVerdicts, classes: list[str], seed: int, fold: int) -> list[Policy]:
    """The policy on the held fold; none without benign flows there."""
    benign = met.truth == 0
    if not benign.any() or decided.losing_between is None:
        return []
    sure = [family.name for family in decided.families if family.advice == "enforce"]
    dropped = [classes.index(name) for name in sure] or list(range(1, len(classes)))
    lost = float(met.losing(dropped)[benign].mean())
    return [Policy(seed, fold, sure, decided.losing_between[1], lost)]


def summary(statements: list[Statement], policies: list[Policy]) -> dict[str, Any]:
    """Shares are of 0 to 1. informative : of statements whose interval is not 0 to 1."""
    informative = [one for one in statements if one.says_something]
    by_family: dict[str, str] = {}
    for name in sorted({one.family for one in statements}):
        mine = [one for one in statements if one.family == name]
        true = sum(one.true for one in mine)
        said = sum(one.said for one in mine) / len(mine)
        found = sum(one.found for one in mine) / len(mine)
        by_family[name] = f"{true} of {len(mine)} true; said {said:.2f}, found {found:.2f}"
    return {
        "statements": len(statements),
        "true": sum(one.true for one in statements) / max(1, len(statements)),
        "informative": len(informative),
        "informative_true": sum(one.true for one in informative) / max(1, len(informative)),
        "policies": len(policies),
        "policies_that_drop": sum(bool(one.may_drop) for one in policies),
        "policies_within_what_was_said": sum(one.lost <= one.worst for one in policies),
        "families": by_family,
        "each": [asdict(one) | {"true": one.true} for one in statements],
        "each_policy": [asdict(one) for one in policies],
    }


if __name__ == "__main__":
    sys.exit(main())
