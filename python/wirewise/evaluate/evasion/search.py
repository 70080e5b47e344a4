# SPDX-License-Identifier: Apache-2.0
"""The least strength of a change at which a model no longer finds a flow.

All attackers in a capture make the same change at once, so that features which count over many flows see it
too, and the bundle's own program judges the changed packets. A strength is tried only where it can tell
something: strengths grow in steps, then the gaps below each flow's first escape are halved. Between two
strengths at which a flow's features reach the same leaf of every tree, features that only grow or only fall
reach it as well, so such a gap is closed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import count, pairwise
from os import sched_getaffinity
from pathlib import Path
from threading import Event
from typing import Any, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from wirewise import agent, ending
from wirewise.abi import Status
from wirewise.datasets import Table, write_capture
from wirewise.errors import InputError
from wirewise.evaluate.classes import benign_of, numbers
from wirewise.evaluate.evasion.changes import CHANGES, Change
from wirewise.evaluate.evasion.rewriting import Original
from wirewise.evaluate.moments import At
from wirewise.evaluate.operating_point import in_a_row
from wirewise.evaluate.per_flow import flow_verdicts
from wirewise.formats.bundle import Bundle
from wirewise.models import UNKNOWN
from wirewise.models.bounded import Bounded
from wirewise.models.tree import TreeEnsemble

MOST_TRIES = 32
"""Limit for one change on one capture."""
MOST_CAPTURES = 3
"""From which the flows of a label are drawn."""

_Path: TypeAlias = bytes | None
"""Which leaves of all trees a flow's features reach; None: not known."""
_Said: TypeAlias = tuple[bool, _Path]
"""Whether a flow is found, and its path."""


@dataclass(frozen=True)
class Least:
    """What one flow has to change. strength : None if it is found at all that were tried. exact : no smaller
    strength does it; otherwise one may, and there were too many to try.
    """

    capture: str
    flow: str
    family: str
    change: str
    strength: int | None
    exact: bool


@dataclass(frozen=True)
class Summary:
    """Flows of a family under one change. evaded : are no longer found at some strength. half : the least
    strength at which half of all flows have escaped, and said, the same in words; None: fewer ever do.
    exact : of how many flows the least is known for sure.
    """

    family: str
    change: str
    flows: int
    evaded: int
    exact: int
    half: int | None
    said: str

    @property
    def row(self) -> tuple[str, ...]:
        """In words, under `COLUMNS`."""
        escaped = f"{100 * self.evaded / self.flows:.1f}"
        return self.family, self.change, f"{self.flows:,}", escaped, self.said, f"{self.exact:,}"


COLUMNS = ("family", "change", "flows", "escaped %", "half of them by", "least known of")


@dataclass(frozen=True)
class Evasions:
    """found : a row for each flow and change. left_out : captures that could not be changed, and why."""

    found: list[Least]
    left_out: dict[str, str]

    @cached_property
    def summaries(self) -> list[Summary]:
        """By family and change, in the order of `CHANGES`."""
        families = sorted({one.family for one in self.found})
        made = []
        for family in families:
            for change in CHANGES.values():
                flows = [one for one in self.found if (one.family, one.change) == (family, change.name)]
                if not flows:
                    continue
                strengths = sorted(one.strength for one in flows if one.strength is not None)
                middle = (len(flows) + 1) // 2
                half = strengths[middle - 1] if len(strengths) >= middle else None
                said = "never" if half is None else change.said(half)
                exact = sum(one.exact for one in flows)
                made.append(Summary(family, change.name, len(flows), len(strengths), exact, half, said))
        return made

    def to_dict(self) -> dict[str, Any]:
        return {
            "families": [asdict(one) for one in self.summaries],
            "flows": [asdict(one) for one in self.found],
            "left_out": self.left_out,
        }


