# SPDX-License-Identifier: Apache-2.0
"""Whether what was measured is good enough to let a model drop packets: which classes, and what speaks
against the others.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import yaml
from numpy.typing import NDArray

from wirewise.errors import InputError
from wirewise.evaluate import intervals
from wirewise.evaluate.drift import OUT_OF_DEPTH, Drift
from wirewise.evaluate.families import (
    FEWEST_SOURCES,
    NOT_VISIBLE,
    Advice,
    Family,
    FlowVerdicts,
    families,
    kinds,
    of_nameless,
)
from wirewise.evaluate.held_out import Origin
from wirewise.evaluate.per_flow import UNNAMED, ApplicationLoss, FlowReport
from wirewise.evaluate.unseen import Unseen
from wirewise.text import listed

Decision = Literal["enforce", "observe only", "do not use"]

_LEARNED: dict[Origin, tuple[str, bool | None]] = {
    "kept apart": ("yes", True),
    "other table": ("another table", None),
    "unknown": ("not known", None),
    "trained on": ("no", False),
}

ENOUGH_FLOWS = 2
"""Flows of an application that lose a packet, from which on its share counts: one of three is no third."""
LEAST_PRECISION = 0.5
MOST_LOSS = 0.1
"""Below the one most of what it flags is benign; below it, or above the other, do not even observe."""
_FEW = 2  # captures of a kind, from which on others can be told of


@dataclass(frozen=True)
class Limits:
    """What must hold for a model to drop packets; shares are of 0 to 1.

    recall : share of a family's flows that must be found, at the lower end of its interval for other sources.
    benign_loss : share of benign flows that lose a packet, at most; elsewhere : the same of each application,
    and of other sources, see `intervals.elsewhere`.
    """

    recall: float = 0.5
    benign_loss: float = 0.01
    elsewhere: float = 0.03

    def __post_init__(self) -> None:
        for name, given in (("min_recall", self.recall), ("max_benign_loss", self.benign_loss)):
            if not 0 < given <= 1:
                raise InputError(f"{name} {given:g}", "must be above 0, and at most 1")


@dataclass(frozen=True)
class Criterion:
    """One condition: what is asked, what was found, and whether that is enough; met : None if nobody knows.
    why : the same as a reason against enforcing, for a sentence.
    """

    what: str
    wanted: str
    found: str
    met: bool | None
    why: str


@dataclass(frozen=True)
class Verdict:
    """decision : what to do. sentence : the same by family, with the reasons. criteria : all that was asked.
    families : with the advice on each. kinds : the same of the kinds of attacks within them, where labels
    name more than the model's classes. but : what the sentence does not say. losing : share of benign flows
    that lose a packet if just the classes that may be dropped are; losing_elsewhere : the same on other
    sources at worst (95 %), None with fewer than two.
    """

    decision: Decision
    sentence: str
    criteria: list[Criterion]
    families: list[Family] = field(default_factory=list)
    but: str = ""
    losing: float = 0.0
    losing_elsewhere: float | None = None
    kinds: list[Family] = field(default_factory=list)

    @property
    def named(self) -> list[Family]:
        """The attacks by the names that labels give them."""
        return self.kinds or self.families

    @property
    def may_drop(self) -> list[str]:
        """The classes that a policy may drop; none unless the decision is to enforce."""
        if self.decision != "enforce":
            return []
        return [family.name for family in self.families if family.advice == "enforce"]

    def policy(self, classes: Sequence[str], after: int = 1) -> str:
        """A policy file that drops the classes that may be dropped, and counts the others.

        classes : benign first. after : verdicts in a row that a flow needs.
        """
        dropped = {"action": "drop", "after": after} if after > 1 else "drop"
        actions = {name: dropped if name in self.may_drop else "count" for name in classes[1:]}
        said = "no class may be dropped on this evidence"
        if self.may_drop:
            said = f"{_percent(self.losing)} of the benign flows judged lose a packet by it"
            if self.losing_elsewhere is not None:
                said += f", at worst {_percent(self.losing_elsewhere)} on other captures (95 %)"
        document = yaml.safe_dump(
            {"version": 1, "classes": {classes[0]: "pass", **actions}}, sort_keys=False, allow_unicode=True
        )
        return f"# Written by `wirewise evaluate`: {said}.\n{document}"


def verdict(
    flows: FlowReport,
    captures: tuple[int, int],
    origin: Origin,
    limits: Limits,
    with_others_margin: float | None = None,
    *,
    dealings: Mapping[str, Sequence[float]] | None = None,
    drift: Drift | None = None,
    unseen: Unseen | None = None,
) -> Verdict:
    """What may be dropped, and why no more.

    captures : of how many captures the benign flows are, and those of attacks. origin : what is known of
    whether the model was trained on the flows. with_others_margin : where the model's margin was chosen on
    these very flows, the share of benign ones that lose a packet with what the other captures call for.
    dealings : see `Family`. drift, unseen : of the flows that are judged, as far as it is known.
    """
    benign, attack = flows.attack.classes
    classes = [row.name for row in flows.classes.classes]
    found, dropped = _advised(flows, classes, limits, dealings)
    every = range(1, len(classes))
    lost = _Loss.of(flows, dropped or every)
    within = _kinds(flows, classes, dropped, limits, dealings)
    criteria = _criteria(flows, found, lost, captures, origin, limits)
    if with_others_margin is not None:
        criteria.insert(2, _of_margin(with_others_margin, limits.benign_loss))
    criteria += _like_training(drift, unseen)
    failed = [criterion for criterion in criteria if criterion.met is False]
    reasons = "; ".join(criterion.why for criterion in failed)
    but = "; ".join(_but(flows, origin, dealings))

    def say(decision: Decision, sentence: str) -> Verdict:
        return Verdict(decision, sentence, criteria, found, but, lost.share, lost.elsewhere, within)

    if not benign.packets or not attack.packets:
        missing = "benign" if not benign.packets else "attack"
        rule = f"no flow of the table is {missing}, so nothing is known of what it would do to one"
        return say("do not use", f"Do not use it on this evidence: {rule}.")
    by_family = _by_family(found, flows, enforced=not failed)
    if within:
        by_family += f" Of it: {_by_family(within, flows, enforced=False)}"
    if not failed:
        return say("enforce", f"{by_family} {_percent(lost.share)} of benign flows lose a packet.")
    if attack.precision < LEAST_PRECISION or flows.benign_losing > MOST_LOSS:
        return say("do not use", f"Do not use it as it is: {reasons}.")
    return say("observe only", f"Observe only: {reasons}. {by_family}".rstrip())


@dataclass(frozen=True)
class _Loss:
    """Benign flows that lose a packet if some classes are dropped. share : of all; elsewhere : on other
    sources (captures where these are not named) at worst, None with fewer than two. applications : see
    `FlowReport`.
    """

    share: float
    elsewhere: float | None
    applications: list[ApplicationLoss]

    @classmethod
    def of(cls, flows: FlowReport, dropped: Collection[int]) -> _Loss:
        verdicts = flows.verdicts
        benign, losing = verdicts.truth == 0, verdicts.losing(dropped)
        sources = verdicts.of_source[benign].tolist()  # what differs most between networks
        mine = losing[benign]
        elsewhere = intervals.elsewhere(sources, mine) if len(set(sources)) > 1 else None
        applications = [
            replace(loss, flagged=int(losing[benign & _is_of(verdicts, loss.application)].sum()))
            for loss in flows.applications
        ]
        return cls(float(mine.mean()) if len(mine) else 0.0, elsewhere, applications)


def _is_of(verdicts: FlowVerdicts, application: str) -> NDArray[np.bool_]:
    return np.asarray(verdicts.application == ("" if application == UNNAMED else application))


def _advised(
    flows: FlowReport, classes: Sequence[str], limits: Limits, dealings: Mapping[str, Sequence[float]] | None
) -> tuple[list[Family], list[int]]:
    """The families, each with its verdict, and the numbers of the classes that may be dropped.

    A class that is not dropped finds no flow for another one, so families are judged anew whenever one is
    left out: first those that are not surely found, then those that cost the most benign flows.
    """
    number = {name: at for at, name in enumerate(classes)}
    why: dict[str, str] = {}

    def judged(dropped: Collection[int]) -> list[Family]:
        given = flows.verdicts, classes, dropped, dealings
        return [*families(*given), *of_nameless(*given)]

    flagged = judged(range(1, len(classes)))
    dropped = [number[family.name] for family in flagged]
    while True:
        found = judged(dropped)
        there = [family for family in found if number[family.name] in dropped]
        unsure = {family.name: reason for family in there if (reason := _unsure(family, limits))}
        if not unsure and there:
            loss = _Loss.of(flows, [number[family.name] for family in there])
            if not _loses_too_much(loss, limits):
                break
            worst = max(there, key=lambda family: family.lost)
            unsure = {worst.name: f"{_percent(worst.lost)} of benign flows would lose a packet by it"}
        why |= unsure
        dropped = [number[family.name] for family in there if family.name not in unsure]
        if not dropped:
            break
    by_name = {family.name: family for family in found} if dropped else {}
    advised = []
    for family in flagged:
        if number[family.name] in dropped:
            advised.append(replace(by_name[family.name], advice="enforce"))
        else:
            advised.append(replace(family, advice=_not_dropped(family), why=why.get(family.name, "")))
    return advised, dropped


def _kinds(
    flows: FlowReport,
    classes: Sequence[str],
    dropped: Collection[int],
    limits: Limits,
    dealings: Mapping[str, Sequence[float]] | None,
) -> list[Family]:
    """The kinds of attacks, each judged as if it were a class; see `_advised`."""
    advised = []
    for kind in kinds(flows.verdicts, classes, dropped or range(1, len(classes)), dealings):
        why = _unsure(kind, limits)
        advice = _not_dropped(kind) if why or not dropped else "enforce"
        advised.append(replace(kind, advice=advice, why=why))
    return advised


def _not_dropped(family: Family) -> Advice:
    """The advice on a family that may not be dropped."""
    unseen = max(family.of_sources, *family.dealings, 0.0) < NOT_VISIBLE
    return "not visible" if unseen else "observe"


def _unsure(family: Family, limits: Limits) -> str:
    """Why a family is not surely found; "" if it is."""
    wanted = f"less than {_limit(limits.recall)}"
    if family.units < FEWEST_SOURCES:
        return f"it is of one {family.unit}"
    if family.between[0] < limits.recall:
        return f"of other {family.unit}s as little as {_percent(family.between[0])} may be found, {wanted}"
    if family.dealings and min(family.dealings) < limits.recall:
        lowest = _percent(min(family.dealings))
        return f"in one dealing of {len(family.dealings)} training found {lowest}, {wanted}"
    return ""


def _loses_too_much(loss: _Loss, limits: Limits) -> bool:
    if loss.share > limits.benign_loss or (loss.elsewhere or 0) > limits.elsewhere:
        return True
    return any(one.flagged >= ENOUGH_FLOWS and one.share > limits.elsewhere for one in loss.applications)


def _by_family(found: Sequence[Family], flows: FlowReport, *, enforced: bool) -> str:
    """What to do about each family, in sentences."""
    named: dict[str, list[str]] = {"enforce": [], "observe": [], "not visible": []}
    for family in found:
        name = family.name
        if family.kinds:
            name += f" ({listed(family.kinds)})"
        if family.advice == "not visible" and family.visible_at:
            name += f" before packet {family.visible_at}"
        named[family.advice].append(name)
    said = []
    if enforced:
        said.append(f"Enforce for {listed(named['enforce'])}.")
    elif named["enforce"]:
        said.append(f"Surely found: {listed(named['enforce'])}.")
    if named["observe"]:
        said.append(f"{'Observe' if enforced else 'Found in part:'} {listed(named['observe'])}.")
    if named["not visible"]:
        said.append(f"Not visible to these features at {flows.at}: {listed(named['not visible'])}.")
    return " ".join(said)


def _but(flows: FlowReport, origin: Origin, dealings: Mapping[str, Sequence[float]] | None) -> list[str]:
    found = []
    if origin == "unknown":
        rule = "if it was trained on these very captures, which wirewise cannot know, nothing here counts"
        found.append(rule)
    if origin == "other table":
        found.append("it was trained on another table; whether they share flows, --trained-on TABLE tells")
    if origin == "kept apart" and not dealings:
        found.append("it is judged by one split; `wirewise train --seeds 3` tells how much depends on that")
    return found


def _criteria(
    flows: FlowReport,
    found: Sequence[Family],
    loss: _Loss,
    captures: tuple[int, int],
    origin: Origin,
    limits: Limits,
) -> list[Criterion]:
    benign, _ = flows.attack.classes
    lost, most = loss.share, limits.benign_loss
    least = math.ceil(3 / most)  # the rule of three: none of n lost, then at most 3/n with 95 %
    criteria = [
        _of_families(found, limits),
        Criterion(
            "benign flows that lose a packet",
            f"at most {_limit(most)}",
            _percent(lost),
            lost <= most,
            f"{_percent(lost)} of benign flows lose a packet, more than {_limit(most)}",
        ),
    ]
    if (worst := loss.elsewhere) is not None:
        criteria.append(
            Criterion(
                "the same on other captures, at worst (95 %)",
                f"at most {_limit(limits.elsewhere)}",
                _percent(worst),
                worst <= limits.elsewhere,
                f"on other captures it could be {_percent(worst)}, more than {_limit(limits.elsewhere)}",
            )
        )
    if loss.applications:
        criteria.append(_applications(loss.applications, limits))
    few = [name for name, count in zip(("benign", "attack"), captures, strict=True) if count < _FEW]
    return [
        *criteria,
        Criterion(
            f"enough benign flows to see {_limit(most)}",
            f"{least:,} or more",
            f"{benign.packets:,}",
            benign.packets >= least,
            f"{benign.packets:,} benign flows are too few to see {_limit(most)}",
        ),
        Criterion(
            "captures with benign flows, and with attacks",
            f"{_FEW} of each or more",
            f"{captures[0]:,} and {captures[1]:,}",
            not few,
            f"what it does on another capture is unknown: too few with {' and '.join(few)} flows",
        ),
        Criterion(
            "judged by what it has not learned from",
            "yes",
            _LEARNED[origin][0],
            _LEARNED[origin][1],
            "it was trained on these very flows",
        ),
    ]


def _of_families(found: Sequence[Family], limits: Limits) -> Criterion:
    sure = sum(family.advice == "enforce" for family in found)
    why = "no family of attacks may be dropped"
    if found:
        best = max(found, key=lambda family: family.between[0])
        reason = best.why or "too few are found"
        why += f"; of the {len(found)}, {best.name} is found most surely, but {reason}"
    return Criterion(
        f"families of which {_limit(limits.recall)} are found on other sources, at worst (95 %), and that "
        "may be dropped",
        "1 or more",
        f"{sure} of {len(found)}",
        sure > 0,
        why,
    )


def _like_training(drift: Drift | None, unseen: Unseen | None) -> list[Criterion]:
    """That the flows judged are such as the model learned from, as far as it is known."""
    what, wanted = "judged flows look like training's", "yes"
    if drift is not None and drift.level is not None:
        met = drift.level != "out-of-depth"
        far = drift.features[0]
        why = f"the flows judged are unlike training's (most of all {far.name}): it is out of its depth"
        return [Criterion(what, wanted, drift.level.replace("-", " "), met, why)]
    if unseen is not None and unseen.ranges:
        far_off = max(unseen.ranges, key=lambda one: one.of_captures)
        share = far_off.of_captures
        why = f"{_percent(share)} of a capture's packets are outside training's {far_off.feature}"
        found = f"{_percent(share)} outside its {far_off.feature}"
        return [Criterion(what, f"at most {_limit(OUT_OF_DEPTH)} outside", found, share <= OUT_OF_DEPTH, why)]
    return []


def _of_margin(share: float, most: float) -> Criterion:
    """The margin fits the captures it was chosen on; others it fits less well."""
    what = "with the margin that the other captures call for"
    why = f"{what} it is {_percent(share)}, more than {_limit(most)}"
    return Criterion(
        f"the same, each capture {what}", f"at most {_limit(most)}", _percent(share), share <= most, why
    )


def _applications(named: list[ApplicationLoss], limits: Limits) -> Criterion:
    counted = [loss for loss in named if loss.flagged >= ENOUGH_FLOWS]
    worst = max(counted or named, key=lambda loss: loss.share)
    above = [loss.application for loss in counted if loss.share > limits.elsewhere]
    more = f"more than {_limit(limits.elsewhere)}"
    if len(above) > 1:
        more += f", and so it is of {len(above) - 1} more"
    return Criterion(
        f"the same of each application, if {ENOUGH_FLOWS} flows or more do",
        f"at most {_limit(limits.elsewhere)}",
        f"{_percent(worst.share)} ({worst.application})",
        not above,
        f"of {worst.application} it is {_percent(worst.share)}, {more}",
    )


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _limit(share: float) -> str:
    return f"{100 * share:g} %"
