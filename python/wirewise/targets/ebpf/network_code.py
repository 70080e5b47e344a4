# SPDX-License-Identifier: Apache-2.0
"""What all networks' code is made of: pieces of straight C over ww_scratch, and how they become ww_model.h.

A piece computes some neurons of a layer: it reads the words of `ww_scratch.activation[turn]` and writes
those of the other turn, the last layer `ww_scratch.score`. As memory carries all that pieces share, they can
stand in place, in functions or in programs of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wirewise.feature_sets.feature_set import Feature
from wirewise.models.network import InputScaler
from wirewise.models.rules import INT64_MAX, INT64_MIN
from wirewise.targets.comments import comment
from wirewise.targets.ebpf import network_plan
from wirewise.targets.ebpf.shapes import Lowered, begin_header, infer_in_one_program

ARGMAX_REACH = 1 << 56  # ww_argmax packs score and index in one number

Range = tuple[int, int]


@dataclass(frozen=True)
class Piece:
    """what: for people. lines: C statements over `struct ww_scratch *s`. instructions: predicted."""

    what: str
    lines: tuple[str, ...]
    instructions: int


@dataclass(frozen=True)
class Code:
    """A network as pieces, in the order in which they run. tables: read-only data that they use. reach: the
    largest magnitude of a score.
    """

    pieces: Sequence[Piece]
    n_outputs: int
    reach: int
    tables: Sequence[str] = ()


def lowered(code: Code, n_used_features: int, shape: str) -> Lowered:
    """The pieces in a shape that fits."""
    chosen = network_plan.plan([piece.instructions for piece in code.pieces], n_used_features, shape)

    def header(banner: str) -> str:
        lines = begin_header(banner, chosen, code.n_outputs)
        lines += ['#include "classify/network.h"', "", *code.tables]
        for number, piece in enumerate(code.pieces):
            lines += _macro(number, piece)
        for program in chosen.programs:
            for chunk in program:
                if chosen.shape != "inline":
                    lines += _function(chunk)
        lines += ["static __always_inline void ww_begin_inference(struct ww_scratch *s)", "{", "}", ""]
        for number, program in enumerate(chosen.programs):
            lines += [f"static __always_inline void ww_add_{number}(struct ww_scratch *s)", "{"]
            if chosen.shape == "inline":
                lines += [f"\tWW_PIECE_{piece}" for piece in program[0]]
            else:
                lines += [f"\tww_pieces_{chunk[0]}(s);" for chunk in program]
            lines += ["}", ""]
        lines += _decide(code)
        if chosen.shape != "tail-calls":
            lines += infer_in_one_program()
        return "\n".join([*lines, "#endif", ""])

    return Lowered(chosen, header)


def _macro(number: int, piece: Piece) -> list[str]:
    """A macro is one source line: clang writes debug information for every line, in quadratic time."""
    lines = [f"#define WW_PIECE_{number} \\", "{ \\", *(f"\t{line} \\" for line in piece.lines), "}", ""]
    return [f"/* {comment(piece.what[0].upper() + piece.what[1:])}. */", *lines]


def _function(chunk: tuple[int, ...]) -> list[str]:
    """A global function over ww_scratch: the verifier looks at it once."""
    return [
        f"__noinline int ww_pieces_{chunk[0]}(struct ww_scratch *s)",
        "{",
        "\tif (!s)",
        "\t\treturn 0;",
        *(f"\tWW_PIECE_{piece}" for piece in chunk),
        "\treturn 0;",
        "}",
        "",
    ]


def _decide(code: Code) -> list[str]:
    if code.n_outputs == 1:
        said = "*(volatile __s64 *)s->score > 0"
    elif code.reach < ARGMAX_REACH:
        said = f"ww_argmax(s->score, {code.n_outputs})"
    else:
        said = f"ww_argmax_wide(s, {code.n_outputs})"
    return [
        "/* The class the scores say. */",
        "static __always_inline __u32 ww_decide(struct ww_scratch *s)",
        "{",
        f"\treturn {said};",
        "}",
        "",
    ]


def number(value: int) -> str:
    """A signed 64-bit integer as C."""
    if value == INT64_MIN:
        return "(-0x7fffffffffffffffLL - 1)"
    return f"{value}LL"


def word(value: int) -> str:
    """A 64-bit word, or a negative number as one, as C."""
    return f"{value % (1 << 64):#x}ULL"


# -- inputs


def feature_range(index: int, feature: Feature, constants: Mapping[int, int]) -> Range:
    """The least and the largest value that a feature can have in this program."""
    return (constants[index],) * 2 if index in constants else (feature.minimum, feature.maximum)


@dataclass(frozen=True)
class Input:
    """An encoded feature. lines: C that leaves it in `__s64 q`. low, high: its range."""

    lines: tuple[str, ...]
    low: int
    high: int
    instructions: int


def constant_input(scaler: InputScaler, bounds: Range, limit: int | None) -> int | None:
    """The encoded value of a feature that has the same for all of its range, else None."""
    low, high = (_encode(scaler, x, limit) for x in bounds)
    return low if low == high else None


def _encode(scaler: InputScaler, x: int, limit: int | None) -> int:
    q = scaler.scale(x)
    return q if limit is None else min(max(q, -limit), limit)


def scaled_input(index: int, label: str, scaler: InputScaler, bounds: Range, limit: int | None) -> Input:
    """Code of `InputScaler.scale`, then clamped to +-limit. label, bounds: of the feature.

    As scaling never decreases with x, clamping x is clamping the result, in one step with the limit, unless
    the product of the unclamped x could overflow.
    """
    least, most = (_encode(scaler, x, limit) for x in bounds)
    lines, instructions = [f"__s64 q = ww_feature(s, {index}); /* {comment(label)} */"], 1
    low, high = bounds
    half = 1 << scaler.shift >> 1

    def overflows(x: int) -> bool:
        """With room for the difference to a limit."""
        apart = abs(x - scaler.zero)
        return apart > INT64_MAX or apart * scaler.multiplier + half > 1 << 62

    if overflows(low) and low < scaler.low:
        lines.append(f"q = ww_at_least(q, {number(scaler.low)});")
        low, instructions = max(low, scaler.low), instructions + 5
    if overflows(high) and high > scaler.high:
        lines.append(f"q = ww_at_most(q, {number(scaler.high)});")
        high, instructions = min(high, scaler.high), instructions + 5
    lines.append(
        f"q = ((q - {number(scaler.zero)}) * {scaler.multiplier} + {number(half)}) >> {scaler.shift};"
    )
    instructions += 4

    def raw(x: int) -> int:
        return (x - scaler.zero) * scaler.multiplier + half >> scaler.shift

    if raw(low) < least:
        lines.append(f"q = ww_at_least(q, {number(least)});")
        instructions += 5
    if raw(high) > most:
        lines.append(f"q = ww_at_most(q, {number(most)});")
        instructions += 5
    return Input(tuple(lines), least, most, instructions)


def varying_inputs(
    inputs: Sequence[InputScaler],
    columns: Sequence[Sequence[int]],
    constants: Mapping[int, int],
    features: Sequence[Feature],
    limit: int | None,
) -> tuple[dict[int, Input], dict[int, int]]:
    """Features that matter: those with code, and the encoded values of those that are constant, by index.

    columns: weights of each input.
    """
    coded, constant = {}, {}
    for index, (scaler, column, feature) in enumerate(zip(inputs, columns, features, strict=True)):
        bounds = feature_range(index, feature, constants)
        value = constant_input(scaler, bounds, limit)
        if value is not None:
            constant[index] = value
        elif any(column):
            coded[index] = scaled_input(index, feature.label, scaler, bounds, limit)
    return coded, constant
