# SPDX-License-Identifier: Apache-2.0
"""The evidence of a report: figures, then tables of classes, applications, captures, integers."""

from __future__ import annotations

from wirewise import html
from wirewise.evaluate.classes import ATTACK
from wirewise.evaluate.evaluation import Evaluation
from wirewise.evaluate.evasion import COLUMNS
from wirewise.formats.losses import agreement, summary
from wirewise.report.figures import charts

MOST_CAPTURES = 15
"""With benign flows flagged that are listed."""


def evidence(one: Evaluation) -> list[str]:
    """The parts of the section, in the order in which they decide."""
    parts = [*_attack(one), html.figures(chart.to_html() for chart in charts(one))]
    return [
        *_families(one),
        *parts,
        *_applications(one),
        *_classes(one),
        *_confusion(one),
        *_integers(one),
        *_cost(one),
        *_evasion(one),
    ]


def _evasion(one: Evaluation) -> list[str]:
    """What attackers have to change to be found no more."""
    if not one.evasion or not one.evasion.summaries:
        return []
    rows = [summary.row for summary in one.evasion.summaries]
    return [
        html.heading(f"What attackers have to change to be found no more at {one.flows.at}", 3),
        html.wide(html.table(COLUMNS, rows, right=range(2, 6))),
    ]


def _families(one: Evaluation) -> list[str]:
    """What is found of each family, and what to do about it."""
    found = [*one.verdict.families, *one.verdict.kinds]
    if not found:
        return []
    unit = found[0].unit
    rows = [
        (family.name, family.advice, f"{family.flows:,}", f"{family.units:,}", f"{100 * family.recall:.1f}",
         f"{100 * family.of_sources:.1f}", f"{100 * family.between[0]:.0f}", f"{100 * family.between[1]:.0f}",
         f"{100 * family.lost:.2f}", family.why)
        for family in found
    ]  # fmt: skip
    head = (
        "family", "what to do", "flows", f"{unit}s", "found %", f"by {unit} %", f"other {unit}s: from", "to",
        "benign lost %", "why no more",
    )  # fmt: skip
    points = list(found[0].by_packet)
    later = [] if one.late is None else [f"{one.late} on"]
    curve = [
        (
            family.name,
            *(f"{100 * family.by_packet[number]:.0f}" for number in points),
            *("-" if family.late is None else f"{100 * family.late:.0f}" for _ in later),
        )
        for family in found
    ]
    mean = ", ".join(f"{100 * share:.1f} % over {name}" for name, share in one.mean_recall.items())
    return [
        html.heading("Families of attacks", 3),
        html.wide(html.table(head, rows, right=range(2, 9), words=9)),
        html.paragraph(f"Mean recall: {mean}; a total over flows is that of the largest family."),
        html.heading("Share of each family's flows found, by packet of decision", 3),
        html.wide(html.table(("%", *map(str, points), *later), curve, right=range(1, 2 + len(points)))),
    ]


def _attack(one: Evaluation) -> list[str]:
    flows = one.flows
    benign, attack = flows.attack.classes
    values = {
        "f1": ("F1 of attack flows", attack.f1, 1.0, ""),
        "precision": ("precision", attack.precision, 1.0, ""),
        "recall": ("recall: attack flows found", attack.recall, 1.0, ""),
        "benign_flagged": (f"benign flows flagged at {flows.at}", 1 - benign.recall, 100.0, " %"),
        "benign_losing": ("benign flows that lose a packet at any time", flows.benign_losing, 100.0, " %"),
    }

    def shown(value: float, scale: float, unit: str) -> str:
        return f"{scale * value:.2f}{unit}" if unit else f"{value:.4f}"

    rows = []
    for name, (what, value, scale, unit) in values.items():
        between = [shown(bound, scale, unit) for bound in flows.intervals.get(name, ())]
        rows.append((what, shown(value, scale, unit), *(between or ("", ""))))
    head = ("attacks against benign traffic, by flow", "found", "other captures: from", "to")
    parts = [html.table(head, rows, right=(1, 2, 3))]
    if found := flows.detection:
        (packets, most), (time, longest) = found.packets, found.microseconds
        parts.append(
            html.paragraph(
                f"{100 * found.share:.1f} % of attack flows are flagged at some time: half of them by packet "
                f"{packets:,.0f} and after {time / 1000:,.1f} ms, 90 % by packet {most:,.0f} and after "
                f"{longest / 1000:,.1f} ms."
            )
        )
    return parts


