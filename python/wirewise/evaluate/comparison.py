# SPDX-License-Identifier: Apache-2.0
"""Several models side by side: which of them no other beats in both F1 and cost (the Pareto front)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

from wirewise.evaluate.evaluation import Evaluation
from wirewise.evaluate.verdict import Decision

Unit = Literal["ns", "instructions"]


def unit(found: Sequence[Evaluation]) -> Unit | None:
    """What all of them that have a program can be compared in; None if none has one."""
    costs = [one.cost for one in found if one.cost]
    if not costs:
        return None
    return "instructions" if any(cost.ns is None for cost in costs) else "ns"


def price(one: Evaluation, by: Unit) -> float | None:
    """What a packet costs, ns, or how long the program is; None without one."""
    if one.cost is None:
        return None
    return float(one.cost.instructions) if by == "instructions" else one.cost.ns


def front(points: Sequence[tuple[float, float]]) -> list[bool]:
    """Whether each (price, F1) is beaten by none: no other costs no more and is no worse, and is better in
    one.
    """
    return [not any(p <= mine and f >= f1 and (p < mine or f > f1) for p, f in points) for mine, f1 in points]


def efficient(found: Sequence[Evaluation]) -> list[bool | None]:
    """`front`, of each model that has a program; None of the others."""
    by = unit(found)
    priced = {at: (price(one, by), one.f1) for at, one in enumerate(found) if by}
    known = {at: (cost, f1) for at, (cost, f1) in priced.items() if cost is not None}
    on = dict(zip(known, front(list(known.values())), strict=True))
    return [on.get(at) for at in range(len(found))]


def best(found: Sequence[Evaluation]) -> Evaluation:
    """The one with the best decision. Of those that lose more benign flows than they may, the one that loses
    least, else the one with the largest F1; and then the lowest price.
    """
    order, by = get_args(Decision), unit(found)

    def rank(one: Evaluation) -> tuple[int, float, float, float]:
        cost, lost = price(one, by) if by else None, one.flows.benign_losing
        too_many = lost if lost > one.limits.benign_loss else 0.0
        return order.index(one.verdict.decision), too_many, -one.f1, math.inf if cost is None else cost

    return min(found, key=rank)
