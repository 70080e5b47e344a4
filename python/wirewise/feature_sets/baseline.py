# SPDX-License-Identifier: Apache-2.0
"""What is usual for an aggregate, learned from its finished windows, and the current window compared with it.

    ratio(count(by=destination, window=1s), baseline=10m)

After each window, the mean and the mean distance from it move toward the window's value by 1/n of the way.
At first n counts the windows, which makes them plain means; it stops at the baseline's length in windows,
rounded to a power of two, and from there on they are exponentially weighted. Windows without packets do not
count.

A baseline is warm after a quarter of its length. From then on a window counts as twice the mean and FREE more
at most: an attacker who wants a higher rate to look usual gains a factor of e in the length of a baseline.

The C is in bpf/classify/baseline.h.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from wirewise.feature_sets.accumulators import divide
from wirewise.registry import Registry

RATE_MAX = (1 << 39) - 1
"""A window's value counts as no more, so that everything computed from it fits 64 bits."""
FREE = 4
LENGTHS = range(8, 4097)
"""A baseline's length in windows."""
_ONE = 1 << 16


def weighted_windows(windows: int) -> int:
    """Of LENGTHS, the nearest power of two; nearest by quotient."""
    return 1 << ((2 * windows * windows).bit_length() - 1) // 2


def warm_windows(windows: int) -> int:
    """The number of windows after which a baseline of `windows` windows is warm."""
    return weighted_windows(windows) // 4


@dataclass
class Usual:
    """Reference of a baseline. mean, spread : of windows, and their distance from it; 16 fractional bits."""

    mean: int = 0
    spread: int = 0

    def learn(self, value: int, finished: int, windows: int) -> None:
        """A window is over. finished : how many are, with it. windows : the baseline's length."""
        x = min(value, RATE_MAX) << 16
        if finished > warm_windows(windows):
            x = min(x, 2 * self.mean + FREE * _ONE)
        n = min(finished, weighted_windows(windows))
        self.mean += divide(x - self.mean, n)
        self.spread += divide(abs(x - self.mean) - self.spread, n)


@dataclass(frozen=True)
class Comparison:
    """A feature of a window's value and its baseline, 0 until that is warm.

    read : reference; (value, baseline) -> int. c : C of the same, with `{value}`, `{mean}`, `{spread}`.
    """

    name: str
    doc: str
    unit: str
    fraction_bits: int
    maximum: int
    read: Callable[[int, Usual], int]
    c: str


def _ratio(value: int, usual: Usual) -> int:
    return (min(value, RATE_MAX) << 24) // (max(usual.mean, _ONE) >> 8)


def _deviation(value: int, usual: Usual) -> int:
    above = max(0, (min(value, RATE_MAX) << 16) - usual.mean)
    return (above << 8) // (max(usual.spread, _ONE) >> 8)


COMPARISONS: Registry[Comparison] = Registry(
    "comparison",
    lambda comparison: comparison.name,
    (
        Comparison(
            "ratio", "the current window so far / mean, which counts as 1 at least; 16 fractional bits",
            "times", 16, RATE_MAX << 16, _ratio, "ww_times_usual({value}, {mean})",
        ),
        Comparison(
            "deviation",
            "how far the current window is above the mean / mean distance from it, which counts as 1 at "
            "least; 0 below; 16 fractional bits",
            "mean deviations", 16, RATE_MAX << 16, _deviation, "ww_above_usual({value}, {mean}, {spread})",
        ),
        Comparison(
            "warm", "1 once the baseline is warm", "flag", 0, 1, lambda value, usual: 1, "1",
        ),
    ),
)  # fmt: skip
