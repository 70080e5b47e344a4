# SPDX-License-Identifier: Apache-2.0
"""Binary networks (siracusano-n3ic): weights and activations are +1 or -1, written as bits 1 and 0.

The agreement of a neuron is the number of inputs whose bit equals the weight's: `popcount(xnor(x, w))`,
which is (n + dot product) / 2 of n inputs of +-1. Hidden neuron: `bit = agreement >= threshold`. Last layer:
`score_j = agreement_j + bias_j`, one score per class.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from wirewise.errors import InputError
from wirewise.models import network, rules
from wirewise.models.network import Ints, Network, Rows
from wirewise.models.rules import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, is_int

MAX_INPUT_BITS = 1024
MAX_BINARY_WIDTH = 256  # neurons of a hidden layer
_ROWS_AT_A_TIME = 1 << 14
_Array = TypeVar("_Array", bound=NDArray[Any])


@dataclass(frozen=True)
class BitsInput:
    """`bits` bits of `clamp(x, 0, 2^(shift + bits) - 1) >> shift`, the least significant first."""

    feature: int
    shift: int
    bits: int

    @property
    def width(self) -> int:
        return self.bits

    def encode(self, x: int) -> list[int]:
        value = min(max(x, 0), (1 << self.shift + self.bits) - 1) >> self.shift
        return [value >> bit & 1 for bit in range(self.bits)]

    def encode_rows(self, x: Rows) -> Rows:
        """x: (n,); result: (n, width)."""
        values = np.clip(x, 0, (1 << self.shift + self.bits) - 1) >> self.shift
        return values[:, None] >> np.arange(self.bits) & 1


@dataclass(frozen=True)
class StepsInput:
    """A thermometer: bit n is `x > thresholds[n]`. thresholds: int64, ascending."""

    feature: int
    thresholds: Ints

    @property
    def width(self) -> int:
        return len(self.thresholds)

    def encode(self, x: int) -> list[int]:
        return [int(x > threshold) for threshold in self.thresholds]

    def encode_rows(self, x: Rows) -> Rows:
        """x: (n,); result: (n, width)."""
        return (x[:, None] > np.array(self.thresholds, np.int64)).astype(np.int64)


BinaryInput: TypeAlias = BitsInput | StepsInput


@dataclass(frozen=True)
class BinaryLayer:
    """weights: one number per neuron, whose bit k is the weight of input k (1: +1, 0: -1).

    threshold: int32 per neuron; in the last layer it is the bias.
    """

    weights: Ints
    threshold: Ints

    @property
    def bias(self) -> Ints:
        return self.threshold


@dataclass(frozen=True, repr=False)
class BinaryMlp(Network):
    """A binary network. Raises InputError, naming layer and neuron, when a rule is broken.

    At most 128 features, 64 classes, 1024 input bits, 8 layers, 256 neurons in a hidden layer. The bits of
    the inputs are concatenated in order; a feature that none of them names is not used.
    """

    n_features: int
    n_classes: int
    inputs: tuple[BinaryInput, ...]
    layers: tuple[BinaryLayer, ...]

    family: ClassVar[str] = "binary-mlp"

    def __post_init__(self) -> None:
        network.check_network(self, [len(layer.weights) for layer in self.layers])
        for index, source in enumerate(self.inputs):
            check_input(f"model, input {index}", source, self.n_features)
        if not 1 <= self.input_bits <= MAX_INPUT_BITS:
            raise InputError("model", f"has {self.input_bits} input bits, allowed are 1 to {MAX_INPUT_BITS}")
        fan_in = self.input_bits
        for index, layer in enumerate(self.layers):
            _check_layer(f"model, layer {index}", layer, fan_in)
            fan_in = len(layer.weights)

    @property
    def n_outputs(self) -> int:  # type: ignore[override]
        return self.n_classes

    @cached_property
    def input_bits(self) -> int:
        return sum(source.width for source in self.inputs)

    @property
    def hidden(self) -> Ints:
        """Widths of the hidden layers."""
        return tuple(len(layer.weights) for layer in self.layers[:-1])

    # -- meaning

    def activations(self, row: Sequence[int]) -> list[list[int]]:
        bits = [bit for source in self.inputs for bit in source.encode(row[source.feature])]
        steps = [bits]
        for index, layer in enumerate(self.layers, 1):
            x, ones = sum(bit << k for k, bit in enumerate(bits)), (1 << len(bits)) - 1
            agreement = [(~(x ^ weights) & ones).bit_count() for weights in layer.weights]
            pairs = zip(agreement, layer.threshold, strict=True)
            if index < len(self.layers):
                bits = [int(count >= threshold) for count, threshold in pairs]
            else:
                bits = [count + bias for count, bias in pairs]
            steps.append(bits)
        return steps

    def scores(self, x: Rows) -> Rows:
        return in_parts(self._scores, x)

    def _scores(self, x: Rows) -> Rows:
        parts = [source.encode_rows(x[:, source.feature]) for source in self.inputs]
        bits = np.concatenate(parts, axis=1)
        for index, (weights, threshold) in enumerate(self._arrays, 1):
            agreement = bits @ weights + (1 - bits) @ (1 - weights)
            last = index == len(self.layers)
            bits = agreement + threshold if last else (agreement >= threshold).astype(np.int64)
        return bits

    @cached_property
    def _arrays(self) -> list[tuple[Rows, Rows]]:
        """Per layer: weights as bits (inputs, neurons), thresholds (neurons,)."""
        arrays, fan_in = [], self.input_bits
        for layer in self.layers:
            rows = [[word >> k & 1 for k in range(fan_in)] for word in layer.weights]
            arrays.append((np.array(rows, np.int64).T, np.array(layer.threshold, np.int64)))
            fan_in = len(layer.weights)
        return arrays

    def favour(self, by: int) -> BinaryMlp:
        last = self.layers[-1]
        changed = replace(last, threshold=(last.threshold[0] + by, *last.threshold[1:]))
        return replace(self, layers=(*self.layers[:-1], changed))

    def renumbered(self, first: int) -> BinaryMlp:
        if first == 0:
            return self
        last = self.layers[-1]
        changed = replace(
            last,
            weights=(*last.weights[first:], *last.weights[:first]),
            threshold=rules.renumbered_scores(last.threshold, first),
        )
        return replace(self, layers=(*self.layers[:-1], changed))

    # -- facts

    @cached_property
    def used_features(self) -> Ints:
        return tuple(sorted({source.feature for source in self.inputs}))

    @cached_property
    def reads(self) -> Ints:
        bits = Counter[int]()
        for source in self.inputs:
            bits[source.feature] += source.width
        return tuple(bits[index] for index in range(self.n_features))

    def details(self) -> dict[str, Any]:
        widths = [self.input_bits, *(len(layer.weights) for layer in self.layers)]
        return {
            "layers": widths,
            "outputs": self.n_outputs,
            "weights": {"all": sum(a * b for a, b in pairwise(widths))},
        }

    def describe(self) -> str:
        return (
            f"binary network {network.shape_text(self, self.input_bits)}, "
            f"{len(self.used_features)} of {self.n_features} features used, {self.n_classes} classes"
        )

    # -- serialisation

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, integers, and weights as hexadecimal text, ready for JSON."""
        layers = [
            {"weights": [f"{word:x}" for word in layer.weights], name: list(layer.threshold)}
            for layer, name in zip(self.layers, self._names, strict=True)
        ]
        return {
            "family": self.family,
            "version": self.version,
            "n_features": self.n_features,
            "n_classes": self.n_classes,
            "n_outputs": self.n_outputs,
            "inputs": network.to_plain(self.inputs),
            "layers": layers,
        }

    @property
    def _names(self) -> list[str]:
        return _names(len(self.layers))

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> BinaryMlp:
        """The inverse of `to_dict`; InputError: unknown version, missing or unknown key, broken rule."""
        rules.check_family(document, cls.family, cls.version)
        known = {"family", "version", "n_features", "n_classes", "n_outputs", "inputs", "layers"}
        rules.check_keys("model", document, known)
        if document["n_outputs"] != document["n_classes"]:
            raise InputError("model", "n_outputs must be n_classes")
        layers = rules.as_tuple("model", "layers", document["layers"])
        return cls(
            document["n_features"],
            document["n_classes"],
            inputs_from_plain(document["inputs"]),
            tuple(
                _layer_from_plain(f"model, layer {index}", name, layer)
                for index, (name, layer) in enumerate(zip(_names(len(layers)), layers, strict=True))
            ),
        )


