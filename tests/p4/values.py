# SPDX-License-Identifier: Apache-2.0
"""Expressions of P4, with their widths: checked when they are prepared, wrapped around when they are run.

An expression becomes a function of the storage, a list. A word that nothing has set is None there, and using
it is an error, as P4 leaves its value open.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.p4 import nodes as g
from tests.p4.nodes import P4Error

MAX_SHIFT = 256
Store = list[Any]
Run = Callable[[Store], int]


@dataclass(frozen=True)
class Word:
    """A field, parameter or validity bit: its place in storage. width : 0 for bool."""

    slot: int
    width: int


@dataclass(frozen=True)
class Header:
    valid: int
    fields: dict[str, Word]


@dataclass(frozen=True)
class Value:
    """width : 0 for bool, None for a number without one."""

    width: int | None
    run: Run
    constant: int | None = None


class Scope:
    """Names, from the inside out: words, headers, structs as dictionaries, constants, or anything else."""

    def __init__(self, names: dict[str, Any], outer: Scope | None = None) -> None:
        self.names, self.outer = names, outer

    def find(self, path: tuple[str, ...]) -> Any:
        if path[0] not in self.names:
            if self.outer is None:
                raise P4Error(f"{'.'.join(path)} is not declared")
            return self.outer.find(path)
        found = self.names[path[0]]
        for name in path[1:]:
            inside = found.fields if isinstance(found, Header) else found
            if not isinstance(inside, dict) or name not in inside:
                raise P4Error(f"{'.'.join(path)} is not declared")
            found = inside[name]
        return found


def fixed(width: int | None, value: int) -> Value:
    if width and value >> width:
        raise P4Error(f"{value} does not fit {width} bits")
    return Value(width, lambda store: value, value)


def fit(value: Value, width: int) -> Value:
    """The value, where one of this width must be."""
    if value.width is None and width:
        assert value.constant is not None
        return fixed(width, value.constant)
    if value.width != width:
        raise P4Error(f"a value of {value.width} bits stands where {width} are needed")
    return value


def prepare(e: Any, scope: Scope) -> Value:
    if isinstance(e, g.Num):
        return fixed(e.width, e.value)
    if isinstance(e, g.Name):
        return _name(scope.find(e.path), e)
    if isinstance(e, g.Slice):
        return _slice(prepare(e.of, scope), e.high, e.low)
    if isinstance(e, g.Cast):
        return _cast(e.to, prepare(e.of, scope))
    if isinstance(e, g.Unary):
        return _unary(e.op, prepare(e.of, scope))
    if isinstance(e, g.Concat):
        return _concat([prepare(part, scope) for part in e.parts])
    if isinstance(e, g.Binary):
        return _binary(e.op, prepare(e.left, scope), prepare(e.right, scope))
    if isinstance(e, g.Choice):
        test, yes, no = (prepare(one, scope) for one in (e.test, e.yes, e.no))
        if test.width != 0:
            raise P4Error("the condition of ?: is no bool")
        no = fit(no, yes.width or 0)
        return Value(yes.width, lambda s, t=test.run, y=yes.run, n=no.run: y(s) if t(s) else n(s))
    if isinstance(e, g.Call) and e.path[-1] == "isValid" and not e.given:
        header = scope.find(e.path[:-1])
        return Value(0, lambda s, slot=header.valid: s[slot])
    raise P4Error(f"{e} is no value")


def _name(found: Any, e: g.Name) -> Value:
    if isinstance(found, Value):
        return found
    if not isinstance(found, Word):
        raise P4Error(f"{'.'.join(e.path)} is no value")
    slot = found.slot

    def run(store: Store) -> int:
        value = store[slot]
        if value is None:
            raise P4Error(f"{'.'.join(e.path)} is read before anything is written to it")
        return value  # type: ignore[no-any-return]

    return Value(found.width, run)


def _slice(of: Value, high: int, low: int) -> Value:
    if not of.width or not of.width > high >= low >= 0:
        raise P4Error(f"[{high}:{low}] of {of.width} bits")
    ones = (1 << high - low + 1) - 1
    return Value(high - low + 1, lambda s, run=of.run: run(s) >> low & ones)


def _cast(to: Any, of: Value) -> Value:
    width = to.width if isinstance(to, g.Bits) else 0
    if of.width is None or 0 in (width, of.width):  # of a literal, or bool to bit<1> and back
        if of.width is not None and {width, of.width} != {0, 1}:
            raise P4Error("bool becomes bit<1> only")
        return Value(width, of.run, of.constant)
    ones = (1 << width) - 1
    return Value(width, lambda s, run=of.run: run(s) & ones)


def _unary(op: str, of: Value) -> Value:
    if op == "!":
        if of.width != 0:
            raise P4Error("! of no bool")
        return Value(0, lambda s, run=of.run: 1 - run(s))
    if not of.width:
        raise P4Error(f"{op} of no word")
    ones = (1 << of.width) - 1
    if op == "~":
        return Value(of.width, lambda s, run=of.run: ~run(s) & ones)
    return Value(of.width, lambda s, run=of.run: -run(s) & ones)


def _concat(parts: list[Value]) -> Value:
    if any(not part.width for part in parts):
        raise P4Error("++ of something without a width")
    runs = [(part.run, part.width) for part in parts]

    def run(store: Store) -> int:
        value = 0
        for one, width in runs:
            value = value << width | one(store)
        return value

    return Value(sum(part.width or 0 for part in parts), run)


def _binary(op: str, left: Value, right: Value) -> Value:
    if op in ("<<", ">>"):
        if not left.width:
            raise P4Error(f"{op} of something without a width")
        return _shift(op, left, right)
    if op in ("&&", "||"):
        if left.width != 0 or right.width != 0:
            raise P4Error(f"{op} of no bools")
        both = op == "&&"
        return Value(0, lambda s, a=left.run, b=right.run: b(s) if bool(a(s)) == both else a(s))
    if left.width is None and right.width is not None:
        left = fit(left, right.width)
    if left.width is None:
        raise P4Error(f"{op} of two numbers without a width")
    right = fit(right, left.width)
    a, b, width = left.run, right.run, left.width
    compare: dict[str, Run] = {
        "==": lambda s: int(a(s) == b(s)),
        "!=": lambda s: int(a(s) != b(s)),
        "<": lambda s: int(a(s) < b(s)),
        ">": lambda s: int(a(s) > b(s)),
        "<=": lambda s: int(a(s) <= b(s)),
        ">=": lambda s: int(a(s) >= b(s)),
    }
    if op in compare:
        return Value(0, compare[op])
    if width == 0:
        raise P4Error(f"{op} of bools")
    ones = (1 << width) - 1
    arithmetic: dict[str, Run] = {
        "+": lambda s: a(s) + b(s) & ones,
        "-": lambda s: a(s) - b(s) & ones,
        "&": lambda s: a(s) & b(s),
        "|": lambda s: a(s) | b(s),
        "^": lambda s: a(s) ^ b(s),
    }
    return Value(width, arithmetic[op])


def _shift(op: str, left: Value, right: Value) -> Value:
    if (right.constant or 0) > MAX_SHIFT:
        raise P4Error(f"a shift by {right.constant}: p4c takes no more than {MAX_SHIFT} for bmv2")
    a, b = left.run, right.run
    ones = (1 << (left.width or 0)) - 1
    if op == "<<":
        return Value(left.width, lambda s: a(s) << b(s) & ones)
    return Value(left.width, lambda s: a(s) >> b(s))
