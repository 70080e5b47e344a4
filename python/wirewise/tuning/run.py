# SPDX-License-Identifier: Apache-2.0
"""The search itself: which trials run on which folds, what they cost, and the best of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from wirewise import ending
from wirewise.datasets.table import Table
from wirewise.errors import InputError, choose
from wirewise.evaluate import leaks
from wirewise.evaluate.classes import check_classes, matrix, numbers
from wirewise.evaluate.moments import At
from wirewise.evaluate.report import Report
from wirewise.evaluate.split import Split, split
from wirewise.evaluate.train import Training, cross_validate, said_by
from wirewise.evaluate.train import margins as margins_of
from wirewise.tuning import costs
from wirewise.tuning.jobs import Jobs
from wirewise.tuning.ranking import rank
from wirewise.tuning.samplers import batches
from wirewise.tuning.space import METHODS, Settings, Space
from wirewise.tuning.trial import (
    Data,
    Histograms,
    Score,
    fit,
    margins_by_flow,
    score,
    score_at,
    threshold,
)

KEEP = 0.5
"""Share of the trials that go on to more folds."""
LEAST = 3
"""Trials that go on at least."""


@dataclass(frozen=True)
class Limits:
    """What a model may cost; None: no limit.

    instructions : of the whole program's code. ns : a packet, measured in this kernel. benign_loss : share of
    benign flows, 0 to below 1, that may lose a packet.
    """

    instructions: int | None = None
    ns: float | None = None
    benign_loss: float | None = None


@dataclass
class Trial:
    """A model that was tried.

    score : None before it was judged. rejected_because : why it went no further; "" if it was judged on every
    fold.
    """

    number: int
    settings: Settings
    folds: dict[int, Histograms] = field(default_factory=dict, repr=False)
    instructions: int | None = None
    ns: float | None = None
    object: bytes = field(default=b"", repr=False)
    score: Score | None = None
    rejected_because: str = ""

    @property
    def f1(self) -> float:
        """What trials are ranked by."""
        return self.score.even_f1 if self.score else -1.0

    def __repr__(self) -> str:
        if not self.score:
            why = self.rejected_because or "not judged"
            return f"<Trial {self.number}: {self.settings.describe()}, {why}>"
        size = f", {self.instructions:,} instructions" if self.instructions else ""
        return f"<Trial {self.number}: {self.settings.describe()}, F1 {self.f1:.4f}{size}>"

    def to_dict(self) -> dict[str, Any]:
        return {
            "trial": self.number,
            "settings": self.settings.to_dict(),
            "score": self.score and asdict(self.score),
            "instructions": self.instructions,
            "ns": self.ns,
            "rejected_because": self.rejected_because,
        }


@dataclass(frozen=True)
class Found:
    """What a search found.

    trials : all, by number. pareto : the Pareto front of F1 and cost, among those judged on every fold
    and within the limits, the best first. best : the first of them. training : the best model, and its
    report on the captures that the search never saw. apart : its score by flow there, with the threshold that
    the search's folds ask for. asked : what was searched for.
    """

    trials: list[Trial]
    pareto: list[Trial]
    best: Trial
    training: Training = field(repr=False)
    apart: Score
    asked: dict[str, Any]

    def __repr__(self) -> str:
        tried = f"{len(self.trials)} trial{'s' if len(self.trials) > 1 else ''}"
        apart = f"F1 {self.apart.even_f1:.4f} on what was kept apart"
        return f"<Found in {tried}: {self.best.settings.describe()}, {apart}>"

    def to_dict(self) -> dict[str, Any]:
        return {
            "asked": self.asked,
            "trials": [trial.to_dict() for trial in self.trials],
            "pareto": [trial.number for trial in self.pareto],
            "best": self.best.number,
            "kept_apart": asdict(self.apart),
            "report": self.training.report.to_dict(),
            "warnings": list(self.training.doubts),
        }


Progress = Callable[[int, int, "Trial | None"], None]
"""Called with the number of finished jobs, of those known of, and the best trial so far."""


class Stopped(Exception):  # no error: the user stopped it
    """The search was interrupted; best : what it would have given, None if nothing is fit to use."""

    def __init__(self, best: Found | None, done: int) -> None:
        super().__init__("the search was interrupted")
        self.best, self.done = best, done


def search(
    table: Table,
    space: Space | None = None,
    *,
    trials: int = 24,
    method: str = "halving",
    folds: int = 5,
    limits: Limits | None = None,
    measure: bool = False,
    group: str | None = None,
    test_share: float = 0.3,
    seed: int = 0,
    jobs: int | None = 1,
    ray: str | None = None,
    journal: Path | None = None,
    digest: str = "",
    keep_best: bool = False,
    refit: bool = False,
    progress: Progress = lambda done, total, best: None,
) -> Found:
    """The model with the best F1 of attack against benign flows on captures it has not seen, within limits.

    A part of the captures (test_share, drawn with the seed as `train` draws it) is kept apart and never
    touched by the search; the others are cross-validated over captures. table : its unlabelled rows are left
    out. method : one of METHODS. measure : measure ns a packet even without such a limit. jobs, ray : see
    `Workers`. journal : a file to go on with. digest : of the table, by which the journal knows it. keep_best
    : on Ctrl-C, fit the best model so far. refit : fit the best again in the end, to all rows; the report is
    about the model before, and the margins that `compile` takes come from a cross-validation over all rows.

    The same seed gives the same result with any number of jobs, unless ns decide. Raises InputError where
    the table cannot be split, or nothing fits the limits; Stopped on Ctrl-C.
    """
    if method not in METHODS:
        raise InputError(f"method {method!r}", "is not known", choose(method, METHODS))
    if trials < 1 or folds < 2:
        raise InputError(f"{trials} trials over {folds} folds", "must be at least 1 over 2")
    limits = limits or Limits()
    usable = table.labelled
    classes = check_classes(usable)
    space = (space or Space()).with_features(len(usable.feature_set.features))
    parts = split(usable.frame, group, test_share=test_share, seed=seed)
    learned = Table(usable.frame[parts.learn], usable.feature_set)
    data = Data.of(learned, classes, parts.by, folds, seed)
    if len(data.folds) < 2:
        raise InputError("the table", f"has too few {parts.by}s for folds", "give more captures")
    asked = {
        "space": asdict(space), "trials": trials, "method": method, "folds": folds, "limits": asdict(limits),
        "split": f"by {parts.by}", "test_share": test_share, "seed": seed,
    }  # fmt: skip
    with Jobs(data, journal, asked | {"table": digest}, progress, jobs=jobs, ray=ray) as work:
        if min(space.features) < len(usable.feature_set.features):
            data = replace(data, order=rank(data, usable.feature_set, work))
        asked["order"] = [usable.feature_set.feature_names[index] for index in data.order]
        state = _State(
            data, usable.feature_set, limits, measure or limits.ns is not None, work, len(data.folds)
        )
        try:
            for batch in batches(method, space, trials, seed, state.all):
                state.run(batch, halve=method == "halving")
        except KeyboardInterrupt:
            found = None
            if keep_best and state.finished:
                with ending.held():
                    found = _found(state, usable, parts, classes, asked, refit=refit)
            raise Stopped(found, work.done) from None
    return _found(state, usable, parts, classes, asked, refit=refit)


class _State:
    """Trials so far, and what is done with a batch of them."""

    def __init__(
        self, data: Data, feature_set: Any, limits: Limits, measure: bool, work: Jobs, folds: int
    ) -> None:
        self.data, self.feature_set, self.limits, self.measure = data, feature_set, limits, measure
        self.work, self.folds = work, folds
        self.all: list[Trial] = []

    @property
    def finished(self) -> list[Trial]:
        """Judged on every fold, within the limits."""
        return [trial for trial in self.all if not trial.rejected_because and len(trial.folds) == self.folds]

    def run(self, settings: Sequence[Settings], *, halve: bool) -> None:
        """Prices, then folds; with halve only the better go on to more folds."""
        batch = [Trial(len(self.all) + index, each) for index, each in enumerate(settings)]
        self.all += batch
        self._prices(batch)
        going = [trial for trial in batch if not trial.rejected_because]
        for count in _rungs(self.folds) if halve else [self.folds]:
            self._judge(going, count)
            if count == self.folds:
                break
            going = self._better(going, count)

    def _prices(self, batch: list[Trial]) -> None:
        margin = self.limits.benign_loss is not None
        plain = self.feature_set.to_dict()
        tasks = [(trial.settings, plain, margin, self.measure, self.data.order) for trial in batch]
        for index, found in self.work.over("price", tasks):
            trial = batch[index]
            trial.instructions, trial.object = found["instructions"], bytes.fromhex(found["object"])
            if found["refused"]:
                trial.rejected_because = f"cannot be compiled: {found['refused']}"
            elif self.limits.instructions is not None and trial.instructions > self.limits.instructions:
                trial.rejected_because = f"{trial.instructions:,} instructions"
        if self.measure and (built := [trial for trial in batch if not trial.rejected_because]):
            self._measure(built)

    def _measure(self, batch: list[Trial]) -> None:
        for trial, ns in zip(batch, costs.nanoseconds([each.object for each in batch]), strict=True):
            trial.ns = ns
            if self.limits.ns is not None and ns > self.limits.ns:
                trial.rejected_because = f"{ns:.0f} ns a packet"

    def _judge(self, going: list[Trial], count: int) -> None:
        wanted = [(trial, fold) for trial in going for fold in range(count) if fold not in trial.folds]
        tasks = [(trial.settings, fold, self.data.order) for trial, fold in wanted]
        for index, found in self.work.over("judge", tasks):
            trial, fold = wanted[index]
            trial.folds[fold] = found
            if len(trial.folds) == count:
                trial.score = score(list(trial.folds.values()), self.limits.benign_loss)
                self.work.best = max(self.finished, key=_rank, default=None)

    @staticmethod
    def _better(going: list[Trial], count: int) -> list[Trial]:
        ranked = sorted(going, key=_rank, reverse=True)
        kept = ranked[: max(LEAST, math.ceil(KEEP * len(ranked)))]
        for trial in ranked[len(kept) :]:
            trial.rejected_because = f"others were better on {count} folds"
        return kept


def _rungs(folds: int) -> Iterator[int]:
    """Folds that trials are judged on, from one rung to the next: 2, 3, 5."""
    count = 2
    while count < folds:
        yield count
        count = math.ceil(1.5 * count)
    yield folds


def _rank(trial: Trial) -> tuple[float, float, int]:
    """The better the larger: F1, then the cheaper, then the earlier."""
    return trial.f1, -_cost(trial), -trial.number


def _cost(trial: Trial) -> float:
    return trial.ns if trial.ns is not None else float(trial.instructions or 0)


def _pareto(trials: Sequence[Trial]) -> list[Trial]:
    found: list[Trial] = []
    for trial in sorted(trials, key=_rank, reverse=True):
        if not found or _cost(trial) < _cost(found[-1]):
            found.append(trial)
    return found


def _found(
    state: _State, usable: Table, parts: Split, classes: list[str], asked: dict[str, Any], *, refit: bool
) -> Found:
    """The best model, fitted to all that the search may learn from, and judged on what was kept apart."""
    if not state.finished:
        said = sorted({trial.rejected_because for trial in state.all if trial.rejected_because})[:3]
        raise InputError("the search", f"found no model within the limits ({'; '.join(said)})", "raise them")
    pareto, data = _pareto(state.finished), state.data
    best = pareto[0]
    columns = data.columns(best.settings)
    fitted = fit(data, best.settings, np.arange(len(data.rows)))
    table = Table(usable.frame, costs.narrowed(usable.feature_set, columns))
    rows, labels = matrix(table), numbers(table, classes)
    report = Report.of(labels[parts.test], np.asarray(fitted.predict(rows[parts.test]), np.int64), classes)
    everything = replace(Data.of(usable, classes, parts.by, asked["folds"], data.seed), order=data.order)
    own = margins_by_flow(fitted, best.settings, rows, everything, parts.test)
    at = threshold(list(best.folds.values()), state.limits.benign_loss)
    lost = float(own["losing"][at + 1 :].sum() / max(1.0, own["losing"].sum()))
    apart = score_at([own], at, lost)
    doubts = leaks.warnings(usable.frame, rows, labels, classes, table.feature_set.feature_names, parts)
    margins: dict[str, Any] = {}
    if refit:
        crossed = cross_validate(
            usable.frame, labels, classes, parts.by, asked["folds"], [data.seed],
            At(packets=(best.settings.packet,)),
            lambda part: said_by(
                fit(everything, best.settings, part.learn), rows[part.test], len(classes)
            ),
        )  # fmt: skip
        fitted = fit(everything, best.settings, np.arange(len(rows)))
        margins = margins_of(fitted, crossed, rows, classes)
    facts = {
        "estimator": best.settings.estimator,
        **({"network": "int8", "hidden": list(best.settings.hidden)} if best.settings.hidden else
           {"trees": best.settings.trees, "depth": best.settings.depth, "leaf": best.settings.leaf}),
        "class_weight": [] if best.settings.benign == "1" else [f"benign={best.settings.benign}"],
        "seed": asked["seed"],
        "test_share": asked["test_share"],
        "split": asked["split"],
        "refitted": refit,
        "packets": len(usable.frame),
        "packet": best.settings.packet,
        "learned_from": best.settings.learn,
        "weighed_by": best.settings.weigh,
        "search": {
            "method": asked["method"], "trials": len(state.all), "folds": asked["folds"],
            "limits": asked["limits"],
            "cross_validated": best.score and asdict(best.score), "kept_apart": asdict(apart),
        },
        **margins,
    }  # fmt: skip
    training = Training(fitted, classes, report, facts, table, parts, doubts=tuple(doubts))
    return Found(state.all, pareto, best, training, apart, asked)
