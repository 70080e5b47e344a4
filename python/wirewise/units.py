# SPDX-License-Identifier: Apache-2.0
"""Durations as people write them: `500ms`, `60s`, `1.5 h`."""

from __future__ import annotations

import re
from fractions import Fraction

from wirewise.errors import InputError

_NANOSECONDS = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*")


def parse_duration(text: str | int, *, what: str) -> int:
    """Nanoseconds of a duration such as `500ms`.

    what : names the setting in the error. Raises InputError when the text is not a positive whole number of
    nanoseconds below 2^62.
    """
    match = _DURATION.fullmatch(str(text))
    if match is None or match[2] not in _NANOSECONDS:
        units = ", ".join(_NANOSECONDS)
        raise InputError(
            f"{what}: {text!r} is not a duration; write a number and a unit ({units}), such as 500ms"
        )
    value = Fraction(match[1]) * _NANOSECONDS[match[2]]
    if value.denominator != 1 or not 0 < value < 1 << 62:
        raise InputError(f"{what}: {text!r} must be a positive whole number of nanoseconds; try 1ms or more")
    return int(value)


def format_duration(nanoseconds: int) -> str:
    """The shortest exact spelling of a duration: 500000000 -> `500ms`."""
    for unit in ("h", "m", "s", "ms", "us"):
        if nanoseconds and nanoseconds % _NANOSECONDS[unit] == 0:
            return f"{nanoseconds // _NANOSECONDS[unit]}{unit}"
    return f"{nanoseconds}ns"


def parse_share(text: str, *, what: str) -> float:
    """A share of 0 to below 1, from `0.1%` or `0.001`. what : names the setting in the error."""
    number, percent, rest = text.strip().partition("%")
    try:
        share = float(number) / (100 if percent else 1)
    except ValueError:
        share = -1.0
    if rest or not 0 <= share < 1:
        raise InputError(f"{what}: {text!r} is no share from 0 to below 1; write 0.1% or 0.001")
    return share
