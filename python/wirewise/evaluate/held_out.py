# SPDX-License-Identifier: Apache-2.0
"""Which rows of a table a model has not seen: those its training kept apart, else a new split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from wirewise.datasets.table import Table
from wirewise.errors import InputError
from wirewise.evaluate.split import GROUPS, split

WHAT = {"source": "sources", "capture": "captures", "host": "hosts", "time": "later flows", "flow": "flows"}
"""What a split by a group keeps apart, in words."""


Origin = Literal["kept apart", "trained on", "other table", "unknown"]


@dataclass(frozen=True)
class Parts:
    """A table's classified rows, in two parts with no capture, or flow, on both sides; by : which of them.

    learn : what a network is quantised with. test : the rest; the same rows where the table has too few
    captures or flows for two parts. all : both. origin : what is known of whether the model was trained on
    these rows.
    """

    learn: Table
    test: Table
    all: Table
    name: str
    origin: Origin
    by: str

    def judged(self, quantised: bool) -> tuple[Table, str]:
        """The rows to judge a model by, and what is known of them; quantised: `learn` made it what it is."""
        together = self.learn is self.test
        if self.origin == "kept apart":
            return self.test, f"{WHAT[self.by]} of {self.name} that training" + (
                " and quantisation have not seen" if quantised else " has not seen"
            )
        known = {
            "trained on": "it was trained on them",
            "other table": "it was trained on another table",
            "unknown": "wirewise cannot know whether the model was trained on them",
        }[self.origin]
        if not quantised:
            return self.all, f"rows of {self.name}; {known}"
        if together:
            return self.all, f"the rows of {self.name} it was quantised with: too few flows to keep any apart"
        return self.test, f"{WHAT[self.by]} of {self.name} that it was not quantised with; {known}"

    def learned(self, quantised: bool) -> Table:
        """The rows beside those of `judged`, which made the model what it is; where none were kept, all."""
        return self.learn if self.judged(quantised)[0] is self.test else self.all


def parts(table: Table, training: Mapping[str, Any] | None, *, digest: str, name: str) -> Parts:
    """The parts of a table for a model.

    training : the facts of a training record, None if there is none. digest : SHA-256 of the table's file.
    name : the table's, for people. The split is that of the training if it was on this table.
    """
    usable = table.labelled
    if not len(usable.frame):
        usable = table.classified
    share, seed = 0.3, 0
    by: str | None = None
    origin: Origin = "unknown"
    if training and "table_sha256" in training:
        origin = "other table"
        if training["table_sha256"] == digest:
            share, seed, by = training["test_share"], training["seed"], _group(training)
            origin = "kept apart" if by and not training.get("refitted") else "trained on"
    try:
        kept = split(usable.frame, by, test_share=share, seed=seed)
    except InputError:
        return Parts(usable, usable, usable, name, "unknown", "flow")
    learn, test = (Table(usable.frame[rows], table.feature_set) for rows in (kept.learn, kept.test))
    return Parts(learn, test, usable, name, origin, kept.by)


def _group(training: Mapping[str, Any]) -> str | None:
    """What the split of a training kept apart."""
    group = str(training.get("split")).removeprefix("by ")
    return group if group in GROUPS else None
