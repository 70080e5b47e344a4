# SPDX-License-Identifier: Apache-2.0
"""How well flows of captures that nobody learned from are judged, attack against benign: five folds.

    python -m bench.captures CAPTURES [--feature-set intrusion] [--dealings 3]

CAPTURES: a folder with a manifest (docs/labels.md). A forest learns from the first packets of the flows of
four fifths of the captures, and scores the rest; then each flow is judged at its fifth packet, or at its
last, with the threshold above which one per cent of the benign flows are. How captures are dealt to the folds
matters as much as the model where one of them holds half of a kind of traffic, so it is done several times.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import StratifiedGroupKFold

import wirewise as ww
from wirewise.errors import InputError, WirewiseError
from wirewise.feature_sets import PRESETS

FOLDS = 5
JUDGED_AT = 5
LEARNED_FROM = 10
"""Packets of each flow that are learned from."""
BENIGN_FLAGGED = 0.01
WORST_APPLICATION = 0.03


@dataclass(frozen=True)
class Dealing:
    """One way to deal the captures. Shares are of 0 to 1. benign_flagged : at the packet of decision;
    benign_losing : at any packet. applications : benign ones with a larger share of flows flagged than
    WORST_APPLICATION: share, flows. missed : share of flows of each attack that are not seen.
    """

    seed: int
    f1: float
    recall: float
    benign_flagged: float
    benign_losing: float
    flows: int
    attacks: int
    applications: dict[str, tuple[float, int]]
    missed: dict[str, tuple[float, int]]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.captures", description=__doc__.split("\n")[0])
    parser.add_argument("captures", type=Path, help="a folder with manifest.json")
    parser.add_argument("--feature-set", default="intrusion", choices=sorted(PRESETS), help="[intrusion]")
    parser.add_argument("--dealings", type=int, default=3, help="ways to deal the captures [3]")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    try:
        rows = ww.features([options.captures], options.feature_set)
        found = [
            judged(rows, PRESETS[options.feature_set].feature_names, applications(options.captures), seed)
            for seed in range(options.dealings)
        ]
    except WirewiseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if options.json:
        command = f"python -m bench.captures {options.captures.name} --feature-set {options.feature_set}"
        document = {"command": f"{command} --dealings {options.dealings} --json"}
        print(json.dumps(document | {"dealings": [asdict(one) for one in found]}, indent=1))
        return 0
    for one in found:
        print(
            f"dealing {one.seed}: F1 {one.f1:.4f}, {100 * one.recall:.2f} % of {one.attacks:,} attacks seen, "
            f"{100 * one.benign_flagged:.2f} % of {one.flows - one.attacks:,} benign flows flagged "
            f"({100 * one.benign_losing:.2f} % at any packet)"
        )
        for what, names in (("above 3 %", one.applications), ("missed", one.missed)):
            listed = ", ".join(
                f"{name} {100 * share:.1f} % of {count:,}" for name, (share, count) in names.items()
            )
            print(f"  {what}: {listed or 'none'}")
    return 0


def applications(folder: Path) -> dict[str, str]:
    """What kind of traffic a capture is of, by its path, as the manifest says."""
    listed = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    return {str(folder / entry["path"]): str(entry.get("class", "")) for entry in listed}


def judged(rows: pl.DataFrame, features: list[str], kinds: dict[str, str], seed: int) -> Dealing:
    """Five folds over the captures. rows : a table, with labels. kinds : of captures, by path."""
    rows = rows.filter(pl.col("label") != "").with_columns(
        number=pl.int_range(pl.len()).over("capture", "flow"), attack=pl.col("label") != "benign"
    )
    if rows["attack"].n_unique() < 2 or rows["capture"].n_unique() < FOLDS:
        raise InputError(
            "the captures", f"have no two classes, or are fewer than {FOLDS}", "give more of them"
        )
    scores = scored(rows, features, seed)
    flows = (
        rows.with_columns(score=pl.Series(scores))
        .group_by("capture", "flow", maintain_order=True)
        .agg(
            pl.col("attack", "label").first(),
            highest=pl.col("score").max(),
            score=pl.col("score").filter(pl.col("number") < JUDGED_AT).last(),
        )
        .with_columns(kind=pl.col("capture").replace_strict(kinds, default="?"))
    )
    benign = flows.filter(~pl.col("attack"))["score"].sort(descending=True)
    threshold = benign[int(BENIGN_FLAGGED * len(benign))]
    said = flows.with_columns(flagged=pl.col("score") > threshold)
    attack, good = said.filter(pl.col("attack")), said.filter(~pl.col("attack"))
    seen, lost = int(attack["flagged"].sum()), int(good["flagged"].sum())
    return Dealing(
        seed,
        2 * seen / (seen + lost + len(attack)),
        seen / len(attack),
        lost / len(good),
        float((good["highest"] > threshold).mean()),
        len(flows),
        len(attack),
        _shares(good, "kind", pl.col("flagged"), WORST_APPLICATION),
        _shares(attack, "label", ~pl.col("flagged"), 0.0),
    )


def scored(rows: pl.DataFrame, features: list[str], seed: int) -> NDArray[np.float64]:
    """How much of an attack each row is for a forest that has not seen its capture, (n,), 0 to 1."""
    values, attack = rows.select(features).to_numpy(), rows["attack"].to_numpy()
    captures, early = rows["capture"].to_numpy(), (rows["number"] < LEARNED_FROM).to_numpy()
    scores = np.zeros(len(rows))
    for learned, rest in StratifiedGroupKFold(FOLDS, shuffle=True, random_state=seed).split(
        values, attack, captures
    ):
        forest = RandomForestClassifier(
            n_estimators=50, max_depth=20, class_weight="balanced_subsample", random_state=0, n_jobs=-1
        )
        first = learned[early[learned]]
        forest.fit(values[first], attack[first])
        if forest.n_classes_ == 2:  # else this fold has all there is of a class
            scores[rest] = forest.predict_proba(values[rest])[:, 1]
    return scores


def _shares(flows: pl.DataFrame, of: str, what: pl.Expr, above: float) -> dict[str, tuple[float, int]]:
    found = flows.group_by(of).agg(share=what.mean(), flows=pl.len()).filter(pl.col("share") > above)
    return {name: (share, count) for name, share, count in found.sort("share", descending=True).rows()}


if __name__ == "__main__":
    sys.exit(main())
