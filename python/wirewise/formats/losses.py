# SPDX-License-Identifier: Apache-2.0
"""What a bundle's record of fidelity says, in words: for the model card and for the terminal.

The record is what `wirewise.evaluate.fidelity.measure` gives.
"""

from __future__ import annotations

from typing import Any

SHOWN_RANGES = 5

Lines = list[tuple[str, ...]]


def agreement(fidelity: dict[str, Any]) -> str:
    """How many rows get the same class from the integers and from the estimator, as a sentence."""
    rows, agree = fidelity.get("rows"), fidelity.get("agree")
    if rows is None or agree is None:
        return "not measured: the estimator was not at hand"
    if agree == rows:
        return f"all {rows:,} rows get the class the estimator gives them"
    share = 100 * agree / max(1, rows)
    return f"{agree:,} of {rows:,} rows, {share:.2f} %, get the class the estimator gives them"


def summary(fidelity: dict[str, Any]) -> list[tuple[str, str]]:
    """Facts (label, text) beside the agreement."""
    facts = []
    if held_out := fidelity.get("held_out"):
        said, ours = (100 * held_out[who]["accuracy"] for who in ("estimator", "model"))
        facts.append(
            ("accuracy", f"estimator {said:.2f} %, integers {ours:.2f} %: {held_out['lost']:.2f} points lost")
        )
        facts.append(("measured on", f"{held_out['packets']:,} packets: {held_out['how']}"))
    if ranges := fidelity.get("saturation"):
        facts += _saturation(ranges)
    if point := fidelity.get("operating_point"):
        facts += operating_point(point)
    if seen := fidelity.get("open_set"):
        facts += open_set(seen)
    return facts


def operating_point(point: dict[str, Any]) -> list[tuple[str, str]]:
    """What `wirewise.evaluate.operating_point.OperatingPoint` says."""
    facts = [
        (
            "margin",
            f"{point['by']:,}: an attack's score must be ahead of the benign one by more, so that at most "
            f"{100 * point['wish']:g} % of benign flows lose a packet",
        ),
        (
            "benign lost",
            f"{100 * point['loss']:.2f} % of {point['benign']:,} flows "
            f"(without a margin {100 * point['loss_before']:.2f} %)",
        ),
        (
            "attacks seen",
            f"{100 * point['recall']:.2f} % of {point['attack']:,} flows "
            f"(without a margin {100 * point['recall_before']:.2f} %)",
        ),
    ]
    if late := point.get("late"):  # older bundles have none
        facts.insert(1, ("late margin", f"{late['by']:,}, from packet {late['start']:,} of a flow on"))
    after = point.get("after", 1)  # as above
    if after > 1:
        row = f"{after}: the policy must ask for it, as in `attack: {{action: drop, after: {after}}}`"
        facts.insert(1, ("in a row", row))
    if point["how"]:
        facts.insert(1, ("chosen on", point["how"]))
    facts += [
        (
            f"with after: {other['after']}",
            f"{100 * other['recall']:.2f} % of attacks seen, {100 * other['loss']:.2f} % of benign lost, "
            f"at a margin of {other['by']:,}",
        )
        for other in point.get("compared", ())
    ]
    if point["elsewhere"] is not None:
        expected = f"{100 * point['elsewhere']:.2f} %, as each of these captures has with the others' margin"
        facts.append(("to expect", f"of new captures: {expected}"))
    if not point["recall"] and point["recall_before"]:
        facts.append(
            ("", "nothing is seen any more: wish for less, or give better features and more captures")
        )
    if point["wish"] * point["benign"] < 1:
        rule = f"{point['benign']:,} benign flows cannot show {100 * point['wish']:g} %; none is lost"
        facts.append(("", rule))
    return facts


def open_set(seen: dict[str, Any]) -> list[tuple[str, str]]:
    """What `wirewise.evaluate.open_set.OpenSet` says."""
    shares = [f"{100 * seen[of]:.2f} % of {of} flows" for of in ("benign", "attack") if seen[of] is not None]
    told = f", as a packet of {' and '.join(shares)} is" if shares else ""
    return [
        (
            "unknown",
            f"with a feature outside what {seen['rows']:,} rows of training have{told} ({seen['how']})",
        )
    ]


def _saturation(found: dict[str, Any]) -> list[tuple[str, str]]:
    rows = max(1, found["rows"])
    facts = [
        (
            "clamped" if index == 0 else "",
            f"{row['feature']} to between {row['low']:,} and {row['high']:,}: "
            f"{100 * (row['below'] + row['above']) / rows:.2f} % of the rows",
        )
        for index, row in enumerate(found["features"][:SHOWN_RANGES])
    ]
    if len(found["features"]) > SHOWN_RANGES:
        facts.append(("", f"and {len(found['features']) - SHOWN_RANGES} more features"))
    facts += [
        (
            "saturated" if index == 0 else "",
            f"layer {row['layer']}: {100 * row['rows'] / rows:.2f} % of the rows, "
            f"neuron {row['neuron']} most, {100 * row['neuron_rows'] / rows:.2f} %",
        )
        for index, row in enumerate(found["layers"])
    ]
    return facts


def class_table(fidelity: dict[str, Any]) -> tuple[tuple[str, ...], Lines]:
    """Head and lines of a table: precision, recall and F1 of each class that packets are of, of the estimator
    and, where they differ anywhere, of the integers.
    """
    held_out = fidelity["held_out"]
    theirs, ours = held_out["estimator"]["classes"], held_out["model"]["classes"]
    measures = (("precision", "precision"), ("recall", "recall"), ("F1", "f1"))
    same = theirs == ours
    head = ["class", "packets"]
    for name, _ in measures:
        head += [name] if same else [f"{name}, estimator", f"{name}, integers"]
    lines = []
    for one, other in zip(theirs, ours, strict=True):
        if not one["packets"]:
            continue
        line = [one["name"], f"{one['packets']:,}"]
        for _, key in measures:
            line += [f"{one[key]:.4f}"] if same else [f"{one[key]:.4f}", f"{other[key]:.4f}"]
        lines.append(tuple(line))
    return tuple(head), lines
