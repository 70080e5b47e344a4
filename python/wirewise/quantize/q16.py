# SPDX-License-Identifier: Apache-2.0
"""Float networks to Q16 (hara2026): 16 fractional bits, standardised inputs, 64-bit sums.

Nothing is calibrated: the clamps of the inputs are as wide as arithmetic allows, so that values never seen in
training go through the network as they do in floating point.
"""

from __future__ import annotations

from dataclasses import replace
from math import floor

import numpy as np
from numpy.typing import NDArray

from wirewise.errors import InputError
from wirewise.models.fixed_point_mlp import FRACTION_BITS, FixedPointLayer, FixedPointMlp
from wirewise.models.network import InputScaler
from wirewise.models.rules import INT64_MAX, INT64_MIN
from wirewise.quantize import inputs
from wirewise.quantize.float_network import FloatNetwork

ONE = 1 << FRACTION_BITS
WIDEST = 2.0**15 - 1  # of a normalised input, so that it fits 32 bits with its fraction
_FINE = 2**15  # a multiplier of at least this loses less than the input's own 16 fractional bits


def quantize(network: FloatNetwork, rows: NDArray[np.int64]) -> FixedPointMlp:
    """The Q16 network. rows: (n, n_features), whose range is never clamped.

    Raises InputError, naming layer and neuron, for a weight of 2^15 or more, and if a sum could overflow
    although the inputs are clamped to the range of rows.
    """
    for feature, scale in enumerate(np.abs(network.scale).tolist()):
        if scale > WIDEST:
            raise InputError(
                f"network, feature {feature}", f"is multiplied by {scale:,.0f}, Q16 numbers end at 32,767",
                "scale it down, as a standardisation does",
            )  # fmt: skip
    seen = inputs.seen(network, rows)
    centres = [min(max(round(o), INT64_MIN // 2), INT64_MAX // 2) for o in network.offset.tolist()]
    layers = _layers(network, centres)
    widest = WIDEST
    while True:
        scalers = tuple(
            _scaler(abs(scale), centre, (low, high), widest)
            for scale, centre, low, high in zip(
                network.scale.tolist(), centres, seen.low.tolist(), seen.high.tolist(), strict=True
            )
        )
        scalers = tuple(_clip(scaler, network, k) for k, scaler in enumerate(scalers))
        try:
            return FixedPointMlp(network.n_features, network.n_classes, network.n_outputs, scalers, layers)
        except InputError:  # a sum can overflow: smaller inputs may help, down to what was seen
            if widest < 1:
                raise
            widest /= 2


def _layers(network: FloatNetwork, centres: list[int]) -> tuple[FixedPointLayer, ...]:
    """Rounded weights and biases. The first layer takes in what the inputs' scalers leave out."""
    sign = np.where(network.scale < 0, -1.0, 1.0)
    moved = (np.array(centres, np.float64) - network.offset) * network.scale
    first = (sign[:, None] * network.weights[0], network.biases[0] + moved @ network.weights[0])
    layers = []
    for weights, bias in (first, *zip(network.weights[1:], network.biases[1:], strict=True)):
        integers = np.clip(weights, -(2.0**40), 2.0**40).T * ONE  # what is beyond is refused by the rules
        layers.append(
            FixedPointLayer(
                tuple(tuple(map(round, row)) for row in integers.tolist()),
                tuple(map(round, (np.clip(bias, -(2.0**40), 2.0**40) * ONE * ONE).tolist())),
            )
        )
    return tuple(layers)


def _scaler(scale: float, centre: int, seen: tuple[int, int], widest: float) -> InputScaler:
    """Clamps at `widest` normalised units, not inside `seen`, and closer where the multiplier needs it."""
    if scale == 0:
        return InputScaler(*seen, centre, 0, 0)
    least = max(abs(seen[0] - centre), abs(seen[1] - centre))
    apart = min(max(_floor(widest / scale), least), _floor(WIDEST / scale))
    multiplier, shift = inputs.fixed_point(scale * ONE, apart)
    while multiplier < _FINE and apart > least:
        apart = max(apart // 2, least)
        multiplier, shift = inputs.fixed_point(scale * ONE, apart)
    return InputScaler(
        max(INT64_MIN, centre - apart), min(INT64_MAX, centre + apart), centre, multiplier, shift
    )


def _floor(value: float) -> int:
    return INT64_MAX // 2 if value >= INT64_MAX // 2 else floor(value)


def _clip(scaler: InputScaler, network: FloatNetwork, feature: int) -> InputScaler:
    """Clamped where the network itself clips."""
    clip = inputs.clip_of(network)
    low, high = max(scaler.low, int(clip.low[feature])), min(scaler.high, int(clip.high[feature]))
    return replace(scaler, low=min(low, high), high=high)