def evasions(
    path: Path,
    bundle: Bundle,
    table: Table,
    rows: Table,
    *,
    at: At,
    flows: int,
    after: int = 1,
    kernel: bool = False,
    seed: int = 0,
    progress: Callable[[float], None] = lambda share: None,
) -> Evasions:
    """Searches for flows that the bundle finds in captures.

    path : of the bundle. table, rows : of `on_captures.labelled` and `run`. at : when a flow is judged.
    flows : limit for each family; they are drawn by `seed`. after : verdicts in a row that a policy asks for.
    kernel : run changed captures there, not in the engine. progress : gets the share that is done, 0 to 1.
    """
    judge = _Judge(path, bundle, at, after, kernel)
    wanted = _drawn(judge, rows, flows, seed)
    found: list[Least] = []
    left_out: dict[str, str] = {}
    steps = len(wanted) * len(CHANGES)
    done = count(1)
    stopped = Event()

    def search(capture: str) -> list[Least] | str:
        families = wanted[capture]
        part = Table(table.frame.filter(pl.col("capture") == capture), table.feature_set)
        attacks = part.frame["packet"].to_numpy()[judge.is_attack(part)] - 1
        try:
            original = Original.read(Path(capture), frozenset(attacks.tolist()))
        except InputError as error:
            return str(error)
        trial = _Trial(judge, original, part.frame, stopped)
        unchanged = trial.run(original.packets())
        made = []
        for change in CHANGES.values():
            tries = _Tries(trial, change, unchanged)
            for flow, (strength, exact) in tries.least(list(families)).items():
                made.append(Least(capture, flow, families[flow], change.name, strength, exact))
            progress(next(done) / steps)
        return made

    with ThreadPoolExecutor(len(sched_getaffinity(0))) as pool:
        try:
            for capture, made in zip(wanted, pool.map(search, wanted), strict=True):
                if isinstance(made, str):
                    left_out[capture] = made
                else:
                    found += made
        except BaseException:
            stopped.set()
            pool.shutdown(cancel_futures=True)
            raise
    return Evasions(found, left_out)


