# SPDX-License-Identifier: Apache-2.0
"""The model card of a bundle: what a person should know before letting it judge packets. Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from wirewise.formats.losses import agreement, class_table, summary
from wirewise.formats.manifest import Manifest
from wirewise.models import Model
from wirewise.units import format_duration

# What begins or ends markup, HTML included; _ only where a word does.
_MARKUP = re.compile(r"[\\`*~$<>&\[\]]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_AT_A_START = re.compile(r"^(\d*)([#+=.)-])")


def _text(text: object) -> str:
    """Text of others, which Markdown takes as text, in one line."""
    return _MARKUP.sub(lambda match: f"\\{match[0]}", " ".join(str(text).split()))


def _item(text: str) -> str:
    """Such text where a line starts: not a heading, nor a list."""
    return _AT_A_START.sub(r"\1\\\2", _text(text))


def write_card(manifest: Manifest, model: Model) -> str:
    """The card of a bundle, from its manifest and model."""
    sections = [
        f"# {_text(manifest.name)}",
        f"{_item(manifest.model.summary)}. Compiled {_text(manifest.created)} by {_text(manifest.made_by)}"
        + (f" from {_text(manifest.model.source)}." if manifest.model.source else "."),
        "## Classes",
        _list(f"{index}: {_text(name)}" for index, name in enumerate(manifest.classes)),
        "## What it reads",
        f"Flows by {_text(manifest.flow.key)}, forgotten after "
        f"{format_duration(manifest.flow.idle_timeout_ns)} without a packet, "
        f"{manifest.flow.table_size:,} flows per IP version"
        + (", shared by all CPUs." if manifest.flow.sharing == "shared" else " and CPU."),
        _table(
            ("feature", "meaning", "unit", "read by"),
            (
                (f.name, f"`{f.spec}`", _unit(f.unit, f.fraction_bits), str(model.reads[index]))
                for index, f in enumerate(manifest.features)
            ),
        ),
        "## How it was trained",
        _facts(manifest.training),
        "## How good it is",
        _facts(manifest.accuracy),
        "## What integers lost",
        _fidelity(manifest.fidelity),
        "## In the kernel",
        _facts(
            {
                "instructions": manifest.program.instructions,
                "shape": f"{manifest.program.shape} ({manifest.program.why})",
                "compiler": manifest.program.clang,
                "verifier": manifest.program.verifier or "not asked when this was compiled",
            }
        ),
        "## Limits",
        "The verdicts are only as good as the traffic it was trained on is like yours. Observe before you "
        "enforce, keep an allow list, and compare `wirewised stats` with what you expect.",
    ]
    if manifest.model.notes:
        sections += ["## Notes of the importer", _list(map(_item, manifest.model.notes))]
    return "\n\n".join(sections) + "\n"


def _fidelity(fidelity: dict[str, Any] | None) -> str:
    if not fidelity:
        return "Not recorded."
    facts = [("agreement", agreement(fidelity)), *summary(fidelity)]
    lines = _list(f"{_item(label)}: {_text(text)}" if label else _item(text) for label, text in facts)
    if not fidelity.get("held_out"):
        return lines
    head, rows = class_table(fidelity)
    return f"{lines}\n\n{_table(head, (tuple(map(_text, row)) for row in rows))}"


def _unit(unit: str, fraction_bits: int) -> str:
    return f"{_text(unit)} / 2^{fraction_bits}" if fraction_bits else _text(unit)


def _list(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _facts(facts: dict[str, Any] | None, *, depth: int = 0) -> str:
    """Nested facts as a list; what was not recorded is said."""
    if not facts:
        return "Not recorded."
    lines = []
    for key, value in facts.items():
        label = f"{'  ' * depth}- {_text(key).replace('_', ' ')}:"
        if isinstance(value, dict) and value:
            lines += [label, _facts(value, depth=depth + 1)]
        elif isinstance(value, float):
            lines.append(f"{label} {value:.6g}")
        elif isinstance(value, list):
            lines.append(f"{label} {', '.join(map(_text, value[:20]))}{', ...' if len(value) > 20 else ''}")
        else:
            lines.append(f"{label} {_text(value)}")
    return "\n".join(lines)
