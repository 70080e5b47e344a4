# SPDX-License-Identifier: Apache-2.0
"""An evaluation on a terminal: what to do first, then by packet, by flow, and what nobody has seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from wirewise.cli.reading import print_agreement
from wirewise.cli.train import print_curves, print_report
from wirewise.console import console, grid, listing, note

if TYPE_CHECKING:
    from wirewise.evaluate.evaluation import Evaluation
    from wirewise.evaluate.per_flow import Decision, FlowReport

MOST_LOSSES = 10
"""Captures with benign flows flagged that are listed."""
_MARKS = {True: "yes", False: "no", None: "?"}
_STYLES = {"enforce": "bold green", "observe only": "bold yellow", "do not use": "bold red"}


def print_evaluation(found: Evaluation) -> None:
    """Everything about one model."""
    console.print(found.verdict.sentence, style=_STYLES[found.verdict.decision])
    facts = [("judged on", found.about.how)]
    if found.verdict.but:
        facts.append(("but", found.verdict.but))
    if found.cost:
        facts.append(("cost", found.cost.text))
    grid(facts)
    print_families(found)
    console.print()
    print_report(found.packets, found.classes)
    print_flows(found.flows)
    listing(
        ("", "what", "wanted", "found"),
        ((_MARKS[one.met], one.what, one.wanted, one.found) for one in found.verdict.criteria),
        title="What is asked of a model that may drop packets",
        right=(2, 3),
    )
    _print_evasion(found)
    sentences = [*([found.drift.sentence] if found.drift else []), *found.unseen.sentences]
    grid((("", sentence) for sentence in sentences), title="What it has never seen")
    _print_integers(found)
    for what, count in found.left_out.items():
        if count:
            note(f"{count:,} packets {what} were left out")


def _print_evasion(found: Evaluation) -> None:
    """What attackers would have to change."""
    from wirewise.evaluate.evasion import COLUMNS

    if found.evasion is None:
        return
    if not found.evasion.summaries:
        note("no attack is found whose packets could be changed")
    else:
        listing(
            COLUMNS,
            (one.row for one in found.evasion.summaries),
            title=f"What attackers have to change to be found no more at {found.flows.at}",
            right=(2, 3, 4, 5),
        )
    for why in found.evasion.left_out.values():
        note(why)


def print_families(found: Evaluation) -> None:
    """Each family of attacks: how surely it is found and what to do; then the means over families."""
    families = [*found.verdict.families, *found.verdict.kinds]
    if not families:
        return
    dealt = any(family.dealings for family in families)
    unit = families[0].unit
    listing(
        (
            "family", "what to do", "flows", f"{unit}s", "found %", f"by {unit} %", f"other {unit}s %",
            *(["dealings %"] if dealt else []), "benign lost %",
        ),
        (
            (
                family.name,
                family.advice,
                f"{family.flows:,}",
                f"{family.units:,}",
                f"{100 * family.recall:.1f}",
                f"{100 * family.of_sources:.1f}",
                _percents(family.between),
                *([_percents(_range(family.dealings))] if dealt else []),
                f"{100 * family.lost:.2f}",
            )
            for family in families
        ),
        title=f"Families of attacks, at {found.flows.at}",
        right=range(2, 8 + dealt),
    )  # fmt: skip
    print_curves(
        {family.name: family.by_packet for family in families},
        {family.name: family.late for family in families},
        found.late,
    )
    mean = found.mean_recall
    total = found.flows.attack.classes[1].recall
    over = [f"{100 * mean[name]:.1f} % over {name}" for name in ("families", "captures")]
    if families[0].sources is not None:
        over.append(f"{100 * mean['sources']:.1f} % over sources")
    grid([("mean recall", f"{', '.join(over)}; {100 * total:.1f} % over flows")])


def _range(values: Sequence[float]) -> tuple[float, float] | None:
    return (min(values), max(values)) if values else None


def _percents(between: tuple[float, float] | None) -> str:
    if between is None:
        return ""
    return f"{100 * between[0]:.0f} to {100 * between[1]:.0f}"


def print_comparison(found: Sequence[Evaluation]) -> None:
    """Several models, a line each."""
    from wirewise.evaluate.comparison import efficient

    def cost(one: Evaluation) -> tuple[str, str]:
        if one.cost is None:
            return "-", "-"
        return "-" if one.cost.ns is None else f"{one.cost.ns:,.0f}", f"{one.cost.instructions:,}"

    fronts = efficient(found)
    listing(
        (
            "model",
            "F1",
            "benign losing %",
            "families found %",
            "what to do",
            "ns/packet",
            "instructions",
            "Pareto",
        ),
        (
            (
                one.about.model,
                f"{one.f1:.4f}",
                f"{100 * one.flows.benign_losing:.2f}",
                f"{100 * one.mean_recall.get('families', 0.0):.2f}",
                one.verdict.decision,
                *cost(one),
                "yes" if on else "",
            )
            for one, on in zip(found, fronts, strict=True)
        ),
        right=(1, 2, 3, 5, 6),
    )
    if any(fronts):
        note("Pareto: no other model is as good (F1 of attack flows) at no higher price")
    if not any(one.cost and one.cost.ns for one in found):
        note("--measure runs the bundles' programs in this kernel, for ns/packet")
    note("--report and --json say all of each")


def print_flows(flows: FlowReport) -> None:
    """By flow: each class, attacks against benign traffic, when it is decided, wrongly flagged ones."""
    listing(
        ("class", "flows", "flagged %", "precision", "recall", "F1", "F1, 95 %"),
        (
            (
                row.name,
                f"{row.packets:,}",
                f"{100 * flows.flagged[row.name]:.2f}",
                f"{row.precision:.4f}",
                f"{row.recall:.4f}",
                f"{row.f1:.4f}",
                _between(flows.class_intervals.get(row.name, {}).get("f1")),
            )
            for row in flows.classes.classes
            if row.packets
        ),
        title=f"Flows, judged at {flows.at} (or their last)",
        right=(1, 2, 3, 4, 5, 6),
    )
    benign, attack = flows.attack.classes
    if not benign.packets or not attack.packets:
        return
    grid(_attack(flows), title="Attacks against benign traffic, by flow")
    _decisions("packet", "By packet of decision", {str(n): one for n, one in flows.by_packet.items()})
    _decisions("after", "By observation period", {f"{t:g} s": one for t, one in flows.by_period.items()})
    if flows.applications:
        listing(
            ("application", "flows", "losing a packet", "%", "per hour"),
            (
                (
                    one.application,
                    f"{one.flows:,}",
                    f"{one.flagged:,}",
                    f"{100 * one.share:.2f}",
                    f"{one.per_hour:,.0f}",
                )
                for one in flows.applications
            ),
            title="Benign flows that lose a packet, by application",
            right=(1, 2, 3, 4),
        )
    if flows.losses:
        listing(
            ("flows", "flagged", "capture"),
            ((f"{loss.flows:,}", f"{loss.flagged:,}", loss.capture) for loss in flows.losses[:MOST_LOSSES]),
            title="Benign flows flagged, by capture",
            right=(0, 1),
        )
        if len(flows.losses) > MOST_LOSSES:
            note(f"{len(flows.losses) - MOST_LOSSES:,} more captures with such flows; --json has all")


def _attack(flows: FlowReport) -> list[tuple[str, str]]:
    benign, attack = flows.attack.classes

    def over_captures(name: str, scale: float = 1, digits: int = 4) -> str:
        if name not in flows.intervals:
            return ""
        low, high = (scale * value for value in flows.intervals[name])
        return f" (95 % of captures drawn again: {low:.{digits}f} to {high:.{digits}f})"

    flagged = f"{100 * (1 - benign.recall):.2f} %{over_captures('benign_flagged', 100, 2)}"
    losing = f"{100 * flows.benign_losing:.2f} % of flows lose a packet at any time"
    facts = [
        ("attack or benign", f"F1 {attack.f1:.4f}{over_captures('f1')}"),
        ("precision", f"{attack.precision:.4f}{over_captures('precision')}"),
        ("recall", f"{attack.recall:.4f}{over_captures('recall')}"),
        ("benign flagged", flagged),
        ("benign losing", f"{losing}{over_captures('benign_losing', 100, 2)}"),
    ]
    if flows.flagged_per_hour is not None:
        facts.append(("", f"{flows.flagged_per_hour:,.0f} flows in an hour of benign packets"))
    if found := flows.detection:
        (packets, most), (time, longest) = found.packets, found.microseconds
        facts.append(
            (
                "detected",
                f"{100 * found.share:.1f} % of attack flows, half of them by packet {packets:.0f} and after "
                f"{time / 1000:,.1f} ms, 90 % by packet {most:.0f} and after {longest / 1000:,.1f} ms",
            )
        )
    if curves := flows.curves:
        areas = f"ROC {curves.auc:.4f}, average precision {curves.average_precision:.4f}"
        facts.append(("all thresholds", areas))
    else:
        facts.append(("all thresholds", "its trees vote, so there are no scores to set one on"))
    return facts


def _decisions(axis: str, title: str, points: Mapping[str, Decision]) -> None:
    names = {"accuracy": "accuracy", "precision": "precision", "recall": "recall", "f1": "F1"}
    listing(
        (axis, *points),
        (
            *(
                (said, *(f"{getattr(one, name):.3f}" for one in points.values()))
                for name, said in names.items()
            ),
            ("benign flagged %", *(f"{100 * one.benign_flagged:.2f}" for one in points.values())),
        ),
        title=title,
        right=range(1, 1 + len(points)),
    )


def _print_integers(found: Evaluation) -> None:
    """What integers lost on these packets, or what the bundle says of it."""
    from wirewise.formats.losses import agreement, summary

    if fidelity := found.fidelity:
        facts = [fact for fact in summary(fidelity) if fact[0] == "accuracy"]
        grid(facts, title="The estimator and its integers")
        print_agreement(fidelity)
    elif found.compiled:
        facts = [("same class", agreement(found.compiled)), *summary(found.compiled)]
        grid(facts, title="The estimator and its integers, when it was compiled")


def _between(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f"{interval[0]:.3f} to {interval[1]:.3f}"
