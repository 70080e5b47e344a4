# SPDX-License-Identifier: Apache-2.0
"""One trial: a model fitted to some captures and judged, flow by flow, on others.

What a fold leaves behind are three histograms of margins (how far the best attack is ahead of benign), from
which every threshold can be judged later: so a journal of trials stays small, and nothing is fitted twice.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from wirewise.datasets.table import Table
from wirewise.evaluate.classes import matrix, numbers
from wirewise.evaluate.networks import weigh
from wirewise.evaluate.split import folds
from wirewise.tuning.space import BALANCED, EVEN, Settings

HALF = 200
"""Bins on either side of a margin of 0."""
BINS = 2 * HALF + 1
MOST_FLOWS = 500
"""As which flows of one capture count at most, where models are ranked: of the captures that we know, a
single flood holds half of all attack flows, and whoever knows that one would win."""
_SCALE = {"shares": HALF, "odds": HALF / 20}
"""Bins a unit: shares of trees lie between -1 and 1; logarithms of odds are cut at 20."""


@dataclass(frozen=True)
class Data:
    """What all trials read: n rows to learn from, and how they are split.

    rows : (n, n_features). labels, flow, position : (n,), class number, number of the flow, packet of the
    flow from 1. weight : (n,), 0 to 1, of a row's capture, see MOST_FLOWS. folds : row numbers to learn from
    and to test on. order : features by number, the one most worth its cost first.
    """

    rows: NDArray[np.int64]
    labels: NDArray[np.int64]
    flow: NDArray[np.int64]
    position: NDArray[np.int64]
    weight: NDArray[np.float64]
    classes: list[str]
    folds: tuple[tuple[NDArray[np.int64], NDArray[np.int64]], ...]
    order: tuple[int, ...]
    seed: int

    @classmethod
    def of(cls, table: Table, classes: list[str], by: str, count: int, seed: int) -> Data:
        """The rows of a table of which all are labelled; by, count : of the folds."""
        frame = table.frame
        flow, position = flows_of(frame)
        parts = tuple((part.learn, part.test) for part in folds(frame, by, count, seed=seed))
        order = tuple(range(len(table.feature_set.features)))
        weight = weight_of(frame)
        return cls(
            matrix(table), numbers(table, classes), flow, position, weight, classes, parts, order, seed
        )

    def columns(self, settings: Settings) -> list[int]:
        """The features that a trial reads, in the table's order."""
        return sorted(self.order[: settings.features])


