# SPDX-License-Identifier: Apache-2.0
"""Quantisation-aware fine-tuning: the weights learn to live with the rounding.

The forward pass is the integer network's own arithmetic; the backward pass takes rounding as the identity
and clamps as they are (straight-through estimator; Y. Bengio et al., "Estimating or propagating gradients
through stochastic neurons", 2013). What is learned is what the float network says of each row (knowledge
distillation; G. Hinton et al., 2015), half and half with the labels where they are known. Scales and clamps
stay as they are.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from wirewise.models.quantized_mlp import LIMIT
from wirewise.quantize.float_network import FloatNetwork, Floats, log_probabilities
from wirewise.quantize.int8 import Draft

_BATCH = 512
_EPOCHS = 40
_FEWEST_STEPS, _MOST_STEPS = 1000, 10_000
RATES = (0.2, 0.05)  # of weights, in integer steps, bold and careful; falls to 0 along a cosine
_BIAS_RATE = 60  # times that of weights: a bias stands beside inputs of about that size
_LABEL_SHARE = 0.5
_LARGEST_BIAS = 2.0**30


def fine_tune(
    draft: Draft,
    network: FloatNetwork,
    rows: NDArray[np.int64],
    labels: NDArray[np.int64] | None = None,
    *,
    rate: float = RATES[0],
    seed: int = 0,
) -> Draft:
    """A draft whose weights and biases have been trained further by Adam. rows: (n, n_features).

    labels: class numbers (n,), -1 where unknown. Equal arguments give equal drafts.
    """
    wanted = np.exp(log_probabilities(network.scores(rows)))
    if labels is not None:
        known = np.flatnonzero(labels >= 0)
        wanted[known] *= 1 - _LABEL_SHARE
        wanted[known, labels[known]] += _LABEL_SHARE
    encoded = draft.encode(rows)
    steps = int(np.clip(_EPOCHS * len(rows) / _BATCH, _FEWEST_STEPS, _MOST_STEPS))
    rng = np.random.default_rng(seed)
    parts = [part for layer in draft.layers for part in (layer.weights.copy(), layer.bias.copy())]
    mean, square = [np.zeros_like(part) for part in parts], [np.zeros_like(part) for part in parts]
    for step in range(1, steps + 1):
        draft = _with(draft, parts)
        batch = rng.integers(0, len(rows), min(_BATCH, len(rows)))
        slow = 0.5 * (1 + np.cos(np.pi * step / steps))
        for index, gradient in enumerate(_gradients(draft, encoded[batch], wanted[batch])):
            mean[index] += 0.1 * (gradient - mean[index])
            square[index] += 0.001 * (gradient**2 - square[index])
            move = mean[index] / (1 - 0.9**step) / (np.sqrt(square[index] / (1 - 0.999**step)) + 1e-12)
            parts[index] -= slow * (_BIAS_RATE * rate if index % 2 else rate) * move
            most = _LARGEST_BIAS if index % 2 else LIMIT
            np.clip(parts[index], -most, most, out=parts[index])
    return _with(draft, parts)


def _with(draft: Draft, parts: list[Floats]) -> Draft:
    layers = tuple(
        replace(layer, weights=parts[2 * index], bias=parts[2 * index + 1])
        for index, layer in enumerate(draft.layers)
    )
    return replace(draft, layers=layers)


def _gradients(draft: Draft, encoded: Floats, wanted: Floats) -> list[Floats]:
    """Gradients of the mean cross-entropy by weights and bias of each layer, in that order."""
    values, scaled = [encoded], []
    for layer in draft.layers:
        scaled.append(layer.sums(values[-1]) * layer.factor)
        values.append(np.clip(np.floor(scaled[-1] + 0.5), 0, LIMIT))
    slope = (np.exp(log_probabilities(scaled[-1])) - wanted) / len(encoded)
    if scaled[-1].shape[1] == 1:
        slope = slope[:, 1:]
    gradients: list[Floats] = []
    for index in range(len(draft.layers) - 1, -1, -1):
        layer = draft.layers[index]
        by_sum = slope * layer.factor
        gradients = [values[index].T @ by_sum, by_sum.sum(axis=0), *gradients]
        if index:
            inside = (scaled[index - 1] > 0) & (scaled[index - 1] < LIMIT)
            slope = (by_sum @ np.clip(np.rint(layer.weights), -LIMIT, LIMIT).T) * inside
    return gradients
