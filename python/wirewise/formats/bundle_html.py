# SPDX-License-Identifier: Apache-2.0
"""A bundle in HTML: a summary for notebooks, and all that a page of its own shows."""

from __future__ import annotations

from typing import Any

from wirewise import html
from wirewise.formats.losses import class_table, summary
from wirewise.formats.manifest import Manifest
from wirewise.models import Model
from wirewise.units import format_duration


def overview(manifest: Manifest, model: Model) -> list[str]:
    """What it is, what it reads and how good it is."""
    return [
        html.facts(
            [
                ("bundle", manifest.name),
                ("model", manifest.model.summary),
                ("classes", ", ".join(f"{index} {name}" for index, name in enumerate(manifest.classes))),
                ("from", manifest.model.source or "a model in memory"),
                ("made", f"{manifest.created} by {manifest.made_by}"),
                ("program", program(manifest)),
            ]
        ),
        *_features(manifest, model),
        *_accuracy(manifest.accuracy),
        *_fidelity(manifest.fidelity),
    ]


def details(manifest: Manifest, model: Model) -> list[str]:
    """Flow table, model, program and how it was trained, behind the overview."""
    flow, built = manifest.flow, manifest.program
    state = [(field.name, field.type, field.offset) for field in flow.state]
    parts = [
        html.heading("Flow table"),
        html.facts(
            [
                ("key", flow.key),
                ("forgotten", f"after {format_duration(flow.idle_timeout_ns)} without a packet"),
                ("entries", f"{flow.table_size:,} for each IP version, {flow.sharing}"),
                ("entry", f"{flow.entry4_size} bytes for IPv4, {flow.entry6_size} for IPv6"),
                ("clock", flow.clock),
            ]
        ),
        html.table(("state", "type", "offset"), state, right=(2,)) if state else "",
        html.heading("Model"),
        html.facts(_flat(model.details())),
        *(html.paragraph(note) for note in manifest.model.notes),
        html.heading("Program"),
        html.facts(
            [
                ("shape", f"{built.shape}: {built.why}"),
                ("size", f"{built.instructions:,} instructions, {built.object_bytes:,} bytes"),
                ("compiler", f"clang {built.clang}"),
                *_flat(built.verifier or {"verifier": "not asked when this was compiled"}),
            ]
        ),
    ]
    if manifest.training:
        parts += [html.heading("Training"), html.facts(_flat(manifest.training))]
    return parts


def program(manifest: Manifest) -> str:
    """One line: how large it is, and what the verifier said."""
    size = f"{manifest.program.instructions:,} instructions"
    if not (verifier := manifest.program.verifier):
        return f"{size}, the verifier was not asked"
    return f"{size}, accepted by Linux {verifier['kernel']} ({verifier['verified_instructions']:,} verified)"


def _features(manifest: Manifest, model: Model) -> list[str]:
    rows = [
        (f.name, f.spec, f.unit + (f" / 2^{f.fraction_bits}" if f.fraction_bits else ""), f"{reads:,}")
        for f, reads in zip(manifest.features, model.reads, strict=True)
    ]
    ranked = sorted(zip(manifest.feature_names, model.reads, strict=True), key=lambda pair: -pair[1])
    return [
        html.heading("Features"),
        html.table(("feature", "is", "unit", "read by"), rows, right=(3,)),
        html.heading("How many parts of the model read a feature"),
        html.bars((name, reads, f"{reads:,}") for name, reads in ranked if reads),
    ]


def _accuracy(accuracy: dict[str, Any] | None) -> list[str]:
    """Of the estimator, as its training reported; other programs may have recorded other facts."""
    if not accuracy:
        return []
    if not {"accuracy", "packets", "classes", "confusion"} <= accuracy.keys():
        return [html.heading("Accuracy"), html.facts(_flat(accuracy))]
    names = [row["name"] for row in accuracy["classes"]]
    title = f"Accuracy {accuracy['accuracy']:.4f} over {accuracy['packets']:,} packets in training"
    return [html.heading(title), html.confusion(names, accuracy["confusion"])]


def _fidelity(fidelity: dict[str, Any] | None) -> list[str]:
    if not fidelity:
        return []
    parts = [html.heading("What integers lost"), html.facts(summary(fidelity))]
    if fidelity.get("held_out"):
        head, lines = class_table(fidelity)
        parts.append(html.table(head, lines, right=range(1, len(head))))
    return parts


def _flat(facts: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested facts, one line each; lists of records are left out."""
    lines: list[tuple[str, str]] = []
    for key, value in facts.items():
        label = f"{prefix} {key}".strip().replace("_", " ")
        if isinstance(value, dict):
            lines += _flat(value, label)
        elif isinstance(value, list):
            if value and not isinstance(value[0], dict):
                lines.append((label, ", ".join(map(str, value))))
        elif isinstance(value, float):
            lines.append((label, f"{value:.6g}"))
        else:
            lines.append((label, f"{value:,}" if type(value) is int else str(value)))
    return lines
