# SPDX-License-Identifier: Apache-2.0
"""Float networks to int8 (hara2023): from ranges and thresholds to integers.

A `Plan` holds the choices that are free: clamps of the inputs, thresholds of the hidden activations and of
each neuron's weights. `draft` makes integers from it. Calibration chooses the first plan, search.py refines
it, finetune.py changes a draft's weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from wirewise.models.network import MAX_SHIFT, ScalerArrays
from wirewise.models.quantized_mlp import LIMIT, InputQuantizer, QuantizedLayer, QuantizedMlp
from wirewise.models.rules import INT32_MAX
from wirewise.quantize import inputs
from wirewise.quantize.calibration import threshold
from wirewise.quantize.float_network import FloatNetwork, Floats
from wirewise.quantize.inputs import Ranges

_SCORE_BITS = 20  # of the largest multiplier of the last layer, which brings all scores to one scale
_COARSEST = 2.0**16  # between the units of two neurons of a layer, so that no multiplier loses its digits
_LEAST_ACTIVATION = 1e-6  # a threshold for neurons that never fire
_LARGEST_BIAS = 2.0**29  # in units of a sum: leaves room for the products in int32


@dataclass(frozen=True)
class Plan:
    """The free choices.

    ranges : clamps of the inputs. levels : (n_features,) 1 to 127, the integer that the far clamp of each
    input becomes. activations : per hidden layer the threshold of each neuron, (neurons,). clips : per layer,
    the threshold of each neuron's weights as a share of its largest weight, (neurons,), at most 1.
    """

    ranges: Ranges
    levels: Floats
    activations: tuple[Floats, ...]
    clips: tuple[Floats, ...]


@dataclass(frozen=True)
class DraftLayer:
    """Weights (inputs, neurons) and bias (neurons,), in units of a sum and not yet rounded.

    factor: (neurons,) what a sum is multiplied by: to the next layer's integers, or in the last layer to
    scores of the float network's size.
    """

    weights: Floats
    bias: Floats
    factor: Floats

    def sums(self, values: Floats) -> Floats:
        return np.asarray(values @ np.clip(np.rint(self.weights), -LIMIT, LIMIT) + np.rint(self.bias))


@dataclass(frozen=True)
class Draft:
    """A quantised network as floats that hold integers: what search and fine-tuning compute with."""

    n_classes: int
    quantizers: tuple[InputQuantizer, ...]
    layers: tuple[DraftLayer, ...]

    @cached_property
    def _scalers(self) -> ScalerArrays:
        return ScalerArrays.of(self.quantizers)

    def encode(self, x: NDArray[np.int64]) -> Floats:
        """Integers of rows (n, n_features)."""
        return np.clip(self._scalers.scale(x), -LIMIT, LIMIT).astype(np.float64)

    def scores(self, x: NDArray[np.int64]) -> Floats:
        """Scores (n, n_outputs) of the float network's size; factors are not yet rounded to multipliers."""
        values = self.encode(x)
        for layer in self.layers[:-1]:
            values = np.clip(np.floor(layer.sums(values) * layer.factor + 0.5), 0, LIMIT)
        return self.layers[-1].sums(values) * self.layers[-1].factor

    def model(self) -> QuantizedMlp:
        """The network in integers. InputError, naming layer and neuron, if a sum could overflow."""
        layers = []
        for index, layer in enumerate(self.layers, 1):
            rescaling = _multipliers if index < len(self.layers) else _score_multipliers
            multiplier, shift = rescaling(layer.factor)
            weights = np.clip(np.rint(layer.weights), -LIMIT, LIMIT).astype(np.int64)
            layers.append(
                QuantizedLayer(
                    tuple(tuple(row) for row in weights.T.tolist()),
                    tuple(np.rint(layer.bias).astype(np.int64).tolist()),
                    multiplier,
                    shift,
                )
            )
        outputs = len(self.layers[-1].bias)
        return QuantizedMlp(len(self.quantizers), self.n_classes, outputs, self.quantizers, tuple(layers))


