# SPDX-License-Identifier: Apache-2.0
"""int8 networks (hara2023): 8-bit weights and activations, 32-bit sums.

Input: `q = clamp(round_shift((clamp(x, low, high) - zero) * multiplier, shift), -127, 127)` per feature.
Neuron: `acc_j = sum_k q_k * w_jk + b_j`.
Hidden layers, with ReLU: `q'_j = clamp(round_shift(acc_j * m_j, s), 0, 127)`.
Last layer: `score_j = acc_j * m_j`, which brings all scores to one scale.
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
from wirewise.models.rules import INT32_MAX, is_int

LIMIT = 127  # of weights and activations: symmetric, so that negation never overflows


@dataclass(frozen=True)
class InputQuantizer(InputScaler):
    """An input scaler whose result is clamped to -127 to 127."""

    def quantize(self, x: int) -> int:
        return min(max(self.scale(x), -LIMIT), LIMIT)


@dataclass(frozen=True)
class QuantizedLayer:
    """Dense layer. weights[neuron][input]: -127 to 127. bias: int32 per neuron, in units of the products.

    multiplier: 1 to 2^31 - 1 per neuron, shift: 0 to 62, one per layer: the rescaling to the next layer's
    activations; in the last layer shift is 0. |acc * m| < 2^62 and half <= 2^61 fit int64 by these ranges.
    """

    weights: tuple[Ints, ...]
    bias: Ints
    multiplier: Ints
    shift: int

    @cached_property
    def reach(self) -> list[int]:
        """The largest magnitude of each neuron's sum, and of every partial sum of it."""
        return network.reach(self.weights, self.bias, (LIMIT,) * len(self.weights[0]))


@dataclass(frozen=True, repr=False)
class QuantizedMlp(DenseNetwork):
    """An int8 network. Raises InputError, naming layer and neuron, if a rule is broken or a sum can overflow.

    At most 128 features, 64 classes, 8 layers of 128 neurons.
    """

    n_features: int
    n_classes: int
    n_outputs: int
    inputs: tuple[InputQuantizer, ...]
    layers: tuple[QuantizedLayer, ...]

    family: ClassVar[str] = "int8-mlp"
    title: ClassVar[str] = "int8"
    input_type: ClassVar[type[InputScaler]] = InputQuantizer
    layer_type: ClassVar[type[Any]] = QuantizedLayer
    nested: ClassVar[Mapping[str, int]] = {"weights": 2, "bias": 1, "multiplier": 1}

    def __post_init__(self) -> None:
        network.check_network(self, [len(layer.weights) for layer in self.layers])
        network.check_inputs(self)
        fan_in = self.n_features
        for index, layer in enumerate(self.layers):
            _check_layer(f"model, layer {index}", layer, fan_in, last=index == len(self.layers) - 1)
            fan_in = len(layer.weights)
        if self.n_outputs == 1 and self.layers[-1].multiplier != (1,):
            raise InputError("model, last layer", "the multiplier of a single output must be 1")

    # -- meaning

    def activations(self, row: Sequence[int]) -> list[list[int]]:
        values = [one.quantize(x) for one, x in zip(self.inputs, row, strict=True)]
        steps = [values]
        for index, layer in enumerate(self.layers, 1):
            sums = [
                sum(q * w for q, w in zip(values, weights, strict=True)) + bias
                for weights, bias in zip(layer.weights, layer.bias, strict=True)
            ]
            values = [acc * m for acc, m in zip(sums, layer.multiplier, strict=True)]
            if index < len(self.layers):
                values = [min(max(round_shift(value, layer.shift), 0), LIMIT) for value in values]
            steps.append(values)
        return steps

    def steps(self, x: Rows) -> list[Rows]:
        inputs, layers = self._arrays
        values = np.clip(inputs.scale(x), -LIMIT, LIMIT)
        steps = [values]
        for index, (weights, bias, multiplier) in enumerate(layers, 1):
            values = (values @ weights + bias) * multiplier
            if index < len(layers):
                values = np.clip(round_shift(values, self.layers[index - 1].shift), 0, LIMIT)
            steps.append(values)
        return steps

    @cached_property
    def _arrays(self) -> tuple[ScalerArrays, list[tuple[Rows, Rows, Rows]]]:
        layers = [
            (np.array(layer.weights, np.int64).T, np.array(layer.bias, np.int64), np.array(layer.multiplier))
            for layer in self.layers
        ]
        return ScalerArrays.of(self.inputs), layers


def _check_layer(where: str, layer: QuantizedLayer, fan_in: int, *, last: bool) -> None:
    network.check_dense(where, layer.weights, layer.bias, fan_in, weight=LIMIT, bias_bits=32)
    if len(layer.multiplier) != len(layer.weights):
        raise InputError(where, f"has {len(layer.multiplier)} multipliers for {len(layer.weights)} neurons")
    for neuron, multiplier in enumerate(layer.multiplier):
        if not is_int(multiplier, 1, INT32_MAX):
            raise InputError(f"{where}, neuron {neuron}", f"its multiplier is no integer of 1 to {INT32_MAX}")
    if not is_int(layer.shift, 0, 0 if last else network.MAX_SHIFT):
        raise InputError(
            where,
            "its shift must be 0, it is the last" if last else f"its shift must be 0 to {network.MAX_SHIFT}",
        )
    for neuron, most in enumerate(layer.reach):
        if most > INT32_MAX:
            raise InputError(
                f"{where}, neuron {neuron}",
                f"its sum can reach {most:,}, which does not fit a signed 32-bit integer",
                "train with smaller weights (weight decay)",
            )
