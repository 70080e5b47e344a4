# SPDX-License-Identifier: Apache-2.0
"""Accumulators: what is made of a field over the packets of a flow or of a window.

Two small vocabularies. A `Cell` is state kept with the flow and updated by each sample; an `Accumulator`
is a value read from cells. Each carries its reference and its C side by side, so that adding one is one
entry here, or from outside `CELLS.add` and `ACCUMULATORS.add`. State starts as zeros. In the C texts,
`{name}` of a cell variable is its place in the flow's state, `{x}` the sample, `{n}` the number of samples
with this one, `{average}` sum / n with 16 fractional bits; the helpers `ww_*` are in bpf/frame/arith.h.

Ranges: counts saturate at 2^32 - 1, sums at what so many samples come to, and at 2^47 - 1 (so that
`sum << 16` fits 63 bits), squared deviations and absolute deviations at 2^62. A cell says how large each of
its variables grows (`Bounds`), and the program keeps it in the smallest type that holds it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal

from wirewise.feature_sets.fields import Field
from wirewise.registry import Registry

COUNT_MAX = (1 << 32) - 1
SUM_MAX = (1 << 47) - 1
SQUARE_MAX = 1 << 62
DEVIATION_MAX = (1 << 31) - 1
_U32_MAX = (1 << 32) - 1
_U64_MAX = (1 << 64) - 1
PLACES = range(1, 33)
"""Numbers of the samples that `at` can give."""

State = dict[str, int]


def divide(dividend: int, divisor: int) -> int:
    """Division toward zero, as in C."""
    quotient = abs(dividend) // abs(divisor)
    return quotient if (dividend < 0) == (divisor < 0) else -quotient


def width(largest: int) -> int:
    """Bytes of the smallest type that holds a number: 1, 2, 4 or 8."""
    return next(size for size in (1, 2, 4, 8) if largest < 1 << 8 * size)


def welford_fraction_bits(field: Field) -> int:
    """Fractional bits of the running mean: 8 for fields of up to 20 bits, 4 for wider ones (times, TEID)."""
    return 8 if field.maximum < 1 << 20 else 4


@dataclass(frozen=True)
class Bounds:
    """What the samples of a field come to at most, in one scope.

    sample : the largest. total : the largest sum, where it saturates if it ever gets there.
    """

    field: Field
    sample: int
    total: int

    @classmethod
    def of(cls, field: Field, window_ns: int, idle_ns: int) -> Bounds:
        """window_ns : 0 for a whole flow. idle_ns : how long a flow or aggregate may be silent.

        Times between packets are bounded by the clock: none is longer than the silence that ends a flow, and
        those of a window add up to the window at most, besides the first, which began before it.
        """
        sample = min(field.maximum, idle_ns // 1000) if field.elapses else field.maximum
        total = min(sample * COUNT_MAX, SUM_MAX)
        if field.elapses and window_ns:
            total = min(total, (idle_ns + window_ns) // 1000)
        return cls(field, sample, total)

    @property
    def inverted(self) -> int:
        """The smallest type's largest number that holds a sample: what its complement is taken of."""
        return (1 << 8 * width(self.sample)) - 1


@dataclass(frozen=True)
class Cell:
    """State of one field in one scope.

    variables : name -> the largest number that it holds (the smallest is 0), one or more. update : reference,
    in place; (variables, sample, samples with this one, bounds). c : C statements, one a line.
    mixed : both get the sample mixed (`Context.mix`, `ww_mix`).
    """

    name: str
    variables: dict[str, Callable[[Bounds], int]]
    update: Callable[[State, int, int, Bounds], None]
    c: Callable[[Bounds], str]
    mixed: bool = False


def _update_sum(s: State, x: int, n: int, b: Bounds) -> None:
    s["sum"] = min(s["sum"] + x, b.total)


def _update_maximum(s: State, x: int, n: int, b: Bounds) -> None:
    s["max"] = max(s["max"], x)


def _update_minimum(s: State, x: int, n: int, b: Bounds) -> None:
    # Kept as its complement, so that a blank state is all zeros.
    s["inverted_min"] = max(s["inverted_min"], b.inverted - x)


def _update_first(s: State, x: int, n: int, b: Bounds) -> None:
    if n == 1:
        s["first"] = x


def _update_latest(s: State, x: int, n: int, b: Bounds) -> None:
    s["latest"] = x


