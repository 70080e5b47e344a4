# SPDX-License-Identifier: Apache-2.0
"""Accumulators: what is made of a field over the packets of a flow or of a window.

Two small vocabularies. A `Cell` is state kept with the flow and updated by each sample; an `Accumulator`
is a value read from cells. Each carries its reference and its C side by side, so that adding one is one
entry here, or from outside `CELLS.add` and `ACCUMULATORS.add`. State starts as zeros. In the C texts,
`{name}` of a cell variable is its place in the flow's state, `{x}` the sample, `{n}` the number of samples
with this one, `{average}` sum / n with 16 fractional bits; the helpers `ww_*` are in bpf/frame/arith.h.

Bounds: counts saturate at 2^32 - 1, sums at 2^47 - 1 (so that `sum << 16` fits 63 bits), squared
deviations and absolute deviations at 2^62.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from wirewise.feature_sets.fields import Field
from wirewise.registry import Registry

COUNT_MAX = (1 << 32) - 1
SUM_MAX = (1 << 47) - 1
SQUARE_MAX = 1 << 62
DEVIATION_MAX = (1 << 31) - 1
_U32_MAX = (1 << 32) - 1

State = dict[str, int]


def divide(dividend: int, divisor: int) -> int:
    """Division toward zero, as in C."""
    quotient = abs(dividend) // abs(divisor)
    return quotient if (dividend < 0) == (divisor < 0) else -quotient


def welford_fraction_bits(field: Field) -> int:
    """Fractional bits of the running mean: 8 for fields of up to 20 bits, 4 for wider ones (times, TEID)."""
    return 8 if field.maximum < 1 << 20 else 4


@dataclass(frozen=True)
class Cell:
    """State of one field in one scope.

    variables : name -> C type, one or more. update : reference, in place. c : C statements, one a line.
    mixed : both get the sample mixed (`Context.mix`, `ww_mix`).
    """

    name: str
    variables: dict[str, str]
    update: Callable[[State, int, int, Field], None]
    c: Callable[[Field], str]
    mixed: bool = False


def _update_sum(s: State, x: int, n: int, f: Field) -> None:
    s["sum"] = min(s["sum"] + x, SUM_MAX)


def _update_maximum(s: State, x: int, n: int, f: Field) -> None:
    s["max"] = max(s["max"], x)


def _update_minimum(s: State, x: int, n: int, f: Field) -> None:
    # Kept as its complement, so that a blank state is all zeros.
    s["inverted_min"] = max(s["inverted_min"], _U32_MAX - x)


def _update_first(s: State, x: int, n: int, f: Field) -> None:
    if n == 1:
        s["first"] = x


def _update_latest(s: State, x: int, n: int, f: Field) -> None:
    s["latest"] = x


def _update_nonzero(s: State, x: int, n: int, f: Field) -> None:
    s["nonzero"] = min(s["nonzero"] + (x != 0), COUNT_MAX)


def _clamp_deviation(value: int) -> int:
    return max(-DEVIATION_MAX, min(DEVIATION_MAX, value))


def _update_welford(s: State, x: int, n: int, f: Field) -> None:
    scaled = x << welford_fraction_bits(f)
    before = _clamp_deviation(scaled - s["mean"])
    s["mean"] += divide(before, n)
    after = _clamp_deviation(scaled - s["mean"])
    s["squares"] = min(s["squares"] + before * after, SQUARE_MAX)


def _update_deviations(s: State, x: int, n: int, f: Field) -> None:
    s["deviations"] = min(s["deviations"] + abs((x << 16) - (s["sum"] << 16) // n), SQUARE_MAX)


def _update_pending(s: State, x: int, n: int, f: Field) -> None:
    if x == 1:
        s["pending"] = min(s["pending"] + 1, COUNT_MAX)
    elif x == 2 and s["pending"]:
        s["pending"] -= 1


SKETCH_BITS = 64
SKETCH_SAMPLED = 16
"""One in so many values reaches the second half of a sketch."""
SKETCH_FULL = 56
"""Bits of the first half from which on the second half is asked."""
LINEAR_COUNTING = [
    *(round(-SKETCH_BITS * math.log(1 - bits / SKETCH_BITS)) for bits in range(SKETCH_BITS)),
    round(SKETCH_BITS * math.log(SKETCH_BITS)),
]
"""Distinct values by how many of 64 bits they have set (K.-Y. Whang et al., "A Linear-Time Probabilistic
Counting Algorithm for Database Applications", 1990). All 64 set: as if half a bit were missing."""
DISTINCT_MAX = SKETCH_SAMPLED * LINEAR_COUNTING[SKETCH_BITS]


def _update_distinct(s: State, x: int, n: int, f: Field) -> None:
    s["seen"] |= 1 << (x & 63)
    if x >> 6 & (SKETCH_SAMPLED - 1) == 0:
        s["seen_sampled"] |= 1 << (x >> 10 & 63)


CELLS: Registry[Cell] = Registry(
    "cell",
    lambda cell: cell.name,
    (
        Cell("sum", {"sum": "__u64"}, _update_sum, lambda f: "{sum} = ww_min({sum} + {x}, WW_SUM_MAX);"),
        Cell("max", {"max": "__u32"}, _update_maximum, lambda f: "{max} = ww_max({max}, {x});"),
        Cell(
            "min",
            {"inverted_min": "__u32"},
            _update_minimum,
            lambda f: "{inverted_min} = ww_max({inverted_min}, 0xffffffffU - {x});",
        ),
        Cell("first", {"first": "__u32"}, _update_first, lambda f: "{first} = {n} == 1 ? {x} : {first};"),
        Cell("latest", {"latest": "__u32"}, _update_latest, lambda f: "{latest} = {x};"),
        Cell(
            "nonzero",
            {"nonzero": "__u32"},
            _update_nonzero,
            lambda f: "{nonzero} = ww_increment({nonzero}, {x} != 0);",
        ),
        # Mean and sum of squared deviations (B. P. Welford, 1962; used by hara2026, section IV-A).
        Cell(
            "welford",
            {"mean": "__s64", "squares": "__u64"},
            _update_welford,
            lambda f: (
                f"ww_welford(&{{mean}}, &{{squares}}, (__s64){{x}} << {welford_fraction_bits(f)}, {{n}});"
            ),
        ),
        # Needs the sum of the same field and scope, updated before it.
        Cell(
            "deviations",
            {"deviations": "__u64"},
            _update_deviations,
            lambda f: (
                "{deviations} = ww_min({deviations} + "
                "ww_deviation({x}, ww_mean({sum}, {n}), {n}), WW_SQUARE_MAX);"
            ),
        ),
        Cell(
            "pending",
            {"pending": "__u32"},
            _update_pending,
            lambda f: "{pending} = ww_pending({pending}, {x});",
        ),
        # Two bitmaps, the second of a sample of the values: the multiresolution bitmap of C. Estan,
        # G. Varghese and M. Fisk, "Bitmap Algorithms for Counting Active Flows on High-Speed Links" (2003).
        Cell(
            "distinct",
            {"seen": "__u64", "seen_sampled": "__u64"},
            _update_distinct,
            lambda f: "ww_sketch(&{seen}, &{seen_sampled}, {x});",
            mixed=True,
        ),
    ),
)
"""In the order in which a sample updates them: `deviations` reads `sum`."""


@dataclass(frozen=True)
class OfState:
    """How a value comes of a flow's state alone, for who shows flows and runs neither Python nor the program.

    how : `value`, the variable as it is; `complement`, 2^32 - 1 less the variable; `ratio`,
    (variable << shift) / samples >> drop. The latter two are 0 without samples. variable : of a cell.
    """

    how: Literal["value", "complement", "ratio"]
    variable: str
    shift: int = 0
    drop: int = 0


@dataclass(frozen=True)
class Accumulator:
    """A value read from cells.

    cells : the state it needs. fraction_bits, maximum : of the value, by field. read : reference;
    (variables, sample or None, samples, field) -> int; the sample is None where
    the packet is no sample of the field, or where a finished window is read. c : C expression. of_sample :
    it compares with the current sample, so it has no meaning in a previous window. of_identity : it may read
    fields that only tell hosts or flows apart. of_state : the same value
    for who has the state and nothing else; None where it takes more. unit : of the value, by
    the field's unit. of_constant : the value where every sample is the same number, so that it needs neither
    state nor code; None where it depends on how many samples there were.
    """

    name: str
    doc: str
    cells: tuple[str, ...]
    fraction_bits: Callable[[Field], int]
    maximum: Callable[[Field], int]
    read: Callable[[State, int | None, int, Field], int]
    c: Callable[[Field], str]
    of_sample: bool = False
    of_identity: bool = False
    of_state: Callable[[Field], OfState] | None = None
    unit: Callable[[str], str] = lambda unit: unit
    of_constant: Callable[[int], int] | None = None


def _mean(s: State, x: int | None, n: int, f: Field) -> int:
    return (s["sum"] << 16) // n if n else 0


def _minimum(s: State, x: int | None, n: int, f: Field) -> int:
    return _U32_MAX - s["inverted_min"] if n else 0


def _variance(s: State, x: int | None, n: int, f: Field) -> int:
    shift = 0 if welford_fraction_bits(f) == 8 else 8
    return s["squares"] // n >> shift if n else 0


def _mean_abs_deviation(s: State, x: int | None, n: int, f: Field) -> int:
    return s["deviations"] // n if n else 0


def _deviation_from_mean(s: State, x: int | None, n: int, f: Field) -> int:
    return abs((x << 16) - (s["sum"] << 16) // n) if x is not None and n else 0


def _distinct(s: State, x: int | None, n: int, f: Field) -> int:
    bits = s["seen"].bit_count()
    if bits < SKETCH_FULL:
        return LINEAR_COUNTING[bits]
    sampled = SKETCH_SAMPLED * LINEAR_COUNTING[s["seen_sampled"].bit_count()]
    return max(sampled, LINEAR_COUNTING[SKETCH_FULL])


def _whole(f: Field) -> int:
    return 0


def _q16(f: Field) -> int:
    return 16


def _same(f: Field) -> int:
    return f.maximum


def _same_q16(f: Field) -> int:
    return f.maximum << 16


def _itself(x: int) -> int:
    return x


def _itself_q16(x: int) -> int:
    return x << 16


def _zero(x: int) -> int:
    return 0


ACCUMULATORS: Registry[Accumulator] = Registry(
    "accumulator",
    lambda accumulator: accumulator.name,
    (
        Accumulator("first", "value of the first sample", ("first",), _whole, _same,
                    lambda s, x, n, f: s["first"], lambda f: "{first}", of_constant=_itself,
                    of_state=lambda f: OfState("value", "first")),
        Accumulator("latest", "value of the latest sample; 0 without samples", ("latest",), _whole, _same,
                    lambda s, x, n, f: s["latest"], lambda f: "{latest}", of_constant=_itself,
                    of_state=lambda f: OfState("value", "latest")),
        Accumulator("sum", "sum of the samples", ("sum",), _whole, lambda f: SUM_MAX,
                    lambda s, x, n, f: s["sum"], lambda f: "{sum}",
                    of_state=lambda f: OfState("value", "sum")),
        Accumulator("count", "samples that are not 0", ("nonzero",), _whole, lambda f: COUNT_MAX,
                    lambda s, x, n, f: s["nonzero"], lambda f: "{nonzero}", unit=lambda unit: "packets",
                    of_state=lambda f: OfState("value", "nonzero")),
        Accumulator("min", "smallest sample; 0 without samples", ("min",), _whole, _same,
                    _minimum, lambda f: "{n} ? 0xffffffffU - {inverted_min} : 0", of_constant=_itself,
                    of_state=lambda f: OfState("complement", "inverted_min")),
        Accumulator("max", "largest sample; 0 without samples", ("max",), _whole, _same,
                    lambda s, x, n, f: s["max"], lambda f: "{max}", of_constant=_itself,
                    of_state=lambda f: OfState("value", "max")),
        Accumulator("mean", "sum / samples, 16 fractional bits", ("sum",), _q16, _same_q16,
                    _mean, lambda f: "{average}", of_constant=_itself_q16,
                    of_state=lambda f: OfState("ratio", "sum", shift=16)),
        Accumulator("variance", "population variance (Welford); 16 fractional bits, none for times",
                    ("welford",), lambda f: 16 if welford_fraction_bits(f) == 8 else 0,
                    lambda f: SQUARE_MAX if welford_fraction_bits(f) == 8 else SQUARE_MAX >> 8,
                    _variance,
                    lambda f: f"ww_ratio({{squares}}, {{n}}) >> {0 if welford_fraction_bits(f) == 8 else 8}",
                    unit=lambda unit: f"{unit}^2", of_constant=_zero,
                    of_state=lambda f: OfState(
                        "ratio", "squares", drop=0 if welford_fraction_bits(f) == 8 else 8
                    )),
        Accumulator("mean_abs_deviation", "mean distance from the mean so far, 16 fractional bits",
                    ("sum", "deviations"), _q16, _same_q16,
                    _mean_abs_deviation, lambda f: "ww_ratio({deviations}, {n})", of_constant=_zero,
                    of_state=lambda f: OfState("ratio", "deviations")),
        Accumulator("deviation_from_mean", "this packet's distance from the mean, 16 fractional bits",
                    ("sum",), _q16, _same_q16,
                    _deviation_from_mean, lambda f: "ww_deviation({x}, {average}, {n})", of_sample=True,
                    of_constant=_zero),
        Accumulator("pending", "samples of 1 less those of 2 after them; of `handshake`: SYNs without answer",
                    ("pending",), _whole, lambda f: COUNT_MAX,
                    lambda s, x, n, f: s["pending"], lambda f: "{pending}", unit=lambda unit: "packets",
                    of_state=lambda f: OfState("value", "pending")),
        Accumulator("distinct", f"how many different values, estimated, up to {DISTINCT_MAX}", ("distinct",),
                    _whole, lambda f: DISTINCT_MAX, _distinct,
                    lambda f: "ww_distinct({seen}, {seen_sampled})", unit=lambda unit: "values",
                    of_identity=True),
    ),
)  # fmt: skip
