# SPDX-License-Identifier: Apache-2.0
"""All that is known of how good a model is: by packet and flow, over thresholds, its cost, what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from wirewise import html
from wirewise.errors import InputError
from wirewise.evaluate.classes import benign_of
from wirewise.evaluate.drift import Drift
from wirewise.evaluate.families import means
from wirewise.evaluate.held_out import Origin
from wirewise.evaluate.moments import At
from wirewise.evaluate.operating_point import lead
from wirewise.evaluate.per_flow import FIFTH, FlowReport, per_flow
from wirewise.evaluate.program_cost import ProgramCost
from wirewise.evaluate.report import Report
from wirewise.evaluate.unseen import Unseen, unseen
from wirewise.evaluate.verdict import Limits, Verdict, verdict
from wirewise.models import UNKNOWN, Model

if TYPE_CHECKING:
    from wirewise.evaluate.evasion import Evasions

Plane = Literal["reference", "engine", "kernel"]
"""What says the verdicts: the integer model in Python, or the program itself."""


@dataclass(frozen=True)
class Judged:
    """Labelled packets and what a model says of them.

    frame : n rows of a table, each labelled with one of the classes. truth, said : class numbers, (n,).
    Class 0 is benign. scores : how far an attack is ahead of benign, (n,), see `operating_point.margins`;
    None if the model has no scores.
    """

    frame: pl.DataFrame
    truth: NDArray[np.int64]
    said: NDArray[np.int64]
    scores: NDArray[np.int64] | None

    @classmethod
    def of(
        cls,
        frame: pl.DataFrame,
        truth: NDArray[np.int64],
        said: NDArray[np.int64],
        scores: NDArray[np.int64] | None,
        classes: list[str],
    ) -> tuple[Judged, list[str]]:
        """The same with benign as class 0, wherever the model has it; and the classes in that order.

        scores : of each output, (n, n_outputs). classes : names by number; the first is benign if none is
        called so.
        """
        benign = benign_of(classes)
        order = [benign, *(number for number in range(len(classes)) if number != benign)]
        place = np.argsort(order)
        ahead = None
        if scores is not None and scores.shape[1] == 1:
            ahead = scores[:, 0] if benign == 0 else 1 - scores[:, 0]
        elif scores is not None:
            # A class that a model says outside its bounds, `unknown`, has no score.
            ahead = lead(scores[:, [number for number in order if number < scores.shape[1]]])
        return cls(frame, place[truth], place[said], ahead), [classes[number] for number in order]


def has_scores(model: Model) -> bool:
    """Whether a model says how sure it is; majority votes do not."""
    try:
        model.favour(0)
    except InputError:
        return False
    return True


@dataclass(frozen=True)
class About:
    """What was judged by what.

    model : its file's name. summary : what it is. data : the name of the table, or the captures. plane :
    what said the verdicts. how : what is known of the rows, for people. origin : the same, in a word.
    captures : of how many they are. model_digest : SHA-256 of the integer model.
    """

    model: str
    summary: str
    data: str
    plane: Plane
    how: str
    origin: Origin
    captures: int
    model_digest: str


@dataclass(frozen=True)
class Evaluation:
    """How good one model is on one table, or on captures.

    about : what was judged by what. classes : names by number, benign first. verdict : what to do (`decision`
    and `sentence`), and the criteria. limits : of these. packets : every packet judged. flows : flows, judged
    at one of their packets. unseen : what neither training nor test has met. drift : from the flows that the
    model learned from, None without a bundle that remembers them. cost : of the program, None of a model
    alone. fidelity : estimator and integers, None without the estimator; compiled : the same as the bundle
    recorded. left_out : rows that were not used, by reason. evasion : what attackers would have to change,
    None unless it was asked for. late : the packet of a flow from which on a late model judges;
    None without one.
    """

    about: About
    classes: list[str]
    verdict: Verdict
    limits: Limits
    packets: Report
    flows: FlowReport
    unseen: Unseen
    drift: Drift | None = None
    cost: ProgramCost | None = None
    fidelity: dict[str, Any] | None = None
    compiled: dict[str, Any] | None = None
    left_out: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    after: int = 1
    evasion: Evasions | None = None
    late: int | None = None

    @property
    def policy(self) -> str:
        """A policy file that drops what may be dropped, and counts the rest."""
        classes = [name for name in self.classes if name != UNKNOWN]
        return self.verdict.policy(classes, self.after)

    @property
    def mean_recall(self) -> dict[str, float]:
        """Mean recall of attacks over `families`, `captures`, `sources`. The total over flows is the recall
        of `flows.attack`.
        """
        return means(self.verdict.named)

    @property
    def f1(self) -> float:
        """Of attack flows against benign ones."""
        return self.flows.attack.classes[1].f1

    def __repr__(self) -> str:
        said = f"{self.verdict.decision}, F1 {self.f1:.4f}"
        return f"<Evaluation of {self.about.model} on {self.about.data}: {said}>"

    def _repr_html_(self) -> str:
        rows = [(one.what, one.wanted, one.found) for one in self.verdict.criteria]
        criteria = html.table(("what is asked", "wanted", "found"), rows, right=(1, 2))
        return html.fragment(html.heading(self.verdict.sentence), criteria, self.flows.classes.to_html())

    def to_dict(self) -> dict[str, Any]:
        """The packets' report at the top, as `wirewise evaluate --json` prints it."""
        return {
            "about": asdict(self.about),
            "verdict": {**asdict(self.verdict), "may_drop": self.verdict.may_drop},
            "mean_recall": self.mean_recall,
            "limits": asdict(self.limits),
            **self.packets.to_dict(),
            "flows": self.flows.to_dict(),
            "unseen": self.unseen.to_dict(),
            "drift": self.drift and asdict(self.drift),
            "cost": self.cost and asdict(self.cost),
            "fidelity": self.fidelity,
            "compiled": self.compiled,
            "late": self.late,
            "left_out": self.left_out,
            "evasion": self.evasion and self.evasion.to_dict(),
            "warnings": self.warnings,
        }


