# SPDX-License-Identifier: Apache-2.0
"""`ww_input`: from the beats of an AXI stream to what the model compares.

A record is a signed 64-bit word for each feature that the model reads, ascending, the first at the lowest
bits. Of a feature that meets thresholds only as many bits are kept as tell them apart: cut to a range that
holds every threshold and the number above it, it stays on the same side of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from wirewise.models.bounded import Bound
from wirewise.targets.verilog.text import bits_for, signed_bits, sized

WORD = 64


@dataclass(frozen=True)
class Field:
    """A few bits of a record that are kept. feature: whose; None for bits that come as they are.

    kind: `clamp` (signed, cut to the ends of `bits`), `bits` (see `BitsInput`), `outside` (whether it leaves
    its bounds) or `raw`. at: first bit in the record.
    """

    name: str
    kind: str
    bits: int
    at: int
    shift: int = 0
    low: int = 0
    high: int = 0


def clamp_bits(thresholds: Iterable[int]) -> int:
    """Bits of a signed number that hold the thresholds of `x > threshold` and the number above each."""
    numbers = [number for threshold in thresholds for number in (threshold, threshold + 1)]
    return min(WORD, max(map(signed_bits, numbers)))


def word_of(features: Sequence[int]) -> dict[int, int]:
    """Feature -> its word in the record."""
    return {feature: index for index, feature in enumerate(features)}


def bound_fields(bounds: Sequence[Bound], words: dict[int, int]) -> list[Field]:
    return [
        Field(f"outside_{bound.feature}", "outside", 1, WORD * words[bound.feature], 0, bound.low, bound.high)
        for bound in bounds
    ]


def input_module(fields: Sequence[Field], out: str, out_bits: int, record_bits: int, width: int) -> str:
    """The module. fields: what is kept. out: of out_bits, made of their names. width: of a beat."""
    beats = -(-record_bits // width)
    position_bits = max(1, bits_for(beats))
    lines = [
        f"// A record: {record_bits} bits in {beats} beat{'s' if beats > 1 else ''} of {width}.",
        "module ww_input (",
        "    input  wire        clk,",
        "    input  wire        resetn,",
        f"    input  wire [{width - 1}:0] s_axis_tdata,",
        "    input  wire        s_axis_tvalid,",
        "    output wire        s_axis_tready,",
        "    input  wire        s_axis_tlast,",
        "    output reg  [31:0] dropped,  // records whose tlast came too early or too late",
        "    output wire        out_valid,",
        "    input  wire        out_ready,",
        f"    output wire [{out_bits - 1}:0] out_bits,",
        "    output wire        out_outside",
        ");",
        "    reg full, over;",
        f"    reg [{position_bits - 1}:0] position;",
        f"    wire at_end = position == {sized(beats - 1, position_bits)};",
        "    wire take = s_axis_tvalid && s_axis_tready;",
        "    wire whole = at_end && !over;",
        "    assign s_axis_tready = !full || out_ready;",
        "    assign out_valid = full;",
        "    always @(posedge clk) begin",
        "        if (!resetn) begin",
        "            full     <= 1'b0;",
        "            over     <= 1'b0;",
        f"            position <= {sized(0, position_bits)};",
        "            dropped  <= 32'd0;",
        "        end else begin",
        "            full <= (take && s_axis_tlast && whole) || (full && !out_ready);",
        "            if (take) begin",
        "                over <= !s_axis_tlast && at_end;",
        f"                position <= s_axis_tlast ? {sized(0, position_bits)} :",
        f"                    at_end ? position : position + {sized(1, position_bits)};",
        "                if (s_axis_tlast && !whole) dropped <= dropped + 32'd1;",
        "            end",
        "        end",
        "    end",
        "",
    ]
    for field in fields:
        lines += _field(field, width, position_bits)
    used = {bit for field in fields for bit in _read(field, width)}
    unused = [f"s_axis_tdata[{first}:{last}]" for first, last in _runs(set(range(width)) - used)]
    if unused:
        lines.append(f"    wire unused = &{{1'b0, {', '.join(unused)}}};")
    outside = [field.name for field in fields if field.kind == "outside"]
    lines += [
        f"    assign out_bits = {out};",
        f"    assign out_outside = {' || '.join(outside) or chr(49) + chr(39) + 'b0'};",
        "endmodule",
        "",
    ]
    return "\n".join(lines)


def _read(field: Field, width: int) -> range:
    """Bits of a beat that a field reads."""
    at = field.at % width
    return range(at, at + (field.bits if field.kind == "raw" else WORD))


def _runs(bits: set[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for bit in sorted(bits):
        if runs and runs[-1][0] == bit - 1:
            runs[-1] = (bit, runs[-1][1])
        else:
            runs.append((bit, bit))
    return runs


def _field(field: Field, width: int, position_bits: int) -> list[str]:
    at, name = field.at % width, field.name
    beat = f"take && position == {sized(field.at // width, position_bits)}"
    word = f"s_axis_tdata[{at + WORD - 1}:{at}]"
    lines = [f"    reg [{field.bits - 1}:0] {name};"]
    if field.kind == "raw":
        value = f"s_axis_tdata[{at + field.bits - 1}:{at}]"
    elif field.kind == "outside":
        low, high = sized(field.low, WORD), sized(field.high, WORD)
        # Bounds are 0 or more: an unsigned comparison has the negative numbers above all of them.
        value = f"{word} - {low} > {sized(field.high - field.low, WORD)}" if field.low else f"{word} > {high}"
    else:
        value = f"next_{name}"
        lines.append(f"    wire [{field.bits - 1}:0] {value};")
        shift = f".SHIFT({field.shift}), " if field.kind == "bits" else ""
        part = f"ww_{field.kind} #({shift}.BITS({field.bits})) {field.kind}_{name}"
        lines.append(f"    {part} (.in({word}), .out({value}));")
    return [*lines, f"    always @(posedge clk) if ({beat}) {name} <= {value};", ""]