@dataclass(frozen=True)
class _Judge:
    path: Path
    bundle: Bundle
    at: At
    after: int
    kernel: bool

    @cached_property
    def _benign(self) -> list[int]:
        """Classes that are not against a flow: what a model does not know passes."""
        classes = self.bundle.classes
        return [benign_of(classes), *(number for number, name in enumerate(classes) if name == UNKNOWN)]

    def is_attack(self, table: Table) -> NDArray[np.bool_]:
        """Whether each row's label is one of the model's classes, and against it, (n,)."""
        truth = numbers(table, self.bundle.classes)
        return (truth >= 0) & ~np.isin(truth, self._benign)

    def found(self, frame: pl.DataFrame, said: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether flows are found when they are judged, (F,), in the order in which they come. frame : n rows
        in order. said : class numbers, (n,).
        """
        if self.after > 1:
            said = in_a_row(frame, said, self.after)
        against = (~np.isin(said, self._benign)).astype(np.int64)
        return flow_verdicts(frame, np.zeros_like(against), against, 2, self.at).at[:, 1]

    def run(self, capture: Path) -> NDArray[np.void]:
        """A record for each packet, see `agent.trace`."""
        return agent.trace(
            capture,
            self.path,
            n_features=len(self.bundle.feature_set.features),
            seed=0,
            plane="kernel" if self.kernel else "engine",
        )

    def paths(self, frame: pl.DataFrame, records: NDArray[np.void]) -> list[_Path]:
        """How each flow's features go through the trees, in order of appearance. records : those of the
        frame's rows.
        """
        whole = self.bundle.model
        model = whole.model if isinstance(whole, Bounded) else whole
        bounds = whole.bounds if isinstance(whole, Bounded) else ()
        if not isinstance(model, TreeEnsemble) or self.at.every or self.after > 1:
            return [None] * frame["flow"].n_unique()
        flows = frame.with_row_index().group_by("flow", maintain_order=True)
        moments = flows.agg(
            pl.col("index").gather(row).first().alias(name) for name, row in self.at.rows.items()
        ).drop("flow")
        judged = records[moments.to_numpy()]
        rows = judged["feature"].reshape(-1, model.n_features)
        sides = [
            (rows[:, it.feature] > it.high).astype(np.int64) - (rows[:, it.feature] < it.low) for it in bounds
        ]
        ways = np.column_stack([model.leaves(rows), *sides]).reshape(len(moments), -1)
        # A verdict that was kept says nothing of the features now.
        known = judged["inferred"].all(axis=1)
        return [way.tobytes() if sure else None for way, sure in zip(ways, known, strict=True)]


def _drawn(judge: _Judge, rows: Table, flows: int, seed: int) -> dict[str, dict[str, str]]:
    """Up to `flows` found flows of each label, from few captures: by capture, with their labels."""
    attack = pl.Series(judge.is_attack(rows))
    theirs = rows.frame.filter(attack)
    found = judge.found(theirs, theirs["said"].to_numpy())
    names = theirs.group_by("capture", "flow", maintain_order=True).agg(pl.col("label").first())
    chosen = names.filter(pl.Series(found)).sort("label", "capture", "flow")
    chosen = chosen.sample(fraction=1, shuffle=True, seed=seed)
    captures = (
        chosen.select("label", "capture").unique(maintain_order=True).group_by("label", maintain_order=True)
    )
    chosen = chosen.join(captures.head(MOST_CAPTURES), on=["label", "capture"], maintain_order="left")
    chosen = chosen.group_by("label", maintain_order=True).head(flows)
    drawn: dict[str, dict[str, str]] = {}
    for label, capture, flow in sorted(chosen.select("label", "capture", "flow").iter_rows()):
        drawn.setdefault(capture, {})[flow] = label
    return drawn


@dataclass(frozen=True)
class _Trial:
    """part : a row for each packet of the capture. stopped : a search has failed."""

    judge: _Judge
    original: Original
    part: pl.DataFrame
    stopped: Event

    def run(self, packets: Iterable[tuple[int, bytes, int]]) -> dict[str, _Said]:
        """The verdict on each flow of a changed capture. packets : see `Original.packets`."""
        if self.stopped.is_set():
            raise CancelledError
        with ending.temporary_folder() as folder:
            path, origins = folder / "changed.pcap", []

            def written() -> Iterator[tuple[int, bytes]]:
                for time_ns, frame, origin in packets:
                    origins.append((time_ns, origin))
                    yield time_ns, frame

            write_capture(path, written())
            records = self.judge.run(path)
        times, packet = np.array(origins, np.int64).T
        classified = records["status"] == int(Status.CLASSIFIED)
        frame = self.part[packet[classified]].select("capture", "flow")
        frame = frame.with_columns(time_ns=pl.Series(times[classified]))
        records = records[classified]
        found = self.judge.found(frame, records["class_id"].astype(np.int64))
        names = frame["flow"].unique(maintain_order=True).to_list()
        paths = self.judge.paths(frame, records)
        return {name: (bool(one), path) for name, one, path in zip(names, found, paths, strict=True)}


class _Tries:
    """Strengths of one change on one capture, and what came of them."""

    def __init__(self, trial: _Trial, change: Change, unchanged: dict[str, _Said]) -> None:
        """Only strength 0 is tried yet, and what came of that is the same for every change."""
        self._trial, self._change = trial, change
        self._tried = {0: unchanged}

    def least(self, flows: Sequence[str]) -> dict[str, tuple[int | None, bool]]:
        """The least strength of each flow that is found without any, and whether it is sure."""
        flows = [flow for flow in flows if self._found(flow, 0)]
        strengths = self._change.strengths
        step = 1
        while any(self._first_escape(flow) is None for flow in flows) and strengths[-1] not in self._tried:
            self._try(min(strengths[0] + step - 1, strengths[-1]))
            step *= 2
        while len(self._tried) < MOST_TRIES:
            wanted = Counter(middle for flow in flows for middle in self._open(flow))
            if not wanted:
                break
            self._try(min(wanted, key=lambda strength: (-wanted[strength], strength)))
        return {flow: (self._first_escape(flow), not self._open(flow)) for flow in flows}

    def _try(self, strength: int) -> None:
        self._tried[strength] = self._trial.run(self._trial.original.packets(self._change, strength))

    def _said(self, flow: str, strength: int) -> _Said:
        # Without a packet that was classified nobody finds it.
        return self._tried[strength].get(flow, (False, None))

    def _found(self, flow: str, strength: int) -> bool:
        return self._said(flow, strength)[0]

    def _first_escape(self, flow: str) -> int | None:
        return next((at for at in sorted(self._tried) if not self._found(flow, at)), None)

    def _open(self, flow: str) -> list[int]:
        """The middles of the gaps in which a smaller strength may do it."""
        end = self._first_escape(flow)
        tried = [at for at in sorted(self._tried) if end is None or at <= end]
        middles = []
        for low, high in pairwise(tried):
            (found, before), (also, behind) = self._said(flow, low), self._said(flow, high)
            closed = found and also and before is not None and before == behind
            if high - low > 1 and not closed:
                middles.append((low + high) // 2)
        return middles
