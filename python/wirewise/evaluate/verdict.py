# SPDX-License-Identifier: Apache-2.0
"""Whether what was measured is good enough to let a model drop packets, and what speaks against it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from wirewise.errors import InputError
from wirewise.evaluate.held_out import Origin
from wirewise.evaluate.per_flow import ApplicationLoss, FlowReport

Decision = Literal["enforce", "observe only", "do not use"]

_LEARNED: dict[Origin, tuple[str, bool | None]] = {
    "kept apart": ("yes", True),
    "other table": ("another table", None),
    "unknown": ("not known", None),
    "trained on": ("no", False),
}

FOUND = 0.5
"""Share of a class's flows below which it counts as missed."""
ENOUGH_FLOWS = 2
"""Flows of an application that lose a packet, from which on its share counts: one of three is no third."""
LEAST_PRECISION = 0.5
MOST_LOSS = 0.1
"""Below the one most of what it flags is benign; below it, or above the other, do not even observe."""
_FEW = 2  # captures of a kind, from which on others can be told of


@dataclass(frozen=True)
class Limits:
    """What must hold for a model to enforce; shares are of 0 to 1.

    f1 : of attack flows against benign ones, at least. benign_loss : share of benign flows that lose a
    packet, at most; elsewhere : the same of each application, and of other captures as far as the bootstrap
    tells.
    """

    f1: float = 0.95
    benign_loss: float = 0.01
    elsewhere: float = 0.03

    def __post_init__(self) -> None:
        for name, given in (("min_f1", self.f1), ("max_benign_loss", self.benign_loss)):
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
    """Decision : what to do. sentence : the same with the reasons. criteria : all that was asked. but : what
    the sentence does not say: attacks that are missed, and what nobody has checked.
    """

    decision: Decision
    sentence: str
    criteria: list[Criterion]
    but: str = ""


def verdict(
    flows: FlowReport,
    captures: tuple[int, int],
    origin: Origin,
    limits: Limits,
    with_others_margin: float | None = None,
) -> Verdict:
    """Captures : of how many captures the benign flows are, and those of attacks. origin : what is known of
    whether the model was trained on the flows. with_others_margin : where the model's margin was chosen on
    these very flows, the share of benign ones that lose a packet with what the other captures call for.
    """
    criteria = _criteria(flows, captures, origin, limits)
    if with_others_margin is not None:
        criteria.insert(2, _of_margin(with_others_margin, limits.benign_loss))
    benign, attack = flows.attack.classes
    failed = [criterion for criterion in criteria if criterion.met is False]
    reasons = "; ".join(criterion.why for criterion in failed)
    but = "; ".join(_but(flows, origin))
    if not benign.packets or not attack.packets:
        missing = "benign" if not benign.packets else "attack"
        rule = f"no flow of the table is {missing}, so nothing is known of what it would do to one"
        return Verdict("do not use", f"Do not use it on this evidence: {rule}.", criteria, but)
    seen = f"it finds {_percent(attack.recall)} of attack flows at their packet {flows.packet}"
    if not failed:
        lost = f"{_percent(flows.benign_losing)} of benign flows lose a packet"
        return Verdict("enforce", f"Enforce: {seen}, and {lost}.", criteria, but)
    if attack.precision < LEAST_PRECISION or flows.benign_losing > MOST_LOSS:
        return Verdict("do not use", f"Do not use it as it is: {reasons}.", criteria, but)
    return Verdict("observe only", f"Observe only: {seen}, but {reasons}.", criteria, but)


def _but(flows: FlowReport, origin: Origin) -> list[str]:
    attacks = list(flows.flagged.items())[1:] if flows.attack.classes[0].packets else flows.flagged.items()
    missed = [name for name, share in attacks if share < FOUND]
    found = [f"fewer than half of the flows of {', '.join(missed)} are found"] if missed else []
    if origin == "unknown":
        rule = "if it was trained on these very captures, which wirewise cannot know, nothing here counts"
        found.append(rule)
    if origin == "other table":
        found.append("it was trained on another table; whether they share flows, --trained-on TABLE tells")
    return found


def _criteria(
    flows: FlowReport, captures: tuple[int, int], origin: Origin, limits: Limits
) -> list[Criterion]:
    benign, attack = flows.attack.classes
    lost, most = flows.benign_losing, limits.benign_loss
    least = math.ceil(3 / most)  # the rule of three: none of n lost, then at most 3/n with 95 %
    found = [
        Criterion(
            "attacks against benign traffic, by flow: F1",
            f"{limits.f1:g} or more",
            f"{attack.f1:.4f}",
            attack.f1 >= limits.f1,
            f"F1 is {attack.f1:.4f}, below {limits.f1:g}",
        ),
        Criterion(
            "benign flows that lose a packet",
            f"at most {_limit(most)}",
            _percent(lost),
            lost <= most,
            f"{_percent(lost)} of benign flows lose a packet, more than {_limit(most)}",
        ),
    ]
    if flows.intervals:
        worst = flows.intervals["benign_losing"][1]
        found.append(
            Criterion(
                "the same on other captures, at worst (95 %)",
                f"at most {_limit(limits.elsewhere)}",
                _percent(worst),
                worst <= limits.elsewhere,
                f"on other captures it could be {_percent(worst)}, more than {_limit(limits.elsewhere)}",
            )
        )
    if flows.applications:
        found.append(_applications(flows.applications, limits))
    few = [name for name, count in zip(("benign", "attack"), captures, strict=True) if count < _FEW]
    return [
        *found,
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