def in_parts(work: Callable[[Rows], _Array], x: Rows) -> _Array:
    """work(x), some rows at a time: a row may be a thousand bits, each of which takes bytes meanwhile."""
    starts = range(0, max(1, len(x)), _ROWS_AT_A_TIME)
    joined: Any = np.concatenate([work(x[start : start + _ROWS_AT_A_TIME]) for start in starts])
    return joined  # type: ignore[no-any-return]


def inputs_from_plain(document: object) -> tuple[BinaryInput, ...]:
    """Inputs from a list of objects with the keys feature, shift, bits or feature, thresholds."""
    parts = rules.as_tuple("model", "inputs", document)
    inputs: list[BinaryInput] = []
    for index, part in enumerate(parts):
        where = f"model, input {index}"
        if isinstance(part, dict) and "thresholds" in part:
            inputs.append(network.from_plain(where, StepsInput, part, {"thresholds": 1}))
        else:
            inputs.append(network.from_plain(where, BitsInput, part))
    return tuple(inputs)


def _names(layers: int) -> list[str]:
    return ["threshold"] * (layers - 1) + ["bias"] * min(layers, 1)


def _layer_from_plain(where: str, name: str, document: Any) -> BinaryLayer:
    rules.check_keys(where, document, {"weights", name})
    words = rules.as_tuple(where, "weights", document["weights"])
    try:
        weights = tuple(int(word, 16) for word in words)
    except (TypeError, ValueError) as error:
        raise InputError(where, "has weights that are not hexadecimal text") from error
    return BinaryLayer(weights, rules.as_tuple(where, name, document[name]))


