# SPDX-License-Identifier: Apache-2.0
"""Binary networks as they are trained, in floating point, and how they fold into integers.

A layer's dot product of +1 and -1 takes n + 1 values only, so a threshold is found by trying them all with
the network's own arithmetic. Hidden layers therefore fold without any loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wirewise.errors import InputError
from wirewise.models.binary_mlp import BinaryInput, BinaryLayer, BinaryMlp, in_parts

Floats = NDArray[np.float64]
SAME_SCALE = 1e-9  # relative difference below which two scales are one


@dataclass(frozen=True)
class Normalisation:
    """Batch normalisation as it is used after training; arrays of shape (neurons,)."""

    gamma: Floats
    beta: Floats
    mean: Floats
    variance: Floats
    epsilon: float

    @property
    def scale(self) -> Floats:
        return np.asarray(self.gamma / np.sqrt(self.variance + self.epsilon), np.float64)

    def apply(self, x: Floats) -> Floats:
        """x, result: (..., neurons)."""
        return self.scale * (x - self.mean) + self.beta


@dataclass(frozen=True)
class BinarisedLayer:
    """A dense layer: kernel (inputs, neurons), whose signs are the weights (of 0: +1), bias (neurons,)."""

    kernel: Floats
    bias: Floats
    normalisation: Normalisation | None = None

    @cached_property
    def positive(self) -> NDArray[np.bool_]:
        """Which weights are +1, (inputs, neurons)."""
        return self.kernel >= 0

    @property
    def signs(self) -> Floats:
        return signs(self.positive)

    def finish(self, dot: Floats) -> Floats:
        """What comes after the dot products (..., neurons): bias and normalisation."""
        x = dot + self.bias
        return x if self.normalisation is None else self.normalisation.apply(x)

    @cached_property
    def possible(self) -> Floats:
        """`finish` of every possible dot product, -n to n in steps of 2: (n + 1, neurons)."""
        n, neurons = self.kernel.shape
        return self.finish(np.repeat(np.arange(-n, n + 1, 2.0)[:, None], neurons, axis=1))


@dataclass(frozen=True)
class BinarisedNetwork:
    """Encoded features, then layers with `x >= 0 ? +1 : -1` between them.

    One output: class 1 above 0. Several: the class of the largest, of equal ones the lowest.
    Raises InputError, naming the layer and the neuron, for unfit shapes and for numbers that are not finite.
    """

    n_features: int
    inputs: tuple[BinaryInput, ...]
    layers: tuple[BinarisedLayer, ...]

    def __post_init__(self) -> None:
        fan_in = sum(source.width for source in self.inputs)
        for index, layer in enumerate(self.layers):
            _check(f"layer {index}", layer, fan_in)
            fan_in = layer.kernel.shape[1]

    @property
    def n_classes(self) -> int:
        return max(2, int(self.layers[-1].kernel.shape[1]))

    def scores(self, x: NDArray[np.int64]) -> Floats:
        """Scores (n, outputs) of rows (n, n_features), in float64."""
        return in_parts(self._scores, x)

    def _scores(self, x: NDArray[np.int64]) -> Floats:
        values = signs(encode(self.inputs, x) > 0)
        for layer in self.layers[:-1]:
            values = signs(layer.finish(values @ layer.signs) >= 0)
        return self.layers[-1].finish(values @ self.layers[-1].signs)

    def predict(self, x: NDArray[np.int64]) -> NDArray[np.int32]:
        """Classes (n,) of rows (n, n_features)."""
        scores = self.scores(x)
        classes = scores[:, 0] > 0 if scores.shape[1] == 1 else scores.argmax(axis=1)
        return np.asarray(classes, np.int32)

    def fold(self) -> tuple[BinaryMlp, float]:
        """The same network in integers, and how far a class's bias was rounded, in agreeing inputs.

        0 means that every row gets the same class. It is never more with one or two outputs. Raises
        InputError where the last normalisation has another scale for each class: one count cannot say that.
        """
        *hidden, last = self.layers
        end, rounded = (_single if last.kernel.shape[1] == 1 else _several)(last, len(hidden))
        layers = (*map(_hidden, hidden), end)
        return BinaryMlp(self.n_features, self.n_classes, self.inputs, layers), rounded


def encode(inputs: Sequence[BinaryInput], x: NDArray[np.int64]) -> NDArray[np.int8]:
    """The input bits (n, bits) of rows (n, n_features)."""

    def some(x: NDArray[np.int64]) -> NDArray[np.int8]:
        return np.concatenate([one.encode_rows(x[:, one.feature]).astype(np.int8) for one in inputs], axis=1)

    return in_parts(some, x)


def signs(positive: NDArray[np.bool_]) -> Floats:
    """+1 where it is true, -1 elsewhere."""
    return np.where(positive, 1.0, -1.0)


def _hidden(layer: BinarisedLayer) -> BinaryLayer:
    """`finish` only rises or only falls with the dot product: it is at least 0 for the `fires` largest (or,
    where gamma is negative, smallest) of them. Falling in x is rising in x of the opposite weights.
    """
    fires = (layer.possible >= 0).sum(axis=0)
    threshold = layer.kernel.shape[0] + 1 - fires
    falls = _falls(layer)
    return BinaryLayer(_words(layer.positive ^ falls), tuple(threshold.tolist()))


def _single(layer: BinarisedLayer, index: int) -> tuple[BinaryLayer, float]:
    """Class 1 if at least t inputs agree, as two outputs: t is met if `2 agreement > 2 t - 1`."""
    n = layer.kernel.shape[0]
    t = n + 1 - int((layer.possible > 0).sum())
    weights = layer.positive ^ _falls(layer)
    (word,) = _words(weights)
    return BinaryLayer((word ^ ((1 << n) - 1), word), (2 * t - 1 - n, 0)), 0.0


def _several(layer: BinarisedLayer, index: int) -> tuple[BinaryLayer, float]:
    scale, extra = np.ones_like(layer.bias), layer.bias
    if (norm := layer.normalisation) is not None:
        scale = norm.scale
        if not (scale > 0).all() or np.ptp(scale) > SAME_SCALE * scale.max():
            raise InputError(
                f"layer {index}",
                "the normalisation behind the last layer has another scale for each class, or one that is "
                "not positive, which no number of agreeing inputs can say",
                "train without normalisation there, or with one scale for all classes",
            )
        extra = layer.bias - norm.mean + norm.beta / scale
    # dot = 2 agreement - n. No agreement makes up for being more than n behind.
    exact = (extra - extra.max()) / 2
    if len(exact) == 2:  # class 0 wins if `agreement_0 - agreement_1 + difference >= 0`, a whole number
        bias = np.array([np.floor(exact[0] - exact[1]), 0.0])
        rounded = 0.0
    else:
        bias = np.rint(exact)
        rounded = float(np.abs(bias - exact).max())
    n = layer.kernel.shape[0]
    bias = np.clip(bias, -n - 1, n + 1).astype(np.int64)
    return BinaryLayer(_words(layer.positive), tuple(bias.tolist())), rounded


def _falls(layer: BinarisedLayer) -> Any:
    return False if layer.normalisation is None else layer.normalisation.gamma < 0


def _words(positive: NDArray[np.bool_]) -> tuple[int, ...]:
    """One number a neuron from its column, bit k of input k."""
    packed = np.packbits(positive, axis=0, bitorder="little").T
    return tuple(int.from_bytes(row.tobytes(), "little") for row in packed)


def _check(where: str, layer: BinarisedLayer, fan_in: int) -> None:
    if layer.kernel.ndim != 2 or layer.kernel.shape[0] != fan_in:
        raise InputError(where, f"its kernel is of shape {layer.kernel.shape}, it has {fan_in} inputs")
    norm = layer.normalisation
    arrays = {"bias": layer.bias}
    if norm is not None:
        arrays |= {"gamma": norm.gamma, "beta": norm.beta, "mean": norm.mean, "variance": norm.variance}
    neurons = layer.kernel.shape[1]
    for name, values in arrays.items():
        if values.shape != (neurons,):
            raise InputError(where, f"its {name} is of shape {values.shape}, it has {neurons} neurons")
    bad = ~np.isfinite(layer.kernel).all(axis=0)
    for values in arrays.values():
        bad |= ~np.isfinite(values)
    if norm is not None:
        bad |= ~(norm.variance + norm.epsilon > 0)
    if not bad.any():
        with np.errstate(over="ignore", invalid="ignore"):
            bad = ~np.isfinite(layer.possible).all(axis=0)
    if bad.any():
        raise InputError(
            f"{where}, neuron {int(bad.argmax())}",
            "has a number that is NaN or infinite, or a variance that is not positive",
            "train again, with a smaller learning rate",
        )