def evaluation(
    judged: Judged,
    about: About,
    classes: list[str],
    features: Sequence[str],
    *,
    learned: pl.DataFrame | None = None,
    at: At = FIFTH,
    limits: Limits | None = None,
    with_others_margin: float | None = None,
    dealings: Mapping[str, Sequence[float]] | None = None,
    drift: Drift | None = None,
    late: int | None = None,
    **others: Any,
) -> Evaluation:
    """Everything about verdicts on packets.

    classes : names by number, benign first. features : names of the columns. learned : the rows that the
    model learned from, if they are known. at : when a flow is judged. limits, with_others_margin, dealings :
    see `verdict`. late : the packet from which on a late model judges. others : the rest of an `Evaluation`.
    """
    limits = limits or Limits()
    # What the model does not know passes, unless a policy says otherwise.
    unknown = judged.said == (classes.index(UNKNOWN) if UNKNOWN in classes else -1)
    said = np.where(unknown, 0, judged.said)
    scores = None if judged.scores is None else np.where(unknown, judged.scores.min(), judged.scores)
    flows = per_flow(judged.frame, judged.truth, said, classes, scores=scores, at=at, late=late)
    attack = pl.Series(judged.truth > 0)
    captures = tuple(judged.frame.filter(kind)["capture"].n_unique() for kind in (~attack, attack))
    new = unseen(judged.frame, judged.truth, classes, learned, features)
    decided = verdict(
        flows, (captures[0], captures[1]), about.origin, limits, with_others_margin,
        dealings=dealings, drift=drift, unseen=new,
    )  # fmt: skip
    packets = Report.of(judged.truth, judged.said, classes)
    return Evaluation(about, classes, decided, limits, packets, flows, new, drift, late=late, **others)
