# SPDX-License-Identifier: Apache-2.0
"""Checks the verdicts of `evaluate` by family of attacks on sources that the model has not seen.

    python -m bench.judge CAPTURES [CAPTURES ...] [--feature-set intrusion] [--dealings 3] \\
        [--min-recall 0.5] [--json]

CAPTURES: folders with manifests that name sources (docs/labels.md). Sources are dealt to five folds. Four
fifths of them are what a user has: folds within them judge a forest, as `train` and `evaluate` do. The last
fifth is what the user meets: the forest, fitted to all four fifths, judges it. Compared are the share found
of each family, as the mean over the sources met, with the interval predicted for that number of sources;
and the benign flows that the written policy loses there with the loss that was said to be the worst.
--min-recall is that of `evaluate`: the lower it is, the more policies drop something.
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

from bench.files import captured
from wirewise.errors import InputError, WirewiseError
from wirewise.evaluate.classes import class_names
from wirewise.evaluate.families import FlowVerdicts, families, mean_share, predicted
from wirewise.evaluate.per_flow import flow_verdicts, per_flow
from wirewise.evaluate.split import folds
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
    (95 %). may_drop : the classes that are dropped; where none may be, every class of attacks is. found : of
    those that may be dropped and that the fold has, the mean over sources of the share found; None without.
    """

    seed: int
    fold: int
    may_drop: list[str]
    worst: float
    lost: float
    found: float | None = None

    @property
    def line(self) -> str:
        found = "no such attack met" if self.found is None else f"found {self.found:.2f}"
        lost = f"lost {100 * self.lost:.2f} % of benign flows, at worst {100 * self.worst:.2f} % was said"
        return f"dealing {self.seed}, fold {self.fold}: {', '.join(self.may_drop)}: {found}; {lost}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.judge", description=__doc__.split("\n")[0])
    parser.add_argument("captures", type=Path, nargs="+", help="folders with manifest.json")
    parser.add_argument("--feature-set", default="intrusion", choices=sorted(PRESETS), help="[intrusion]")
    parser.add_argument("--dealings", type=int, default=3, help="ways to deal the sources [3]")
    parser.add_argument(
        "--min-recall", type=float, default=Limits().recall, help="see `wirewise evaluate` [0.5]"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    try:
        limits = Limits(recall=options.min_recall)
        feature_set = PRESETS[options.feature_set]
        rows = captured(options.captures, feature_set).frame
        found = judged(rows, feature_set.feature_names, range(options.dealings), limits)
    except WirewiseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    names = " ".join(folder.name for folder in options.captures)
    command = f"python -m bench.judge {names} --feature-set {options.feature_set}"
    report = summary(*found)
    if options.json:
        command += f" --dealings {options.dealings} --min-recall {options.min_recall:g} --json"
        print(json.dumps({"command": command, **report}, indent=1))
        return 0
    for what, value in report.items():
        if not isinstance(value, list | dict):
            print(f"{what.replace('_', ' ')}: {value:g}")
    for title, part in (("the collection", "collection"), ("the folds", "families")):
        print(f"{title}:")
        for family, line in report[part].items():
            print(f"  {family}: {line}")
    print("policies that drop something:")
    for policy in found[2]:
        if policy.may_drop:
            print(f"  {policy.line}")
    return 0


def judged(
    rows: pl.DataFrame, features: Sequence[str], seeds: Sequence[int], limits: Limits | None = None
) -> tuple[Verdict, list[Statement], list[Policy]]:
    """The verdict on all rows, and what is compared. rows : a table, with labels and sources. Raises
    InputError for fewer sources than folds.
    """
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
    limits = limits or Limits()
    whole, _ = evaluated(rows, values, truth, classes, 0, limits)
    for seed in seeds:
        for fold, part in enumerate(_by_source(rows, seed)):
            mine, own, of = rows[part], values[part], truth[part]
            decided, stated = evaluated(mine, own, of, classes, seed, limits)
            held = np.setdiff1d(np.arange(len(rows)), part)
            everything = np.arange(len(part))
            met = flow_verdicts(
                rows[held], truth[held],
                _said(mine, own, of, everything, values[held]), len(classes),
            )  # fmt: skip
            statements += compared(decided, stated, met, classes, seed, fold)
            policies += replayed(decided, met, classes, seed, fold)
    return whole, statements, policies


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
    rows: pl.DataFrame,
    values: NDArray[Any],
    truth: NDArray[np.int64],
    classes: list[str],
    seed: int,
    limits: Limits,
) -> tuple[Verdict, FlowVerdicts]:
    """The verdict of `evaluate` on rows that were kept apart, in folds by source."""
    said = np.zeros(len(rows), np.int64)
    for inner in folds(rows, "source", INNER_FOLDS, seed=seed):
        said[inner.test] = _said(rows, values, truth, inner.learn, values[inner.test])
    flows = per_flow(rows, truth, said, classes)
    captures = [rows.filter(pl.Series(kind))["capture"].n_unique() for kind in (truth == 0, truth > 0)]
    decided = verdict(flows, (captures[0], captures[1]), "kept apart", limits)
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
    if not benign.any() or decided.losing_elsewhere is None:
        return []
    numbers = [classes.index(name) for name in decided.may_drop]
    lost = float(met.losing(numbers or range(1, len(classes)))[benign].mean())
    mine = np.isin(met.truth, numbers)
    flagged = np.asarray(met.at[:, numbers].any(axis=1))
    found = mean_share(met, mine, flagged)[0] if mine.any() else None
    return [Policy(seed, fold, decided.may_drop, decided.losing_elsewhere, lost, found)]


def summary(whole: Verdict, statements: list[Statement], policies: list[Policy]) -> dict[str, Any]:
    """Shares are of 0 to 1. informative : of statements whose interval is not 0 to 1. collection : the
    verdict on all sources, which no fold was held from.
    """
    informative = [one for one in statements if one.says_something]
    dropping = [one for one in policies if one.may_drop]
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
        "policies_that_drop": len(dropping),
        "policies_that_drop_within_what_was_said": sum(one.lost <= one.worst for one in dropping),
        "policies_within_what_was_said": sum(one.lost <= one.worst for one in policies),
        "collection": {
            family.name: f"{family.advice}; {family.units} sources, found {family.of_sources:.2f}, of others "
            f"{family.between[0]:.2f} to {family.between[1]:.2f}"
            for family in whole.families
        },
        "families": by_family,
        "each": [asdict(one) | {"true": one.true} for one in statements],
        "each_policy": [asdict(one) for one in policies],
    }


if __name__ == "__main__":
    sys.exit(main())
