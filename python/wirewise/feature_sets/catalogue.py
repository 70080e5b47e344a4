# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/feature-sets.md, made from the registries they describe."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wirewise.feature_sets.accumulators import ACCUMULATORS, CELLS, Accumulator, Bounds, width
from wirewise.feature_sets.baseline import COMPARISONS
from wirewise.feature_sets.fields import FIELDS, Field

_IDLE_NS = 60 * 10**9
_WINDOW_NS = 10**9


def fields_table() -> str:
    """Markdown: every packet field with its unit, range and meaning."""
    rows = ((f"`{f.name}`", f.unit, f"0 to {_number(f.maximum)}", _meaning(f)) for f in FIELDS.values())
    return _table(("field", "unit", "range", "meaning"), rows)


def accumulators_table() -> str:
    """Markdown: every accumulator with what it gives and the state it keeps for a field."""
    rows = ((f"`{a.name}(FIELD{', N' if a.place else ''})`", a.doc, _state(a)) for a in ACCUMULATORS.values())
    return _table(("accumulator", "meaning", "state"), rows)


def comparisons_table() -> str:
    """Markdown: what compares a rate with its baseline."""
    rows = ((f"`{c.name}(RATE, baseline=10m)`", c.unit, c.doc) for c in COMPARISONS.values())
    return _table(("write", "unit", "meaning"), rows)


def _meaning(field: Field) -> str:
    return field.doc + ("; reads the fine clock" if field.needs_time else "")


def _state(accumulator: Accumulator) -> str:
    cells = [CELLS[name] for name in accumulator.cells]
    ranges = [
        Bounds.of(field, window_ns, _IDLE_NS)
        for field in FIELDS.values()
        for window_ns in (0, _WINDOW_NS)
        if accumulator.of_identity or not field.identity
    ]
    sizes = {sum(width(largest(b)) for cell in cells for largest in cell.variables.values()) for b in ranges}
    size = str(min(sizes)) if len(sizes) == 1 else f"{min(sizes)} to {max(sizes)}"
    variables = ", ".join(variable for cell in cells for variable in cell.variables)
    return f"{size} bytes: {variables.replace(f'_{accumulator.place}', '_N')}"


def _number(value: int) -> str:
    return "2^32 - 1" if value == (1 << 32) - 1 else str(value)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
