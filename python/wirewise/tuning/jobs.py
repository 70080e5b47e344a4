# SPDX-License-Identifier: Apache-2.0
"""The jobs of a search: done by the workers unless the journal knows the answer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from wirewise.errors import InputError
from wirewise.evaluate.importance import Importance
from wirewise.parallel import Workers
from wirewise.tuning import costs
from wirewise.tuning.journal import Journal
from wirewise.tuning.space import Settings
from wirewise.tuning.trial import BINS, HISTOGRAMS, Data, Histograms, fit, judge, margins_by_flow

Found = Any


def _judge(data: Data, task: tuple[Settings, int, tuple[int, ...]]) -> dict[str, dict[str, float]]:
    """Histograms as the journal has them: bin -> flows, without the empty bins."""
    settings, fold, order = task
    return _sparse(judge(replace(data, order=order), (settings, fold)))


def _sparse(found: Histograms) -> dict[str, dict[str, float]]:
    return {name: {str(at): float(bins[at]) for at in np.flatnonzero(bins)} for name, bins in found.items()}


def _price(data: Data, task: tuple[Settings, dict[str, Any], bool, bool, tuple[int, ...]]) -> dict[str, Any]:
    found = costs.price(replace(data, order=task[4]), task[:4])
    return {**asdict(found), "object": found.object.hex()}


def _lean(data: Data, task: tuple[Settings, int, tuple[int, ...]]) -> dict[str, Any]:
    """What `_judge` finds, and how many points of accuracy are lost without each feature that is read."""
    settings, fold, order = task
    data = replace(data, order=order)
    learn, test = data.folds[fold]
    columns = data.columns(settings)
    rows = data.rows[:, columns]
    fitted = fit(data, settings, learn)
    found = margins_by_flow(fitted, settings, rows, data, test)
    test = test[data.position[test] <= settings.packet]
    asked = Importance.of(
        fitted.predict, rows[test], data.labels[test], list(map(str, columns)), seed=data.seed
    )
    return {"lost": asked.lost, "histograms": _sparse(found)}


_KINDS: dict[str, tuple[Callable[[Data, Any], Any], Callable[[Any], Any]]] = {}
"""Kind of a job -> what does it, and what reads its result from the journal."""


def _histograms(found: Any) -> Any:
    read = {}
    for name in HISTOGRAMS:
        bins = np.zeros(BINS)
        for at, count in found[name].items():
            bins[int(at)] = float(count)
        read[name] = bins
    return read


def _as_priced(found: Any) -> Any:
    checked = costs.Price(int(found["instructions"]), bytes.fromhex(found["object"]), str(found["refused"]))
    return {**asdict(checked), "object": found["object"]}


def _as_lean(found: Any) -> Any:
    return [float(each) for each in found["lost"]], _histograms(found["histograms"])


_KINDS.update(
    judge=(_judge, _histograms),
    price=(_price, _as_priced),
    lean=(_lean, _as_lean),
)


class Jobs:
    """Workers and a journal. best : shown with the progress."""

    def __init__(
        self,
        data: Data,
        journal: Path | None,
        asked: Mapping[str, Any],
        progress: Callable[[int, int, Any], None],
        *,
        jobs: int | None,
        ray: str | None,
    ) -> None:
        self._journal = Journal(journal, asked)
        self._workers = Workers(data, jobs=jobs, ray=ray)
        self._progress = progress
        self._total = 0
        self.done = 0
        self.best: Any = None

    def __enter__(self) -> Jobs:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._workers.__exit__(kind, error, trace)
        self._journal.__exit__(kind, error, trace)

    def over(self, kind: str, tasks: Sequence[Any]) -> Iterator[tuple[int, Found]]:
        """Yields (number of the task, what was found): first what the journal knows, then as it comes."""
        work, read = _KINDS[kind]
        keys = [_key(kind, task) for task in tasks]
        self._total += len(tasks)
        missing = [index for index, key in enumerate(keys) if key not in self._journal]
        for index in sorted({*range(len(tasks))} - {*missing}):
            try:
                known = read(self._journal[keys[index]])
            except (ValueError, TypeError, KeyError, IndexError, AttributeError):
                raise InputError(
                    "the journal", f"has a damaged entry, {keys[index]}", "give another"
                ) from None
            yield index, known
            self._advance()
        for number, found in self._workers.over(work, [tasks[index] for index in missing]):
            self._journal.add(keys[missing[number]], found)
            yield missing[number], read(found)
            self._advance()

    def _advance(self) -> None:
        self.done += 1
        self._progress(self.done, self._total, self.best)


def _key(kind: str, task: Any) -> str:
    """The name of a job in the journal: a digest of all that it is given, behind its kind."""
    text = json.dumps(task, sort_keys=True, default=lambda value: value.to_dict())
    return f"{kind} {hashlib.sha256(text.encode()).hexdigest()[:32]}"