def _applications(one: Evaluation) -> list[str]:
    flows = one.flows
    parts = []
    if flows.applications:
        bars = (
            (loss.application, loss.share,
             f"{loss.flagged:,} of {loss.flows:,}, {100 * loss.share:.1f} %, {loss.per_hour:,.0f}/h")
            for loss in flows.applications
        )  # fmt: skip
        parts += [
            html.heading("Benign flows that lose a packet, by application", 3),
            html.wide(html.bars(bars)),
        ]
    if flows.losses:
        rows = [
            (f"{loss.flows:,}", f"{loss.flagged:,}", loss.capture) for loss in flows.losses[:MOST_CAPTURES]
        ]
        parts += [
            html.heading("The captures that such flows are of", 3),
            html.wide(html.table(("benign flows", "losing", "capture"), rows, right=(0, 1))),
        ]
        if more := len(flows.losses) - MOST_CAPTURES:
            parts.append(html.paragraph(f"{more:,} more captures have such flows.") if more > 0 else "")
    return parts


def _classes(one: Evaluation) -> list[str]:
    rows = []
    packets = {row.name: row for row in one.packets.classes}
    for row in one.flows.classes.classes:
        if not row.packets:
            continue
        low, high = one.flows.class_intervals.get(row.name, {}).get("f1", (None, None))
        between = "" if low is None else f"{low:.3f} to {high:.3f}"
        by_packet = packets[row.name]
        rows.append(
            (row.name, f"{row.packets:,}", f"{row.precision:.4f}", f"{row.recall:.4f}", f"{row.f1:.4f}",
             between, f"{100 * one.flows.flagged[row.name]:.2f}", f"{by_packet.packets:,}",
             f"{by_packet.f1:.4f}")
        )  # fmt: skip
    head = (
        "class", "flows", "precision", "recall", "F1", "F1, other captures", "flagged %", "packets",
        "F1 by packet",
    )  # fmt: skip
    total = one.flows.classes
    text = (
        f"By flow accuracy {total.accuracy:.4f}, macro F1 {total.macro_f1:.4f}; by packet accuracy "
        f"{one.packets.accuracy:.4f}, macro F1 {one.packets.macro_f1:.4f}."
    )
    if one.packets.absent:
        text += f" Left out of these averages, as no packet is of them: {', '.join(one.packets.absent)}."
    if one.packets.nameless:
        text += f" Counted as {ATTACK} because no label names them: {', '.join(one.packets.nameless)}."
    return [
        html.heading("Each class", 3),
        html.wide(html.table(head, rows, right=range(1, 9))),
        html.paragraph(text),
    ]


def _confusion(one: Evaluation) -> list[str]:
    flows = one.flows.classes
    names = [row.name for row in flows.classes]
    there = [at for at, row in enumerate(flows.confusion) if sum(row) or any(r[at] for r in flows.confusion)]
    counts = [[flows.confusion[row][column] for column in there] for row in there]
    return [
        html.heading(f"Flows at {one.flows.at}: what they are, and what is said of them", 3),
        html.wide(html.confusion([names[at] for at in there], counts)),
    ]


def _integers(one: Evaluation) -> list[str]:
    """Floating point against integers: measured here, or as the bundle says."""
    fidelity, where = one.fidelity, "on these packets"
    if fidelity is None:
        fidelity, where = one.compiled, "as the bundle recorded when it was compiled"
    if fidelity is None:
        return []
    facts = [("same class", agreement(fidelity)), *summary(fidelity)]
    return [html.heading(f"The estimator against its integers, {where}", 3), html.facts(facts)]


def _cost(one: Evaluation) -> list[str]:
    return [html.heading("Cost", 3), html.paragraph(f"{one.cost.text}.")] if one.cost else []
