# SPDX-License-Identifier: Apache-2.0
"""Features to small integers: how the normalisation of a network folds into its input scalers."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor

import numpy as np
from numpy.typing import NDArray

from wirewise.models.network import MAX_SHIFT
from wirewise.models.rules import INT32_MAX, INT64_MAX, INT64_MIN
from wirewise.quantize.calibration import threshold
from wirewise.quantize.float_network import FloatNetwork


@dataclass(frozen=True)
class Ranges:
    """The clamps of every feature, int64 (n_features,): what lies outside counts as the nearest clamp."""

    low: NDArray[np.int64]
    high: NDArray[np.int64]


def clip_of(network: FloatNetwork) -> Ranges:
    """Where the network itself clips its features, as int64; the whole of int64 where it does not."""
    low, high = np.full(network.n_features, INT64_MIN), np.full(network.n_features, INT64_MAX)
    if network.low is not None:
        low = np.array([max(INT64_MIN, ceil(v)) if v > -(2.0**63) else INT64_MIN for v in network.low])
    if network.high is not None:
        high = np.array([min(INT64_MAX, floor(v)) if v < 2.0**63 else INT64_MAX for v in network.high])
    return Ranges(low, np.maximum(low, high))


def seen(network: FloatNetwork, rows: NDArray[np.int64]) -> Ranges:
    """Least and largest value of each feature in rows (n, n_features), within the network's own clip."""
    clip = clip_of(network)
    return Ranges(
        np.clip(rows.min(axis=0), clip.low, clip.high), np.clip(rows.max(axis=0), clip.low, clip.high)
    )


def calibrated(network: FloatNetwork, rows: NDArray[np.int64], method: str, *, levels: int) -> Ranges:
    """What was seen, cut to +-alpha of the normalised features, which are calibrated as one tensor."""
    widest = seen(network, rows)
    alpha = threshold(network.encode(rows), method, levels=levels)
    low, high = widest.low.copy(), widest.high.copy()
    for k, scale in enumerate(network.scale):
        if scale == 0 or low[k] == high[k]:
            continue
        edges = network.offset[k] + np.array([-alpha, alpha]) / abs(scale)
        low[k] = max(int(low[k]), int(np.floor(edges[0])))
        high[k] = min(int(high[k]), int(np.ceil(edges[1])))
        if low[k] > high[k]:  # the rows lie far from the mean of what was trained on
            low[k], high[k] = widest.low[k], widest.high[k]
    return Ranges(low, high)


def fixed_point(factor: float, apart: int, *, most: int = INT32_MAX) -> tuple[int, int]:
    """(multiplier, shift) with multiplier / 2^shift nearest to factor >= 0, multiplier <= most.

    apart: the largest magnitude that is multiplied: the product, rounded, must stay below 2^63. A factor
    too small for any multiplier gives (0, 0).
    """
    if factor <= 0:
        return 0, 0
    for shift in range(MAX_SHIFT, -1, -1):
        multiplier = round(factor * 2**shift)
        if multiplier <= most and apart * multiplier + (1 << shift >> 1) <= INT64_MAX:
            return multiplier, shift
    return min(most, INT64_MAX // max(1, apart)), 0
