# SPDX-License-Identifier: Apache-2.0
"""Numbers and lines of Verilog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from textwrap import indent

_WIDTH = 110


def bits_for(states: int) -> int:
    """Bits that tell this many states apart; 0 for a single one."""
    return (states - 1).bit_length()


def signed_bits(number: int) -> int:
    """Bits of a signed number."""
    return 1 + (number if number >= 0 else ~number).bit_length()


def sized(value: int, bits: int) -> str:
    """A literal of so many bits; a negative value as its two's complement."""
    return f"{bits}'h{value & (1 << bits) - 1:x}"


def vector(values: Sequence[int], bits: int) -> str:
    """A literal that concatenates values of so many bits each, the first one lowest."""
    words = [sized(value, bits) for value in reversed(values)]
    if len(words) == 1:
        return words[0]
    lines, line = [], ""
    for word in words:
        if line and len(line) + len(word) + 2 > _WIDTH - 16:
            lines.append(line + ",")
            line = ""
        line += (", " if line else "") + word
    lines.append(line)
    return "{\n" + indent("\n".join(lines), " " * 12) + "\n        }"


def instance(module: str, name: str, parameters: Mapping[str, object], ports: Mapping[str, object]) -> str:
    """An instance of a module, its connections by name."""
    given = [f".{key}({value})" for key, value in parameters.items()]
    wired = [f".{key}({value})" for key, value in ports.items()]
    head = f"    {module}"
    if given:
        head += " #(\n" + _wrapped(given) + "\n    )"
    return f"{head} {name} (\n" + _wrapped(wired) + "\n    );"


def _wrapped(parts: Iterable[str]) -> str:
    lines = [""]
    for part in parts:
        if lines[-1] and ("\n" in part or len(lines[-1]) + len(part) + 2 > _WIDTH - 8):
            lines.append("")
        lines[-1] += (", " if lines[-1] else "") + part
    return indent(",\n".join(lines), " " * 8)


def library(names: Iterable[str]) -> dict[str, str]:
    """The hand-written modules of rtl/ of these names, as files."""
    folder = files(__package__) / "rtl"
    return {f"{name}.v": (folder / f"{name}.v").read_text(encoding="utf-8") for name in names}