def calibrate(network: FloatNetwork, rows: NDArray[np.int64], method: str) -> Plan:
    """Thresholds from the float network's own numbers on rows (n, n_features), tensor by tensor.

    A neuron that never reaches the threshold of its layer gets its largest activation instead.
    """
    ranges = inputs.calibrated(network, rows, method, levels=LIMIT)
    alphas = [threshold(values, method, levels=LIMIT) for values in network.layers(rows)[1:-1]]
    return Plan(
        ranges,
        np.full(network.n_features, float(LIMIT)),
        tuple(
            np.minimum(alpha, largest)
            for alpha, largest in zip(alphas, reached(network, ranges, rows), strict=True)
        ),
        tuple(_clips(weights, method) for weights in network.weights),
    )


def reached(network: FloatNetwork, ranges: Ranges, rows: NDArray[np.int64]) -> list[Floats]:
    """The largest activation, above 0, of each hidden neuron on clamped rows (n, n_features), per layer."""
    hidden = network.layers(np.clip(rows, ranges.low, ranges.high))[1:-1]
    return [np.maximum(values.max(axis=0), _LEAST_ACTIVATION) for values in hidden]


def _clips(weights: Floats, method: str) -> Floats:
    """Thresholds of the neurons of a matrix (inputs, neurons), as shares of their largest weights."""
    largest = np.abs(weights).max(axis=0)
    alpha = np.array([threshold(column, method, levels=LIMIT) for column in weights.T])
    return np.where(largest > 0, np.minimum(alpha / np.where(largest > 0, largest, 1), 1), 1)


@dataclass(frozen=True)
class Folded:
    """The first layer over quantised inputs: quantisers, what 1 of each is worth (n_features,), bias."""

    quantizers: tuple[InputQuantizer, ...]
    steps: Floats
    bias: Floats


def fold(network: FloatNetwork, plan: Plan) -> Folded:
    """Moves the normalisation into the quantisers."""
    quantizers, steps, zeros = [], [], []
    for low, high, levels in zip(
        plan.ranges.low.tolist(), plan.ranges.high.tolist(), plan.levels.tolist(), strict=True
    ):
        zero = (low + high) // 2
        half = high - zero
        if half == 0:
            multiplier, shift = 0, 0
        elif half <= levels:  # few values: each has its own integer
            multiplier, shift = int(levels // half), 0
        else:
            multiplier, shift = inputs.fixed_point(levels / half, half)
        quantizers.append(InputQuantizer(low, high, zero, multiplier, shift))
        steps.append(2.0**shift / multiplier if multiplier else 0.0)
        zeros.append(float(zero))
    centre = (np.array(zeros) - network.offset) * network.scale
    bias = network.biases[0] + centre @ network.weights[0]
    return Folded(tuple(quantizers), np.array(steps) * network.scale, bias)


def draft(network: FloatNetwork, plan: Plan) -> Draft:
    """The integers of a plan."""
    folded = fold(network, plan)
    layers, steps = [], folded.steps  # steps: what 1 of each of the layer's inputs is worth
    for index, (weights, bias, clip) in enumerate(
        zip(network.weights, (folded.bias, *network.biases[1:]), plan.clips, strict=True)
    ):
        weights = steps[:, None] * weights
        unit = np.maximum(clip * np.abs(weights).max(axis=0) / LIMIT, np.abs(bias) / _LARGEST_BIAS)
        unit = np.maximum(unit, max(unit.max(), 1e-200) / _COARSEST)  # unit: what 1 of a sum is worth
        last = index == len(network.weights) - 1
        steps = np.ones(len(bias)) if last else plan.activations[index] / LIMIT
        layers.append(DraftLayer(np.clip(weights / unit, -LIMIT, LIMIT), bias / unit, unit / steps))
    return Draft(network.n_classes, folded.quantizers, tuple(layers))


def _multipliers(factor: Floats) -> tuple[tuple[int, ...], int]:
    """Multipliers over one shift, as fine as int32 allows."""
    shift = int(np.clip(np.floor(np.log2(INT32_MAX / factor.max())), 0, MAX_SHIFT))
    return tuple(min(INT32_MAX, max(1, round(part * 2**shift))) for part in factor.tolist()), shift


def _score_multipliers(factor: Floats) -> tuple[tuple[int, ...], int]:
    """Multipliers of one common scale, without a shift; a single score needs none, only its sign counts."""
    if len(factor) == 1:
        return (1,), 0
    return tuple(max(1, round(part)) for part in (factor / factor.max() * 2**_SCORE_BITS).tolist()), 0
