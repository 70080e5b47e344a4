# SPDX-License-Identifier: Apache-2.0
"""The figures of a report, as charts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from wirewise.charts import Axis, Chart, Dot, Line
from wirewise.evaluate.comparison import efficient, price, unit
from wirewise.evaluate.evaluation import Evaluation
from wirewise.evaluate.per_flow import Decision, FlowReport

_MEASURES = {"accuracy": "accuracy", "precision": "precision", "recall": "recall", "f1": "F1"}
_LOWEST = (0.9, 0.8, 0.5, 0.0)
"""Where an axis of ratios may begin."""


def charts(one: Evaluation) -> list[Chart]:
    """The figures of one model that its data allow."""
    flows = one.flows
    benign, attack = flows.attack.classes
    if not benign.packets or not attack.packets:
        return []
    found = [
        _decisions(
            "By packet of decision",
            "packet of the flow",
            {str(n): decision for n, decision in flows.by_packet.items()},
            "A flow that is shorter is judged by its last packet.",
        ),
        _decisions(
            "By observation period",
            "since the flow's first packet",
            {_time(t): decision for t, decision in flows.by_period.items()},
            "The verdict on the last packet until then; hara2026, Figure 3.",
        ),
        _benign(flows),
    ]
    if curves := flows.curves:
        few = "" if curves.thresholds > 20 else f" Its scores allow {curves.thresholds} thresholds only."
        flagged, recall, precision = curves.at
        found += [
            Chart(
                f"ROC, area {curves.auc:.4f}",
                Axis.shares("benign flows flagged"),
                Axis.shares("attack flows flagged"),
                [Line("", curves.roc, marked=False)],
                [Dot("as it is set", (flagged, recall))],
                f"Every threshold on the score at {flows.at}.{few}",
            ),
            Chart(
                f"Precision and recall, average precision {curves.average_precision:.4f}",
                Axis.shares("recall: attack flows flagged"),
                Axis.shares("precision: flagged flows that are attacks"),
                [Line("", curves.precision_recall, marked=False)],
                [Dot("as it is set", (recall, precision))],
                "Precision depends on how many of the flows are attacks.",
            ),
        ]
    return found


def comparison_chart(found: Sequence[Evaluation]) -> Chart | None:
    """F1 against the price of a packet, of all models that have a program; None for fewer than two."""
    by = unit(found)
    priced = [(one, price(one, by), on) for one, on in zip(found, efficient(found), strict=True) if by]
    dots = [
        Dot(one.about.model, (cost, one.f1), hollow=not on) for one, cost, on in priced if cost is not None
    ]
    if len(dots) < 2:
        return None
    label = "ns a packet" if by == "ns" else "instructions of the program"
    return Chart(
        f"F1 against {label}",
        Axis.counts(label, 1.05 * max(dot.at[0] for dot in dots)),
        _ratios("F1 of attack flows", (dot.at[1] for dot in dots)),
        dots=dots,
        note="Filled: no other model is as good at no higher price (Pareto front).",
    )


def _decisions(title: str, label: str, points: Mapping[str, Decision], note: str) -> Chart:
    values = [getattr(decision, name) for decision in points.values() for name in _MEASURES]
    lines = [
        Line(said, [(at, getattr(decision, name)) for at, decision in enumerate(points.values())])
        for name, said in _MEASURES.items()
    ]
    return Chart(title, Axis.steps(label, list(points)), _ratios("ratio", values), lines, note=note)


def _benign(flows: FlowReport) -> Chart:
    """What hurts: by packet of decision, beside what a flow goes through in all its life."""
    shares = [decision.benign_flagged for decision in flows.by_packet.values()]
    names = [*map(str, flows.by_packet), "any"]
    return Chart(
        "Benign flows flagged",
        Axis.steps("packet of the flow", names),
        Axis.percents("of the benign flows", max(*shares, flows.benign_losing)),
        [Line("at this packet", list(enumerate(shares)))],
        [Dot("at any packet", (len(shares), flows.benign_losing))],
        "A flow that is flagged at any packet loses it, where the class is dropped.",
    )


def _ratios(label: str, values: Iterable[float]) -> Axis:
    least = min(values)
    return Axis.shares(label, next(low for low in _LOWEST if low <= least))


def _time(seconds: float) -> str:
    if not seconds:
        return "0"
    return f"{seconds:g} s" if seconds >= 1 else f"{1000 * seconds:g} ms"
