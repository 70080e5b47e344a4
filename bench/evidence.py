# SPDX-License-Identifier: Apache-2.0
"""What evidence by sender is worth on sources that the model has not seen.

    python -m bench.evidence CAPTURES [CAPTURES ...] [--feature-set intrusion] [--estimator boosting]
        [--trees 30] [--depth 10] [--dealings 4] [--json]

CAPTURES: folders with manifests that name sources (docs/labels.md). The model is cross-validated over
sources, once for each dealing of the folds, as `python -m bench.unseen` does. A flow is an attack to it from
a margin on, on any of its packets; that verdict is kept of its sender at the flow's first packet, and asked
for at its first and its last one (`wirewise.policy.evidence`). For each rule of RULES, and for no rule, the
margin is the least with which benign flows lose no more than a wish; each source is judged with the margin
that the others call for. Families are the mean over kinds of attacks of the mean over their sources; captures
and repositories are means of the share of attack flows found.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bench.files import captured
from bench.unseen import RECIPE, spread
from wirewise.datasets import Table
from wirewise.errors import InputError, WirewiseError
from wirewise.evaluate import train
from wirewise.evaluate.out_of_fold import of_kinds
from wirewise.feature_sets import FeatureSet
from wirewise.policy.evidence import SCORE_MAX, Evidence, Senders

WISHES = (0.001, 0.01)
"""Shares of benign flows that may lose a packet, as means over captures."""
MARGINS = 24
"""Margins that are tried, at even steps of the ranks of the largest benign scores of captures."""


def rule(by: str, last: int, flows: int, percent: int) -> Evidence:
    text = f"{percent} % of the last {last} flows by {by}, of {flows} at least"
    return Evidence(by, last, flows, -(-percent * SCORE_MAX // 100), 600 * 10**9, text)


RULES: tuple[Evidence | None, ...] = (
    None,
    rule("source", 20, 1, 50),
    rule("source", 20, 3, 50),
    rule("source", 20, 3, 30),
)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.evidence", description=__doc__.split("\n")[0])
    parser.add_argument("captures", type=Path, nargs="+", help="folders with manifest.json")
    parser.add_argument("--feature-set", default="intrusion", help="preset or file [intrusion]")
    parser.add_argument("--estimator", default="boosting", help="as of train [boosting]")
    parser.add_argument("--trees", type=int, default=30, help="[30]")
    parser.add_argument("--depth", type=int, default=10, help="[10]")
    parser.add_argument("--dealings", type=int, default=4, help="ways to deal the sources [4]")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    try:
        table = captured(options.captures, FeatureSet.load(options.feature_set))
        training = train(
            table, options.estimator, trees=options.trees, depth=options.depth, two_classes=True,
            recipe=RECIPE, group="source", seeds=options.dealings,
        )  # fmt: skip
        if training.folds is None or not training.folds.scored:
            raise InputError("the captures", "cannot be cross-validated", "give more of them")
        found = measured(table, training.folds.scored)
    except WirewiseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if options.json:
        command = f"python -m bench.evidence {' '.join(folder.name for folder in options.captures)}"
        command += f" --feature-set {options.feature_set} --estimator {options.estimator}"
        command += f" --trees {options.trees} --depth {options.depth} --dealings {options.dealings} --json"
        print(json.dumps({"command": command, "rules": found}, indent=1))
        return 0
    for step in found:
        print(
            f"{100 * step['wish']:g} % asked, {step['rule']}: {spread(step['elsewhere'])} % lost, "
            f"{spread(step['families'])} % of families, {spread(step['captures'])} % of captures, "
            f"{spread(step['repositories'])} % of repositories found"
        )
    return 0


def measured(table: Table, dealings: list[pl.DataFrame]) -> list[dict[str, Any]]:
    """For each of RULES and WISHES what each dealing lost and found. dealings: of `out_of_fold.flows`."""
    # `6 192.0.2.1|40000 198.51.100.2|80`: the client is the end that sent the first packet, 1 or 2.
    end = (
        pl.col("flow").str.split(" ").list.get(pl.col("sender"), null_on_oob=True).str.split("|").list.get(0)
    )
    times = table.frame.group_by("capture", "flow", maintain_order=True).agg(
        end.first().alias("client"), begins=pl.col("time_ns").min(), ends=pl.col("time_ns").max()
    )
    sought = [scored.join(times, on=["capture", "flow"], maintain_order="left") for scored in dealings]
    steps = []
    for each in RULES:
        points = [_dealing(flows, each) for flows in sought]
        for number, wish in enumerate(WISHES):
            names = points[0][number].keys()
            about = {"wish": wish, "rule": each.text if each else "each flow by itself"}
            steps.append(about | {name: [point[number][name] for point in points] for name in names})
    return steps


def _dealing(flows: pl.DataFrame, each: Evidence | None) -> list[dict[str, float]]:
    """What one dealing loses and finds, for each of WISHES."""
    margin = flows["1"].to_numpy()
    benign = ~flows["attack"].to_numpy()
    tried = np.unique(np.quantile(margin[benign], 1 - np.linspace(0, 0.1, MARGINS)).astype(np.int64))
    flagged = [_flagged(flows, margin > by, each) for by in tried]
    weight = _weights(flows.filter(~pl.col("attack"))["capture"])
    unit = flows["unit"].to_numpy()
    lost = np.stack([weight * one[benign] for one in flagged])  # (margins, benign flows)
    found = []
    for wish in WISHES:
        allowed = lost.sum(1) <= wish + 1e-12
        at = _least(allowed)
        elsewhere = 0.0
        for own in np.unique(unit[benign]):
            mine = unit[benign] == own
            others = weight[~mine].sum()
            within = lost[:, ~mine].sum(1) <= wish * others + 1e-12
            elsewhere += float(lost[_least(within)][mine].sum())
        seen = flows.select("capture", "label", "unit", "attack", flagged=pl.Series(flagged[at]))
        seen = seen.filter("attack")
        found.append(
            {
                "margin": float(tried[at]),
                "lost": float(lost[at].sum()),
                "elsewhere": elsewhere,
                "families": _mean(of_kinds(seen)),
                "captures": _mean(seen.group_by("capture").agg(pl.col("flagged").mean())),
                "repositories": _mean(seen.group_by("unit").agg(pl.col("flagged").mean())),
            }
        )
    return found


def _least(allowed: NDArray[np.bool_]) -> int:
    """The least margin from which on all are allowed; the largest if none is."""
    return int(np.flatnonzero(~allowed).max(initial=-1) + 1) if allowed[-1] else len(allowed) - 1


def _weights(capture: pl.Series) -> NDArray[np.float64]:
    """Each capture weighs the same, and all together 1."""
    count = capture.to_frame("capture").select(pl.len().over("capture")).to_series().to_numpy()
    return np.asarray(1 / count / capture.n_unique(), np.float64)


def _mean(shares: pl.DataFrame) -> float:
    return float(shares["flagged"].mean() or 0)  # type: ignore[arg-type]


def _flagged(flows: pl.DataFrame, attacks: NDArray[np.bool_], each: Evidence | None) -> NDArray[np.bool_]:
    """Which flows lose a packet. attacks: to the model."""
    if each is None:
        return attacks
    capture, client = flows["capture"].to_list(), flows["client"].to_list()
    begins, ends = flows["begins"].to_numpy(), flows["ends"].to_numpy()
    senders, flagged = Senders(each), np.zeros(len(flows), bool)
    whose = list(zip(capture, client, strict=True))
    events = [(time, 0, number) for number, time in enumerate(begins.tolist())]
    events += [(ends[number].item(), 1, number) for number in np.flatnonzero(attacks).tolist()]
    for time, asks, number in sorted(events):
        if asks:
            flagged[number] |= senders.weigh(whose[number], time).enough
        else:
            acts = bool(attacks[number])
            senders.judge(whose[number], time, first=True, before=False, acts=acts)
            flagged[number] = acts and senders.weigh(whose[number], time).enough
    return flagged


if __name__ == "__main__":
    sys.exit(main())