def _update_nonzero(s: State, x: int, n: int, b: Bounds) -> None:
    s["nonzero"] = min(s["nonzero"] + (x != 0), COUNT_MAX)


def _at_place(place: int) -> Cell:
    """The sample with this number; `first` is that of 1."""
    name = f"at_{place}"

    def update(s: State, x: int, n: int, b: Bounds) -> None:
        if n == place:
            s[name] = x

    c = f"{{{name}}} = ww_either(ww_equal({{n}}, {place}), {{x}}, {{{name}}});"
    return Cell(name, {name: lambda b: b.sample}, update, lambda b: c)


def _update_repeats(s: State, x: int, n: int, b: Bounds) -> None:
    ahead = (x - s["furthest"]) & _U32_MAX
    if not x:
        return
    if not s["furthest"] or 0 < ahead < 1 << 31:
        s["furthest"] = x
    else:
        s["repeats"] = min(s["repeats"] + 1, COUNT_MAX)


def _clamp_deviation(value: int) -> int:
    return max(-DEVIATION_MAX, min(DEVIATION_MAX, value))


def _update_welford(s: State, x: int, n: int, b: Bounds) -> None:
    scaled = x << welford_fraction_bits(b.field)
    before = _clamp_deviation(scaled - s["mean"])
    s["mean"] += divide(before, n)
    after = _clamp_deviation(scaled - s["mean"])
    s["squares"] = min(s["squares"] + before * after, SQUARE_MAX)


