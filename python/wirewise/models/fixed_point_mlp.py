# SPDX-License-Identifier: Apache-2.0
"""Q16 networks (hara2026): numbers with 16 fractional bits, 64-bit sums.

Input: `z = round_shift((clamp(x, low, high) - zero) * multiplier, shift)` per feature.
Neuron: `acc_j = sum_k z_k * w_jk + b_j`, with 32 fractional bits.
Hidden layers, with ReLU: `z'_j = max(0, round_shift(acc_j, 16))`, at most the layer's ceiling if it has one.
Last layer: `score_j = acc_j`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from wirewise.errors import InputError
from wirewise.models import network
from wirewise.models.network import DenseNetwork, InputScaler, Ints, Rows, ScalerArrays, round_shift
from wirewise.models.rules import INT32_MAX, INT64_MAX, is_int

FRACTION_BITS = 16


@dataclass(frozen=True)
class FixedPointLayer:
    """Dense layer. weights[neuron][input]: +-(2^31 - 1), 16 fractional bits. bias: int64, 32 fractional bits.

    ceiling: the largest activation of a hidden layer, 16 fractional bits, 1 to 2^63 - 1; None: no clamp.
    """

    weights: tuple[Ints, ...]
    bias: Ints
    ceiling: int | None = None


@dataclass(frozen=True, repr=False)
class FixedPointMlp(DenseNetwork):
    """A Q16 network. Raises InputError, naming layer and neuron, when a rule is broken or a sum can overflow.

    At most 128 features, 64 classes, 8 layers of 128 neurons. Encoded inputs are within +-(2^31 - 1).
    """

    n_features: int
    n_classes: int
    n_outputs: int
    inputs: tuple[InputScaler, ...]
    layers: tuple[FixedPointLayer, ...]

    family: ClassVar[str] = "q16-mlp"
    title: ClassVar[str] = "Q16"
    input_type: ClassVar[type[InputScaler]] = InputScaler
    layer_type: ClassVar[type[Any]] = FixedPointLayer
    nested: ClassVar[Mapping[str, int]] = {"weights": 2, "bias": 1}

    def __post_init__(self) -> None:
        network.check_network(self, [len(layer.weights) for layer in self.layers])
        network.check_inputs(self)
        for index, scaler in enumerate(self.inputs):
            if scaler.reach > INT32_MAX:
                raise InputError(
                    f"model, input {index}",
                    f"can reach {scaler.reach:,}, above {INT32_MAX}",
                    "clamp it closer",
                )
        fan_in = self.n_features
        for index, layer in enumerate(self.layers):
            where = f"model, layer {index}"
            network.check_dense(where, layer.weights, layer.bias, fan_in, weight=INT32_MAX, bias_bits=64)
            last = index == len(self.layers) - 1
            if layer.ceiling is not None and (last or not is_int(layer.ceiling, 1, INT64_MAX)):
                raise InputError(where, "its ceiling must be a positive integer, and none in the last layer")
            fan_in = len(layer.weights)
        for index, reach in enumerate(self.reach):
            for neuron, most in enumerate(reach):
                if most + (1 << FRACTION_BITS - 1) > INT64_MAX:
                    raise InputError(
                        f"model, layer {index}, neuron {neuron}",
                        f"its sum can reach {most:,}, which does not fit a signed 64-bit integer",
                        "train with smaller weights (weight decay)",
                    )

    @cached_property
    def reach(self) -> list[list[int]]:
        """Per layer, the largest magnitude of each neuron's sum, and of every partial sum of it."""
        inputs, sums = [scaler.reach for scaler in self.inputs], []
        for layer in self.layers:
            sums.append(network.reach(layer.weights, layer.bias, inputs))
            inputs = [_below(round_shift(most, FRACTION_BITS), layer.ceiling) for most in sums[-1]]
        return sums

    # -- meaning

    def activations(self, row: Sequence[int]) -> list[list[int]]:
        values = [one.scale(x) for one, x in zip(self.inputs, row, strict=True)]
        steps = [values]
        for index, layer in enumerate(self.layers, 1):
            values = [
                sum(z * w for z, w in zip(values, weights, strict=True)) + bias
                for weights, bias in zip(layer.weights, layer.bias, strict=True)
            ]
            if index < len(self.layers):
                values = [_below(max(0, round_shift(acc, FRACTION_BITS)), layer.ceiling) for acc in values]
            steps.append(values)
        return steps

    def steps(self, x: Rows) -> list[Rows]:
        inputs, layers = self._arrays
        values = inputs.scale(x)
        steps = [values]
        for index, (weights, bias) in enumerate(layers, 1):
            values = values @ weights + bias
            if index < len(layers):
                ceiling = self.layers[index - 1].ceiling
                values = np.clip(round_shift(values, FRACTION_BITS), 0, ceiling)
            steps.append(values)
        return steps

    @cached_property
    def _arrays(self) -> tuple[ScalerArrays, list[tuple[Rows, Rows]]]:
        layers = [
            (np.array(layer.weights, np.int64).T, np.array(layer.bias, np.int64)) for layer in self.layers
        ]
        return ScalerArrays.of(self.inputs), layers


def _below(value: int, ceiling: int | None) -> int:
    return value if ceiling is None else min(value, ceiling)
