# SPDX-License-Identifier: Apache-2.0
"""Networks in floating point, as importers read them: what is quantised, and compared with the result."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from wirewise.abi import MAX_CLASSES, MAX_FEATURES, MAX_WIDTH
from wirewise.errors import InputError
from wirewise.models.network import MAX_LAYERS

MAX_WEIGHT = 2.0**64
"""Largest weight or bias: beyond it a library that computes in float32 overflows where we do not."""

Floats = NDArray[np.float64]
Output = Literal["none", "softmax", "sigmoid"]


@dataclass(frozen=True)
class FloatNetwork:
    """A normalisation of the features, then dense layers with ReLU between them.

    Input: `z = (clip(x, low, high) - offset) * scale`, each of shape (n_features,); low and high may be
    infinite. weights: one matrix (inputs, neurons) per layer; biases: (neurons,). output: the activation
    after the last layer, which does not change the class: one output is class 1 above 0 (a probability above
    1/2), several are the class of the largest. Raises InputError for what no integer network could hold: more
    than 8 layers of 128 neurons, 128 features or 64 classes, NaN or infinite numbers, unfit shapes.
    """

    offset: Floats
    scale: Floats
    weights: tuple[Floats, ...]
    biases: tuple[Floats, ...]
    output: Output = "none"
    low: Floats | None = None
    high: Floats | None = None

    def __post_init__(self) -> None:
        _check(self)

    @property
    def n_features(self) -> int:
        return len(self.offset)

    @property
    def n_outputs(self) -> int:
        return int(self.weights[-1].shape[1])

    @property
    def n_classes(self) -> int:
        return max(2, self.n_outputs)

    def encode(self, x: NDArray[np.int64]) -> Floats:
        """Normalised features (n, n_features) of rows (n, n_features)."""
        return (self.clip(x) - self.offset) * self.scale

    def clip(self, x: NDArray[np.int64]) -> Floats:
        """Features (n, n_features) between low and high."""
        values = x.astype(np.float64)
        if self.low is None and self.high is None:
            return values
        return np.clip(values, self.low, self.high)

    def layers(self, x: NDArray[np.int64]) -> list[Floats]:
        """The normalised features, the activations of the hidden layers, and the scores (n, n_outputs)."""
        steps = [self.encode(x)]
        for weights, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            steps.append(np.maximum(steps[-1] @ weights + bias, 0))
        return [*steps, steps[-1] @ self.weights[-1] + self.biases[-1]]

    def scores(self, x: NDArray[np.int64]) -> Floats:
        return self.layers(x)[-1]

    def predict(self, x: NDArray[np.int64]) -> NDArray[np.int32]:
        """Classes (n,) of rows (n, n_features)."""
        return classes_of(self.scores(x))

    @cached_property
    def shape(self) -> str:
        return "-".join(map(str, (self.n_features, *(bias.shape[0] for bias in self.biases))))


def classes_of(scores: NDArray[np.float64] | NDArray[np.int64]) -> NDArray[np.int32]:
    """Classes of scores (n, n_outputs): above 0 for one output, else the largest, ties to the lowest."""
    classes = scores[:, 0] > 0 if scores.shape[1] == 1 else scores.argmax(axis=1)
    return classes.astype(np.int32)


def log_probabilities(scores: Floats) -> Floats:
    """Logarithms of the class probabilities (n, n_classes) that scores (n, n_outputs) stand for."""
    if scores.shape[1] == 1:
        scores = np.concatenate([np.zeros_like(scores), scores], axis=1)
    shifted = scores - scores.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def _check(net: FloatNetwork) -> None:
    where = "network"
    if not 1 <= len(net.offset) <= MAX_FEATURES:
        raise InputError(where, f"has {len(net.offset)} features, allowed are 1 to {MAX_FEATURES}")
    if not 1 <= len(net.weights) <= MAX_LAYERS or len(net.biases) != len(net.weights):
        raise InputError(where, f"has {len(net.weights)} dense layers, allowed are 1 to {MAX_LAYERS}")
    _finite("the input's offset", net.offset)
    _finite("the input's scale", net.scale)
    fan_in = net.n_features
    for index, (weights, bias) in enumerate(zip(net.weights, net.biases, strict=True)):
        where = f"network, layer {index}"
        if weights.ndim != 2 or weights.shape[0] != fan_in or bias.shape != (weights.shape[1],):
            raise InputError(
                where, f"weights of shape {weights.shape} and bias of {bias.shape} do not fit {fan_in} inputs"
            )
        fan_in = weights.shape[1]
        if fan_in > MAX_WIDTH:
            raise InputError(
                where, f"has {fan_in} neurons, allowed are 1 to {MAX_WIDTH}", "train a narrower one"
            )
        bad = ~(np.abs(weights) <= MAX_WEIGHT).all(axis=0) | ~(np.abs(bias) <= MAX_WEIGHT)
        if bad.any():
            raise InputError(
                f"{where}, neuron {int(bad.argmax())}",
                "has a weight or bias that is NaN, infinite or beyond 2^64",
                "train again, with a smaller learning rate",
            )
    if fan_in > MAX_CLASSES:
        raise InputError("network", f"has {fan_in} classes, allowed are 2 to {MAX_CLASSES}", "merge classes")


def _finite(what: str, values: Floats) -> None:
    if not np.isfinite(values).all():
        raise InputError(
            f"network, feature {int((~np.isfinite(values)).argmax())}", f"{what} is NaN or infinite"
        )