def flows_of(frame: pl.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The number of each row's flow, and the row's place in it from 1; both (n,)."""
    key = pl.struct("capture", "flow")
    both = frame.select(
        flow=key.rank("dense").cast(pl.Int64), position=pl.int_range(pl.len()).over("capture", "flow") + 1
    )
    return both["flow"].to_numpy(), both["position"].to_numpy()


def weight_of(frame: pl.DataFrame) -> NDArray[np.float64]:
    """What a row's flow counts where models are ranked, (n,), see MOST_FLOWS."""
    flows = pl.col("flow").n_unique().over("capture")
    return frame.select((MOST_FLOWS / flows).clip(0, 1)).to_series().to_numpy()


Histograms = dict[str, NDArray[np.float64]]
"""Flows by margin, each (BINS,): `attack` and `benign` on the packet that decides (or the last, if a flow is
shorter), `losing` the largest margin of a benign flow up to then; `even_attack` and `even_benign` as the
first two, weighed by `weight_of`."""
HISTOGRAMS = ("attack", "benign", "losing", "even_attack", "even_benign")


def judge(data: Data, task: tuple[Settings, int]) -> Histograms:
    """The margins of a fold's flows, by a model that was fitted to the other folds."""
    settings, fold = task
    learn, test = data.folds[fold]
    columns = data.columns(settings)
    fitted = fit(data, settings, learn)
    return margins_by_flow(fitted, settings, data.rows[:, columns], data, test)


def fit(data: Data, settings: Settings, learn: NDArray[np.int64]) -> Any:
    """A trial's estimator, fitted to some of the rows. One thread, so that it is the same everywhere."""
    from sklearn.exceptions import ConvergenceWarning

    if settings.learn == "first":
        learn = learn[data.position[learn] <= settings.packet]
    rows, labels = data.rows[learn][:, data.columns(settings)], data.labels[learn]
    made = settings.make(data.seed)
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore", ConvergenceWarning)
        made.fit(rows, labels, **weigh(made, _weights(labels, data.weight[learn], settings)))
    return made


def _weights(
    labels: NDArray[np.int64], weight: NDArray[np.float64], settings: Settings
) -> NDArray[np.float64] | None:
    """Of each row, with a mean of 1; None if all weigh the same."""
    weights = weight.copy() if settings.weigh == EVEN else np.ones(len(labels))
    if settings.benign == BALANCED:
        weights /= np.maximum(np.bincount(labels, weights), 1e-9)[labels]
    else:
        weights[labels == 0] *= float(settings.benign)
    weights *= len(weights) / weights.sum()
    return None if np.allclose(weights, 1) else weights


def margins(fitted: Any, rows: NDArray[np.int64]) -> tuple[NDArray[np.float64], str]:
    """How far the best other class is ahead of benign, (n,), and the kind of unit, a key of _SCALE: the
    order, and what is above 0, are those of the model in integers.
    """
    classes = np.asarray(fitted.classes_)
    with threadpool_limits(1):
        if hasattr(fitted, "decision_function"):
            raw = np.asarray(fitted.decision_function(rows), np.float64)
            if raw.ndim == 1:
                return (raw if classes[0] == 0 else np.full(len(rows), 20.0)), "odds"
            shares, unit = raw, "odds"
        else:
            shares, unit = np.asarray(fitted.predict_proba(rows), np.float64), "shares"
    if hasattr(fitted, "steps"):
        shares, unit = np.log(np.maximum(shares, 1e-12)), "odds"
    if classes[0] != 0:  # no benign row was there to learn from
        return np.full(len(rows), 20.0), "odds"
    if shares.shape[1] == 1:
        return np.full(len(rows), -20.0), "odds"
    return shares[:, 1:].max(axis=1) - shares[:, 0], unit


def margins_by_flow(
    fitted: Any, settings: Settings, rows: NDArray[np.int64], data: Data, test: NDArray[np.int64]
) -> Histograms:
    """As `judge`, of a fitted model; rows : with only the features it reads. test : row numbers."""
    test = test[data.position[test] <= settings.packet]
    values, unit = margins(fitted, rows[test])
    by_flow = np.lexsort((data.position[test], data.flow[test]))
    starts = np.flatnonzero(np.diff(data.flow[test][by_flow], prepend=-1))
    ends = np.append(starts[1:], len(by_flow)) - 1
    first = test[by_flow[starts]]
    attack, weight = data.labels[first] > 0, data.weight[first]
    deciding = _bins(values[by_flow[ends]], unit)
    largest = _bins(np.maximum.reduceat(values[by_flow], starts), unit)
    return {
        "attack": np.bincount(deciding[attack], minlength=BINS).astype(float),
        "benign": np.bincount(deciding[~attack], minlength=BINS).astype(float),
        "losing": np.bincount(largest[~attack], minlength=BINS).astype(float),
        "even_attack": np.bincount(deciding[attack], weight[attack], minlength=BINS).round(6),
        "even_benign": np.bincount(deciding[~attack], weight[~attack], minlength=BINS).round(6),
    }


def _bins(values: NDArray[np.float64], unit: str) -> NDArray[np.int64]:
    """Bins that keep apart what is above a threshold: HALF holds all that is just not above 0."""
    return np.clip(np.ceil(values * _SCALE[unit] - 1e-9), -HALF, HALF).astype(np.int64) + HALF


@dataclass(frozen=True)
class Score:
    """How a model did on flows it had not seen; ratios of 0 to 1.

    even_f1 : F1 of attack against benign at the packet that decides, where a capture counts as MOST_FLOWS at
    most; models are ranked by it. f1, precision, recall : where every flow counts the same. flagged : share
    of benign flows flagged at that packet. losing : share of benign flows with a verdict against them there
    or before. elsewhere : the same, each fold judged with the threshold that the others ask for, which is
    what to expect of new captures. spread : least and largest even_f1 of a fold: how much it hangs on which
    captures are met.
    """

    even_f1: float
    f1: float
    precision: float
    recall: float
    flagged: float
    losing: float
    elsewhere: float
    spread: tuple[float, float]


def score(folds: Sequence[Histograms], wish: float | None) -> Score:
    """All folds together. wish : the share of benign flows that may lose a packet: the least threshold is
    taken that keeps to it; None: the largest score wins.
    """
    at = threshold(folds, wish)
    lost = benign = 0.0
    for number, own in enumerate(folds):
        others = [other for index, other in enumerate(folds) if index != number] or [own]
        lost += own["losing"][threshold(others, wish) + 1 :].sum()
        benign += own["losing"].sum()
    single = [score_at([fold], at, 0).even_f1 for fold in folds if fold["attack"].any()]
    found = score_at(folds, at, lost / max(1.0, benign))
    return replace(found, spread=(min(single), max(single))) if single else found


def score_at(folds: Sequence[Histograms], at: int, elsewhere: float) -> Score:
    """All folds together, where what lies above a bin is flagged."""
    total = {name: np.sum([fold[name] for fold in folds], axis=0) for name in HISTOGRAMS}
    above = {name: float(bins[at + 1 :].sum()) for name, bins in total.items()}
    count = {name: max(1e-9, float(bins.sum())) for name, bins in total.items()}
    found = _f1(above["even_attack"], above["even_benign"], count["even_attack"])
    return Score(
        even_f1=found,
        f1=_f1(above["attack"], above["benign"], count["attack"]),
        precision=above["attack"] / max(1e-9, above["attack"] + above["benign"]),
        recall=above["attack"] / count["attack"],
        flagged=above["benign"] / count["benign"],
        losing=above["losing"] / count["losing"],
        elsewhere=elsewhere,
        spread=(found, found),
    )


def threshold(folds: Sequence[Histograms], wish: float | None) -> int:
    """The lowest bin, HALF or more, above which no more than the wished share of benign flows lie."""
    if wish is None:
        return HALF
    counts = np.sum([fold["losing"] for fold in folds], axis=0)
    above = counts.sum() - np.cumsum(counts)
    fits = np.flatnonzero(above <= int(wish * counts.sum()))
    return max(HALF, int(fits[0]))


def _f1(caught: float, flagged: float, attacks: float) -> float:
    return 2 * caught / (attacks + caught + flagged)
