# SPDX-License-Identifier: Apache-2.0
"""Calibration: how large a number the integer range should still represent, chosen from numbers seen.

A threshold `alpha` maps [-alpha, alpha] to the integers of -levels to levels; what is larger saturates. Four
ways to choose it:

- kl: the least Kullback-Leibler divergence between the histogram of the numbers and that of their quantised
  values (hara2023, section III.D and IV.B; the histogram search is that of S. Migacz, "8-bit inference with
  TensorRT", GTC 2017);
- minmax: the largest number seen; percentile: that of 99.99 % of them; mse: the least mean squared error.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from wirewise.errors import InputError, choose

Floats = NDArray[np.float64]

PERCENTILE = 99.99
_BINS = 2048
_STRIDE = 16
_LEAST = 1e-7  # probability of a bin that is empty but for what was clipped into it
_CANDIDATES = 100


def threshold(values: NDArray[np.floating], method: str = "kl", *, levels: int = 127) -> float:
    """The threshold, above 0, of numbers of any shape by one of METHODS. All zero: 1.0."""
    if method not in METHODS:
        raise InputError(f"calibration {method!r}", "is not known", choose(method, METHODS))
    magnitudes = np.abs(np.asarray(values, np.float64)).ravel()
    magnitudes = magnitudes[magnitudes > 0]
    if not len(magnitudes):
        return 1.0
    return METHODS[method](magnitudes, levels)


def _minmax(magnitudes: Floats, levels: int) -> float:
    return float(magnitudes.max())


def _percentile(magnitudes: Floats, levels: int) -> float:
    return float(np.percentile(magnitudes, PERCENTILE))


def _mse(magnitudes: Floats, levels: int) -> float:
    if len(magnitudes) > 20_000:  # sorted, so that the sample has the same tail for any order of rows
        magnitudes = np.sort(magnitudes)[:: len(magnitudes) // 10_000]
    candidates = magnitudes.max() * np.linspace(1 / _CANDIDATES, 1, _CANDIDATES)
    errors = []
    for alpha in candidates:
        step = alpha / levels
        errors.append(np.square(np.minimum(np.rint(magnitudes / step), levels) * step - magnitudes).sum())
    return float(candidates[int(np.argmin(errors))])


def _kl(magnitudes: Floats, levels: int) -> float:
    counts, edges = np.histogram(magnitudes, bins=_BINS, range=(0.0, float(magnitudes.max())))
    best, best_at = np.inf, _BINS
    for at in range(_BINS, levels, -_STRIDE):  # from the largest, so that equals clip least
        divergence = _divergence(counts, at, levels)
        if divergence < best:
            best, best_at = divergence, at
    return float(edges[best_at])


def _divergence(counts: NDArray[np.int64], at: int, levels: int) -> float:
    """KL of the first `at` bins, with all that is above in the last, from the same in `levels` bins."""
    kept = counts[:at].astype(np.float64)
    reference = kept.copy()
    reference[-1] += counts[at:].sum()
    starts = np.arange(levels) * at // levels
    filled = kept > 0
    share = np.add.reduceat(kept, starts) / np.maximum(np.add.reduceat(filled.astype(np.float64), starts), 1)
    quantised = np.where(filled, np.repeat(share, np.diff(starts, append=at)), 0)
    seen = reference > 0
    if not filled.any():
        return float(np.inf)
    p, q = reference[seen] / reference.sum(), np.maximum(quantised[seen] / quantised.sum(), _LEAST)
    return float((p * np.log(p / q)).sum())


METHODS: dict[str, Callable[[Floats, int], float]] = {
    "kl": _kl,
    "minmax": _minmax,
    "percentile": _percentile,
    "mse": _mse,
}