def _update_deviations(s: State, x: int, n: int, b: Bounds) -> None:
    s["deviations"] = min(s["deviations"] + abs((x << 16) - (s["sum"] << 16) // n), SQUARE_MAX)


def _update_pending(s: State, x: int, n: int, b: Bounds) -> None:
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


def _update_distinct(s: State, x: int, n: int, b: Bounds) -> None:
    s["seen"] |= 1 << (x & 63)
    if x >> 6 & (SKETCH_SAMPLED - 1) == 0:
        s["seen_sampled"] |= 1 << (x >> 10 & 63)


def _widened(b: Bounds, variable: str) -> str:
    """C of a variable as large as a sample in 32 bits, since the helpers compute in its type."""
    return f"{'(__u32)' if width(b.sample) < 4 else ''}{{{variable}}}"


CELLS: Registry[Cell] = Registry(
    "cell",
    lambda cell: cell.name,
    (
        Cell(
            "sum",
            {"sum": lambda b: b.total},
            _update_sum,
            lambda b: (
                "{sum} = ww_min({sum} + {x}, WW_SUM_MAX);"
                if b.total == SUM_MAX
                else f"{{sum}} = ww_min((__u64){{sum}} + {{x}}, {b.total}ULL);"
            ),
        ),
        Cell(
            "max",
            {"max": lambda b: b.sample},
            _update_maximum,
            lambda b: f"{{max}} = ww_max({_widened(b, 'max')}, {{x}});",
        ),
        Cell(
            "min",
            {"inverted_min": lambda b: b.inverted},
            _update_minimum,
            lambda b: f"{{inverted_min}} = ww_max({_widened(b, 'inverted_min')}, {b.inverted:#x}U - {{x}});",
        ),
        Cell(
            "first",
            {"first": lambda b: b.sample},
            _update_first,
            lambda b: "{first} = ww_either(ww_equal({n}, 1), {x}, {first});",
        ),
        *(_at_place(place) for place in PLACES[1:]),
        Cell("latest", {"latest": lambda b: b.sample}, _update_latest, lambda b: "{latest} = {x};"),
        Cell(
            "nonzero",
            {"nonzero": lambda b: COUNT_MAX},
            _update_nonzero,
            lambda b: "{nonzero} = ww_increment({nonzero}, ww_is_not_0({x}));",
        ),
        # Mean and sum of squared deviations (B. P. Welford, 1962; used by hara2026, section IV-A).
        Cell(
            "welford",
            {"mean": lambda b: b.sample << welford_fraction_bits(b.field), "squares": lambda b: SQUARE_MAX},
            _update_welford,
            lambda b: (
                f"ww_welford({{mean}}, {{squares}}, (__s64){{x}} << {welford_fraction_bits(b.field)}, {{n}});"
            ),
        ),
        # Needs the sum of the same field and scope, updated before it.
        Cell(
            "deviations",
            {"deviations": lambda b: SQUARE_MAX},
            _update_deviations,
            lambda b: (
                "{deviations} = ww_min({deviations} + "
                "ww_deviation({x}, ww_mean({sum}, {n}), {n}), WW_SQUARE_MAX);"
            ),
        ),
        Cell(
            "pending",
            {"pending": lambda b: COUNT_MAX},
            _update_pending,
            lambda b: "{pending} = ww_pending({pending}, {x});",
        ),
        # Serial numbers are compared as RFC 1982 does; 0 is none.
        Cell(
            "repeats",
            {"furthest": lambda b: _U32_MAX, "repeats": lambda b: COUNT_MAX},
            _update_repeats,
            lambda b: "ww_repeats(&{furthest}, &{repeats}, {x});",
        ),
        # Two bitmaps, the second of a sample of the values: the multiresolution bitmap of C. Estan,
        # G. Varghese and M. Fisk, "Bitmap Algorithms for Counting Active Flows on High-Speed Links" (2003).
        Cell(
            "distinct",
            {"seen": lambda b: _U64_MAX, "seen_sampled": lambda b: _U64_MAX},
            _update_distinct,
            lambda b: "ww_sketch(&{seen}, &{seen_sampled}, {x});",
            mixed=True,
        ),
    ),
)
"""In the order in which a sample updates them: `deviations` reads `sum`."""


@dataclass(frozen=True)
class OfState:
    """How a value comes of a flow's state alone, for who shows flows and runs neither Python nor the program.

    how : `value`, the variable as it is; `complement`, 2^shift - 1 less the variable; `ratio`,
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
    (variables, sample or None, samples, bounds) -> int; the sample is None where
    the packet is no sample of the field, or where a finished window is read. c : C expression. of_sample :
    it compares with the current sample, so it has no meaning in a previous window. of_identity : it may read
    fields that only tell hosts or flows apart. of_state : the same value
    for who has the state and nothing else; None where it takes more. unit : of the value, by
    the field's unit. of_constant : the value where every sample is the same number, so that it needs neither
    state nor code; None where it depends on how many samples there were. of_window : a window without
    samples has 0 of it, and each sample may add to it, so that what is usual for windows can be learned.
    of_serial : it is of serial numbers, and nothing else is. place : the number of the sample that it gives,
    of PLACES; 0: it is of all. at : the accumulator of another place.
    """

    name: str
    doc: str
    cells: tuple[str, ...]
    fraction_bits: Callable[[Field], int]
    maximum: Callable[[Field], int]
    read: Callable[[State, int | None, int, Bounds], int]
    c: Callable[[Bounds], str]
    of_sample: bool = False
    of_identity: bool = False
    of_state: Callable[[Bounds], OfState] | None = None
    unit: Callable[[str], str] = lambda unit: unit
    of_constant: Callable[[int], int] | None = None
    of_window: bool = False
    of_serial: bool = False
    place: int = 0
    at: Callable[[int], Accumulator] | None = None

    @property
    def label(self) -> str:
        """What names of features and variables have of it."""
        return f"{self.name}_{self.place}" if self.place else self.name


def _mean(s: State, x: int | None, n: int, b: Bounds) -> int:
    return (s["sum"] << 16) // n if n else 0


def _minimum(s: State, x: int | None, n: int, b: Bounds) -> int:
    return b.inverted - s["inverted_min"] if n else 0


def _variance_drop(field: Field) -> int:
    """Fractional bits of a variance that are not kept: all of a time's."""
    return 0 if welford_fraction_bits(field) == 8 else 8


def _variance(s: State, x: int | None, n: int, b: Bounds) -> int:
    return s["squares"] // n >> _variance_drop(b.field) if n else 0


def _mean_abs_deviation(s: State, x: int | None, n: int, b: Bounds) -> int:
    return s["deviations"] // n if n else 0


def _deviation_from_mean(s: State, x: int | None, n: int, b: Bounds) -> int:
    return abs((x << 16) - (s["sum"] << 16) // n) if x is not None and n else 0


def _distinct(s: State, x: int | None, n: int, b: Bounds) -> int:
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


@cache
def _at(place: int) -> Accumulator:
    cell = f"at_{place}" if place > 1 else "first"
    return Accumulator(
        "at", f"value of the N-th sample, N from 1 to {PLACES[-1]}; 0 before it", (cell,), _whole, _same,
        lambda s, x, n, b: s[cell], lambda b: f"{{{cell}}}", of_state=lambda b: OfState("value", cell),
        place=place, at=_at,
    )  # fmt: skip


ACCUMULATORS: Registry[Accumulator] = Registry(
    "accumulator",
    lambda accumulator: accumulator.name,
    (
        Accumulator("first", "value of the first sample", ("first",), _whole, _same,
                    lambda s, x, n, b: s["first"], lambda b: "{first}", of_constant=_itself,
                    of_state=lambda b: OfState("value", "first")),
        Accumulator("latest", "value of the latest sample; 0 without samples", ("latest",), _whole, _same,
                    lambda s, x, n, b: s["latest"], lambda b: "{latest}", of_constant=_itself,
                    of_state=lambda b: OfState("value", "latest")),
        _at(2),
        Accumulator("sum", "sum of the samples", ("sum",), _whole, lambda f: SUM_MAX,
                    lambda s, x, n, b: s["sum"], lambda b: "{sum}",
                    of_state=lambda b: OfState("value", "sum"), of_window=True),
        Accumulator("count", "samples that are not 0", ("nonzero",), _whole, lambda f: COUNT_MAX,
                    lambda s, x, n, b: s["nonzero"], lambda b: "{nonzero}", unit=lambda unit: "packets",
                    of_state=lambda b: OfState("value", "nonzero"), of_window=True),
        Accumulator("min", "smallest sample; 0 without samples", ("min",), _whole, _same,
                    _minimum, lambda b: f"{{n}} ? {b.inverted:#x}U - {{inverted_min}} : 0",
                    of_constant=_itself,
                    of_state=lambda b: OfState("complement", "inverted_min", shift=b.inverted.bit_length())),
        Accumulator("max", "largest sample; 0 without samples", ("max",), _whole, _same,
                    lambda s, x, n, b: s["max"], lambda b: "{max}", of_constant=_itself,
                    of_state=lambda b: OfState("value", "max")),
        Accumulator("mean", "sum / samples, 16 fractional bits", ("sum",), _q16, _same_q16,
                    _mean, lambda b: "{average}", of_constant=_itself_q16,
                    of_state=lambda b: OfState("ratio", "sum", shift=16)),
        Accumulator("variance", "population variance (Welford); 16 fractional bits, none for times",
                    ("welford",), lambda f: 0 if _variance_drop(f) else 16,
                    lambda f: SQUARE_MAX >> _variance_drop(f),
                    _variance,
                    lambda b: f"ww_ratio({{squares}}, {{n}}) >> {_variance_drop(b.field)}",
                    unit=lambda unit: f"{unit}^2", of_constant=_zero,
                    of_state=lambda b: OfState("ratio", "squares", drop=_variance_drop(b.field))),
        Accumulator("mean_abs_deviation", "mean distance from the mean so far, 16 fractional bits",
                    ("sum", "deviations"), _q16, _same_q16,
                    _mean_abs_deviation, lambda b: "ww_ratio({deviations}, {n})", of_constant=_zero,
                    of_state=lambda b: OfState("ratio", "deviations")),
        Accumulator("deviation_from_mean", "this packet's distance from the mean, 16 fractional bits",
                    ("sum",), _q16, _same_q16,
                    _deviation_from_mean, lambda b: "ww_deviation({x}, {average}, {n})", of_sample=True,
                    of_constant=_zero),
        Accumulator("pending", "samples of 1 less those of 2 after them; of `handshake`: SYNs without answer",
                    ("pending",), _whole, lambda f: COUNT_MAX,
                    lambda s, x, n, b: s["pending"], lambda b: "{pending}", unit=lambda unit: "packets",
                    of_state=lambda b: OfState("value", "pending")),
        Accumulator("repeats", "samples that do not go beyond earlier ones; of `tcp_end`: retransmissions",
                    ("repeats",), _whole, lambda f: COUNT_MAX,
                    lambda s, x, n, b: s["repeats"], lambda b: "{repeats}", unit=lambda unit: "packets",
                    of_state=lambda b: OfState("value", "repeats"), of_serial=True),
        Accumulator("distinct", f"how many different values, estimated, up to {DISTINCT_MAX}", ("distinct",),
                    _whole, lambda f: DISTINCT_MAX, _distinct,
                    lambda b: "ww_distinct({seen}, {seen_sampled})", unit=lambda unit: "values",
                    of_identity=True, of_window=True),
    ),
)  # fmt: skip