# -- rules


def check_input(where: str, source: BinaryInput, n_features: int) -> None:
    """Raises InputError unless an input reads one of the features, and its numbers are in range."""
    if not is_int(source.feature, 0, n_features - 1):
        raise InputError(where, f"reads feature {source.feature}, there are 0 to {n_features - 1}")
    if isinstance(source, BitsInput):
        if not is_int(source.shift, 0, 62) or not is_int(source.bits, 1, 63 - source.shift):
            raise InputError(where, "shift must be 0 to 62, bits 1 or more, together at most 63")
        return
    if not source.thresholds or not all(is_int(t, INT64_MIN, INT64_MAX) for t in source.thresholds):
        raise InputError(where, "thresholds are not one or more signed 64-bit integers")
    if any(first > second for first, second in pairwise(source.thresholds)):
        raise InputError(where, "thresholds do not ascend")


def _check_layer(where: str, layer: BinaryLayer, fan_in: int) -> None:
    if not 1 <= len(layer.weights) <= MAX_BINARY_WIDTH:
        raise InputError(where, f"has {len(layer.weights)} neurons, allowed are 1 to {MAX_BINARY_WIDTH}")
    if len(layer.threshold) != len(layer.weights):
        raise InputError(
            where, f"has {len(layer.threshold)} thresholds or biases for {len(layer.weights)} neurons"
        )
    for neuron, (weights, threshold) in enumerate(zip(layer.weights, layer.threshold, strict=True)):
        if not is_int(weights, 0, (1 << fan_in) - 1):
            raise InputError(f"{where}, neuron {neuron}", f"its weights are not {fan_in} bits")
        if not is_int(threshold, INT32_MIN, INT32_MAX):
            raise InputError(f"{where}, neuron {neuron}", "its threshold or bias is no signed 32-bit integer")
