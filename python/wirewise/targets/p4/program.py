# SPDX-License-Identifier: Apache-2.0
"""A P4 program while it is written: what the model adds to the skeleton of a flavour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from wirewise.targets.p4.entries import Entries
from wirewise.targets.p4.limits import Limits
from wirewise.targets.p4.options import Options

ETHERTYPE = 0x88B5
"""Of the packets with features: the first of IEEE 802's for local experiments."""
SIGN = 1 << 63
CLASS_BITS = 8
MODEL_BITS = 8


def lit(width: int, value: int) -> str:
    """A literal that says its width."""
    return f"{width}w0x{value:x}"


def mask(width: int, bit: str) -> str:
    """All bits of a word as one bit is, without a comparison."""
    return f"({lit(width, 0)} - (bit<{width}>) {bit})"


def count_bits(most: int) -> int:
    """Bits of a number from 0 to most."""
    return max(1, most.bit_length())


@dataclass
class Program:
    """Headers, metadata, and one control's declarations and statements; all names are unique within it.

    features_header, result_header, metadata : (bits, name) of the fields. externs : top-level declarations.
    entries : of the model. ports : of the tables that say where packets go.
    """

    options: Options
    limits: Limits
    features_header: list[tuple[int, str]] = field(default_factory=list)
    result_header: list[tuple[int, str]] = field(default_factory=list)
    metadata: list[tuple[int, str]] = field(default_factory=list)
    externs: list[str] = field(default_factory=list)
    constants: list[str] = field(default_factory=list)
    declarations: list[str] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)
    entries: Entries = field(default_factory=Entries)
    ports: Entries = field(default_factory=Entries)

    def meta(self, bits: int, name: str) -> str:
        """Declares a field of the metadata; how it is written in code."""
        self.metadata.append((bits, name))
        return f"meta.{name}"

    def do(self, *statements: str) -> None:
        self.statements += statements

    def stage(self, what: str) -> None:
        """A comment above the statements of the next step of the pipeline."""
        self.statements += ["", f"// {what}"]

    # -- arithmetic

    def at_least(self, width: int, a: str, b: str | int) -> str:
        """One bit: whether a >= b, both unsigned words of this width.

        P4-NetFPGA has no comparison among operations: bit `width` of a + 2^width - b is the same.
        """
        if isinstance(b, int) and b >> width:
            return "1w0"
        if self.options.branches:
            return f"(bit<1>) ({a} >= {lit(width, b) if isinstance(b, int) else b})"
        more = width + 1
        if isinstance(b, int):
            return f"((bit<{more}>) {a} + {lit(more, (1 << width) - b)})[{width}:{width}]"
        return f"((bit<{more}>) {a} + {lit(more, 1 << width)} - (bit<{more}>) {b})[{width}:{width}]"

    def below(self, width: int, a: str, b: str | int) -> str:
        """One bit: whether a < b."""
        return f"~({self.at_least(width, a, b)})"

    # -- declarations

    def action(self, name: str, parameters: Sequence[tuple[int, str]], body: Sequence[str]) -> None:
        given = ", ".join(f"bit<{bits}> {parameter}" for bits, parameter in parameters)
        self.declarations += [f"action {name}({given}) {{", *(f"    {line}" for line in body), "}"]

    def table(
        self, name: str, keys: Sequence[tuple[str, str]], actions: Sequence[str], size: int, default: str = ""
    ) -> None:
        """A table. keys : (expression, kind of match). default : the default action, else NoAction."""
        default = default or "NoAction"
        names = [*actions, *([default] if default not in actions else [])]
        self.declarations += [f"table {name} {{"]
        if keys:
            self.declarations += ["    key = {", *(f"        {key} : {kind};" for key, kind in keys), "    }"]
        self.declarations += [
            "    actions = {",
            *(f"        {action};" for action in names),
            "    }",
            *([f"    size = {max(size, 64)};"] if keys else []),
            f"    default_action = {default}();",
            "}",
        ]

    @property
    def header_bits(self) -> int:
        """Of all headers, and of the metadata that lives as long as they do."""
        ethernet, ipv4_and_ports, scratch = 112, 160 + 32, 32
        bits = ethernet + sum(width for width, _ in (*self.features_header, *self.result_header))
        if self.options.input == "registers":
            bits += ipv4_and_ports + scratch + self.options.flows.bit_length() - 1
        return bits + MODEL_BITS + 1 + CLASS_BITS
