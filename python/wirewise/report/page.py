# SPDX-License-Identifier: Apache-2.0
"""The page: the verdict first, then the evidence, then what the model has never seen."""

from __future__ import annotations

from collections.abc import Sequence

import wirewise
from wirewise import html
from wirewise.evaluate.comparison import best, efficient
from wirewise.evaluate.evaluation import Evaluation
from wirewise.report.evidence import evidence
from wirewise.report.figures import comparison_chart

_STYLE = """
.wirewise .verdict { border-left: .5em solid #aa7700; padding: .2em 1em; margin: 1em 0; font-size: 115%; }
.wirewise .verdict.enforce { border-color: #228833; } .wirewise .verdict.do-not-use { border-color: #cc3344; }
.wirewise .verdict p { margin: .4em 0; }
.wirewise .tiles { display: grid; gap: .8em; grid-template-columns: repeat(auto-fit, minmax(10em, 1fr)); }
.wirewise .tile { border: 1px solid rgba(128, 128, 128, .4); border-radius: .3em; padding: .5em .8em; }
.wirewise .tile strong { display: block; font-size: 150%; font-variant-numeric: tabular-nums; }
.wirewise summary { font-size: 130%; font-weight: 600; margin: 1em 0 .5em; cursor: pointer; }
.wirewise h3 { margin: 1em 0 .3em; } .wirewise li { margin: .3em 0; }
.wirewise td, .wirewise li, .wirewise p { overflow-wrap: anywhere; }
.wirewise td.right { overflow-wrap: normal; }
.wirewise td.dim { overflow-wrap: normal; min-width: 6em; }
.wirewise .wide td, .wirewise .wide th { overflow-wrap: normal; white-space: nowrap; }
.wirewise .wide thead th { white-space: normal; vertical-align: bottom; }
.wirewise .wide .words { white-space: normal; min-width: 8em; }
@media (max-width: 62em) {
  .wirewise .wide table { font-size: 85%; }
  .wirewise .wide td, .wirewise .wide th { padding-right: .4em; }
}
"""

_MARKS = {True: "✓", False: "✗", None: "?"}


def page(found: Sequence[Evaluation]) -> str:
    """One page about models on the same data; it holds all it shows.

    found : the evaluations, one at least.
    """
    first = best(found)
    if len(found) == 1:
        title = f"{first.about.model} on {first.about.data}"
        return html.page(title, *_one(first), style=_STYLE)
    parts = [html.paragraph(f"The best of {len(found)} models is {first.about.model}."), _box(first)]
    parts += [html.heading("Side by side"), html.wide(_side_by_side(found))]
    if chart := comparison_chart(found):
        parts.append(html.figures([chart.to_html()]))
    for one in found:
        summary = f"{one.about.model}: {one.verdict.decision}"
        parts.append(html.folded(summary, *_one(one), opened=one is first))
    return html.page(f"{len(found)} models on {first.about.data}", *parts, style=_STYLE)


def _one(one: Evaluation) -> list[str]:
    return [
        _box(one),
        _tiles(one),
        html.heading("What is asked of a model that may drop packets"),
        _criteria(one),
        html.heading("Evidence"),
        *evidence(one),
        html.heading("What it has never seen"),
        html.listed([*([one.drift.sentence] if one.drift else []), *one.unseen.sentences]),
        *_drift(one),
        *_ranges(one),
        html.heading("How this was measured"),
        html.facts(_measured(one)),
    ]


def _box(one: Evaluation) -> str:
    said = f"<p><strong>{html.text(one.verdict.sentence)}</strong></p>"
    more = [f"Measured on {one.about.how}."]
    if one.verdict.but:
        more.append(f"{one.verdict.but[0].upper()}{one.verdict.but[1:]}.")
    kind = one.verdict.decision.replace(" ", "-")
    return f'<div class="verdict {kind}">{said}{"".join(map(html.paragraph, more))}</div>'


def _tiles(one: Evaluation) -> str:
    flows = one.flows
    benign, attack = flows.attack.classes
    tiles = []
    if attack.packets:
        mean = _percent(one.mean_recall["families"])
        tiles.append((mean, f"found of a family of attacks, in the mean over {len(one.verdict.named)}"))
        tiles.append((_percent(attack.recall), f"of {attack.packets:,} attack flows are found"))
    if benign.packets:
        tiles.append((_percent(flows.benign_losing), f"of {benign.packets:,} benign flows lose a packet"))
    if flows.flagged_per_hour is not None:
        tiles.append((f"{flows.flagged_per_hour:,.0f}", "benign flows hit in an hour of benign packets"))
    if flows.detection:
        packets = f"{flows.detection.packets[1]:,.0f}"
        tiles.append((packets, "packets until nine of ten attack flows that are found have been"))
    if one.cost:
        cost = one.cost
        size = f"{cost.instructions:,}" if cost.ns is None else f"{cost.ns:,.0f} ns"
        tiles.append((size, "instructions of the program" if cost.ns is None else "a packet"))
    markup = "".join(
        f'<div class="tile"><strong>{html.text(value)}</strong>{html.text(what)}</div>'
        for value, what in tiles
    )
    return f'<div class="tiles">{markup}</div>'


def _criteria(one: Evaluation) -> str:
    rows = [(_MARKS[met.met], met.what, met.wanted, met.found) for met in one.verdict.criteria]
    return html.table(("", "what", "wanted", "found"), rows, right=(2, 3))


def _drift(one: Evaluation) -> list[str]:
    far = [found for found in one.drift.features if found.level != "like-training"] if one.drift else []
    if not far:
        return []
    rows = [
        (f.name, {"watch": "watch", "out-of-depth": "out of its depth"}[f.level], f"{f.psi:.2f}",
         f"{f.chance:.2f}", f"{100 * f.outside:.2f}")
        for f in far
    ]  # fmt: skip
    head = ("feature", "against training", "PSI", "by chance up to", "% of flows outside")
    return [html.wide(html.table(head, rows, right=range(2, 5)))]


def _ranges(one: Evaluation) -> list[str]:
    beyond = [found for found in one.unseen.ranges or [] if found.outside]
    if not beyond:
        return []
    rows = [
        (f.feature, f"{f.learned[0]:,}", f"{f.learned[1]:,}", f"{f.tested[0]:,}", f"{f.tested[1]:,}",
         f"{100 * f.outside:.2f}")
        for f in beyond
    ]  # fmt: skip
    head = ("feature", "learned from", "to", "tested from", "to", "% of packets outside")
    return [html.wide(html.table(head, rows, right=range(1, 6)))]


def _measured(one: Evaluation) -> list[tuple[str, object]]:
    about, flows = one.about, one.flows
    by = {
        "reference": "the integer model, in Python",
        "engine": "the bundle's own program, in user space",
        "kernel": "the bundle's own program, in this kernel",
    }[about.plane]
    rows: list[tuple[str, object]] = [
        ("model", about.summary),
        ("its digest", about.model_digest),
        ("classes", ", ".join(one.classes)),
        ("verdicts by", by),
        ("packets", f"{one.packets.packets:,}"),
        ("flows", f"{flows.classes.packets:,}"),
        ("captures", f"{about.captures:,}"),
        ("a flow's verdict", f"at {flows.at}, or at its last packet if it is shorter"),
        ("attack", f"every class but {one.classes[0]}"),
        ("intervals", "95 % of 1,000 draws of the captures, with replacement"),
        *((f"left out: {what}", f"{count:,} packets") for what, count in one.left_out.items() if count),
        *(("warning", warning) for warning in one.warnings),
        ("made by", f"wirewise {wirewise.__version__}"),
    ]
    return rows


def _side_by_side(found: Sequence[Evaluation]) -> str:
    rows = []
    for one, on in zip(found, efficient(found), strict=True):
        cost = one.cost
        rows.append(
            (
                one.about.model,
                one.verdict.decision,
                f"{one.f1:.4f}",
                f"{100 * one.mean_recall.get('families', 0.0):.2f}",
                f"{100 * one.flows.benign_losing:.2f}",
                f"{one.packets.accuracy:.4f}",
                "-" if cost is None or cost.ns is None else f"{cost.ns:,.0f}",
                "-" if cost is None else f"{cost.instructions:,}",
                {True: "yes", False: "", None: ""}[on],
            )
        )
    head = (
        "model", "what to do", "F1", "families found %", "benign losing %", "accuracy by packet",
        "ns a packet", "instructions", "Pareto",
    )  # fmt: skip
    return html.table(head, rows, right=range(2, 8))


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"
