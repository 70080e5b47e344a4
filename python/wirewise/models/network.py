# SPDX-License-Identifier: Apache-2.0
"""What the families of neural networks share: integer arithmetic, input scaling, rules, serialisation.

All numbers are integers. `round_shift` is the only rounding: an arithmetic shift that rounds half up. The
meaning of a network is its `activations`, in plain Python integers; `predict` says the same of many rows at
once, in int64, which the rules of each family prove to be wide enough.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from wirewise.abi import MAX_WIDTH
from wirewise.errors import InputError
from wirewise.models import rules
from wirewise.models.rules import INT32_MAX, INT64_MAX, INT64_MIN, is_int

MAX_LAYERS = 8
MAX_SHIFT = 62

Ints = tuple[int, ...]
Rows = NDArray[np.int64]
_T = TypeVar("_T")
_Network = TypeVar("_Network", bound="Network")
_Dense = TypeVar("_Dense", bound="DenseNetwork")


@overload
def round_shift(value: int, shift: int) -> int: ...
@overload
def round_shift(value: Rows, shift: int | Rows) -> Rows: ...
def round_shift(value: Any, shift: Any) -> Any:
    """Divide by 2^shift and round to the nearest integer, half up. shift: 0 to 62."""
    return (value + ((1 << shift) >> 1)) >> shift


def decide(scores: Sequence[int]) -> int:
    """The class: with one score 1 if it is above 0, else the largest score's, ties to the lowest class."""
    return int(scores[0] > 0) if len(scores) == 1 else list(scores).index(max(scores))


@dataclass(frozen=True)
class InputScaler:
    """One feature to a fixed-point number: `round_shift((clamp(x, low, high) - zero) * multiplier, shift)`.

    low, high, zero: int64 in the feature's own unit. multiplier: 0 to 2^31 - 1, 0 for a feature that is
    not read. shift: 0 to 62.
    """

    low: int
    high: int
    zero: int
    multiplier: int
    shift: int

    def scale(self, x: int) -> int:
        return round_shift((min(max(x, self.low), self.high) - self.zero) * self.multiplier, self.shift)

    @property
    def reach(self) -> int:
        """The largest magnitude that `scale` gives: it grows with x, so it is at one of the clamps."""
        return max(abs(self.scale(self.low)), abs(self.scale(self.high)))

    def check(self, where: str) -> None:
        """Raises InputError unless every step fits a signed 64-bit integer for every int64 x."""
        for name in ("low", "high", "zero"):
            if not is_int(getattr(self, name), INT64_MIN, INT64_MAX):
                raise InputError(where, f"{name} is not a signed 64-bit integer")
        if self.low > self.high:
            raise InputError(where, f"low {self.low} is above high {self.high}")
        if not is_int(self.multiplier, 0, INT32_MAX) or not is_int(self.shift, 0, MAX_SHIFT):
            raise InputError(where, f"multiplier must be 0 to {INT32_MAX} and shift 0 to {MAX_SHIFT}")
        apart = max(abs(self.low - self.zero), abs(self.high - self.zero))
        if apart > INT64_MAX or apart * self.multiplier + (1 << self.shift >> 1) > INT64_MAX:
            raise InputError(
                where, "its product can leave a signed 64-bit integer", "clamp it closer to zero"
            )


@dataclass(frozen=True)
class ScalerArrays:
    """Input scalers of all features as arrays (n_features,)."""

    low: Rows
    high: Rows
    zero: Rows
    multiplier: Rows
    shift: Rows

    @classmethod
    def of(cls, inputs: Sequence[InputScaler]) -> ScalerArrays:
        columns = zip(*(tuple(getattr(one, f.name) for f in fields(cls)) for one in inputs), strict=True)
        return cls(*(np.array(column, np.int64) for column in columns))

    def scale(self, x: Rows) -> Rows:
        """x, result: (n, n_features)."""
        return round_shift((np.clip(x, self.low, self.high) - self.zero) * self.multiplier, self.shift)


class Network(ABC):
    """A neural network over `n_features` int64 features that chooses one of `n_classes` classes.

    n_outputs is 1 (two classes; class 1 if the score is above 0) or n_classes (the largest score wins, ties
    go to the lowest class). Subclasses are frozen dataclasses that check themselves when they are built.
    """

    n_features: int
    n_classes: int
    n_outputs: int

    family: ClassVar[str]
    version: ClassVar[int] = 1

    @abstractmethod
    def activations(self, row: Sequence[int]) -> list[list[int]]:
        """The encoded input, then what each layer gives, the scores last, of one row: the meaning."""

    @abstractmethod
    def scores(self, x: Rows) -> Rows:
        """Scores (n, n_outputs) of rows (n, n_features), the last `activations` of each."""

    @property
    @abstractmethod
    def used_features(self) -> Ints:
        """Indices of the features that can make a difference, ascending."""

    @property
    @abstractmethod
    def reads(self) -> Ints:
        """How many weights of the first layer, or input bits, read each feature, (n_features,)."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.describe()}>"

    @abstractmethod
    def favour(self: _Network, by: int) -> _Network:
        """The same network, but another class than 0 must be ahead of it by more than `by`, or a little more.

        Raises InputError where a sum could overflow.
        """

    @abstractmethod
    def renumbered(self: _Network, first: int) -> _Network:
        """The same network with class `first` as class 0: (class - first) modulo n_classes.

        Equal scores keep their winner, except in int8 networks with several outputs, where the class with the
        lowest number wins as always. Raises InputError where a sum could overflow.
        """

    @abstractmethod
    def details(self) -> dict[str, Any]:
        """Sizes of the layers, for people and programs."""

    @abstractmethod
    def describe(self) -> str:
        """One line for people."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Plain lists and integers, ready for JSON."""

    def predict_one(self, row: Sequence[int]) -> tuple[int, list[int]]:
        """Class and scores of one row."""
        scores = self.activations(row)[-1]
        return decide(scores), scores

    def predict(self, x: Rows) -> tuple[NDArray[np.int32], Rows]:
        """Classes (n,) and scores (n, n_outputs) of rows (n, n_features); same meaning as `predict_one`."""
        scores = self.scores(rules.as_rows(x, self.n_features))
        if self.n_outputs == 1:
            return (scores[:, 0] > 0).astype(np.int32), scores
        return scores.argmax(axis=1).astype(np.int32), scores

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the canonical JSON of `to_dict`."""
        return rules.digest(self.to_dict())


class DenseNetwork(Network):
    """A network of dense layers over scaled inputs, whose families differ in their numbers only.

    title: of the family, for people. input_type, layer_type: records of `inputs` and `layers`. nested: the
    tuples of a layer's record, and how deep they are.
    """

    inputs: tuple[InputScaler, ...]
    layers: tuple[Any, ...]

    title: ClassVar[str]
    input_type: ClassVar[type[InputScaler]]
    layer_type: ClassVar[type[Any]]
    nested: ClassVar[Mapping[str, int]]

    @abstractmethod
    def steps(self, x: Rows) -> list[Rows]:
        """As `activations`, of rows (n, n_features): one array (n, width) each."""

    def scores(self, x: Rows) -> Rows:
        return self.steps(x)[-1]

    @cached_property
    def used_features(self) -> Ints:
        return weighted_inputs(self.inputs, self.layers[0].weights)

    @cached_property
    def reads(self) -> Ints:
        return weights_per_input(self.layers[0].weights, self.used_features)

    def favour(self: _Dense, by: int) -> _Dense:
        last = self.layers[-1]
        # A bias counts as often as its neuron's multiplier says, where there is one.
        step = getattr(last, "multiplier", (1,))[0]
        more = -by if self.n_outputs == 1 else -(-by // step)
        changed = replace(last, bias=(last.bias[0] + more, *last.bias[1:]))
        return replace(self, layers=(*self.layers[:-1], changed))  # type: ignore[type-var]

    def renumbered(self: _Dense, first: int) -> _Dense:
        if first == 0:
            return self
        last = self.layers[-1]
        if self.n_outputs == 1:
            weights = tuple(tuple(-weight for weight in row) for row in last.weights)
            changed = replace(last, weights=weights, bias=(1 - last.bias[0],))
        else:
            by_class = {"weights": (*last.weights[first:], *last.weights[:first])}
            if hasattr(last, "multiplier"):  # the least step of such a score is its multiplier, more than 1
                by_class |= {
                    name: (*values[first:], *values[:first])
                    for name, values in (("bias", last.bias), ("multiplier", last.multiplier))
                }
            else:
                by_class["bias"] = rules.renumbered_scores(last.bias, first)
            changed = replace(last, **by_class)
        return replace(self, layers=(*self.layers[:-1], changed))  # type: ignore[type-var]

    def details(self) -> dict[str, Any]:
        weights = [part for layer in self.layers for row in layer.weights for part in row]
        return {
            "layers": [self.n_features, *(len(layer.weights) for layer in self.layers)],
            "outputs": self.n_outputs,
            "weights": {"all": len(weights), "zero": weights.count(0)},
        }

    def describe(self) -> str:
        return (
            f"{self.title} network {shape_text(self, self.n_features)}, "
            f"{len(self.used_features)} of {self.n_features} features used, {self.n_classes} classes"
        )

    def to_dict(self) -> dict[str, Any]:
        return {"family": self.family, "version": self.version, **to_plain(self)}

    @classmethod
    def from_dict(cls: type[_Dense], document: dict[str, Any]) -> _Dense:
        """The inverse of `to_dict`; InputError: unknown version, missing or unknown key, broken rule."""
        rules.check_family(document, cls.family, cls.version)
        names = {field.name for field in fields(cls)}  # type: ignore[arg-type]
        rules.check_keys("model", document, {"family", "version", *names})
        inputs = rules.as_tuple("model", "inputs", document["inputs"])
        layers = rules.as_tuple("model", "layers", document["layers"])
        return cls(  # type: ignore[call-arg]
            n_features=document["n_features"],
            n_classes=document["n_classes"],
            n_outputs=document["n_outputs"],
            inputs=tuple(
                from_plain(f"model, input {i}", cls.input_type, one) for i, one in enumerate(inputs)
            ),
            layers=tuple(
                from_plain(f"model, layer {i}", cls.layer_type, one, cls.nested)
                for i, one in enumerate(layers)
            ),
        )


# -- rules


def check_network(model: Any, widths: Sequence[int]) -> None:
    """Raises InputError unless sizes and the number of outputs are in range. widths: neurons per layer."""
    rules.check_size(model.n_features, model.n_classes)
    if type(model.n_outputs) is not int or not (
        model.n_outputs == model.n_classes or (model.n_outputs == 1 and model.n_classes == 2)
    ):
        raise InputError(
            "model", f"has {model.n_outputs} outputs for {model.n_classes} classes",
            "give one output per class (or a single one for two classes)",
        )  # fmt: skip
    if not 1 <= len(widths) <= MAX_LAYERS:
        raise InputError("model", f"has {len(widths)} layers, allowed are 1 to {MAX_LAYERS}")
    if widths[-1] != model.n_outputs:
        raise InputError(
            "model", f"its last layer has {widths[-1]} neurons, it should have {model.n_outputs}"
        )


def check_inputs(model: Any) -> None:
    """Raises InputError unless there is one good input scaler per feature."""
    if len(model.inputs) != model.n_features:
        raise InputError("model", f"scales {len(model.inputs)} inputs, it has {model.n_features} features")
    for index, scaler in enumerate(model.inputs):
        scaler.check(f"model, input {index}")


def check_dense(
    where: str, weights: tuple[Ints, ...], bias: Ints, fan_in: int, *, weight: int, bias_bits: int
) -> None:
    """Raises InputError unless weights[neuron][input] are within +-weight and there is one bias a neuron."""
    if not 1 <= len(weights) <= MAX_WIDTH:
        raise InputError(where, f"has {len(weights)} neurons, allowed are 1 to {MAX_WIDTH}")
    if len(bias) != len(weights):
        raise InputError(where, f"has {len(bias)} biases for {len(weights)} neurons")
    most = 2 ** (bias_bits - 1)
    for neuron, (row, start) in enumerate(zip(weights, bias, strict=True)):
        if len(row) != fan_in:
            raise InputError(f"{where}, neuron {neuron}", f"has {len(row)} weights for {fan_in} inputs")
        if not all(is_int(part, -weight, weight) for part in row):
            raise InputError(
                f"{where}, neuron {neuron}", f"has a weight that is no integer of {-weight} to {weight}"
            )
        if not is_int(start, -most, most - 1):
            raise InputError(f"{where}, neuron {neuron}", f"its bias is no signed {bias_bits}-bit integer")


def reach(weights: tuple[Ints, ...], bias: Ints, inputs: Sequence[int]) -> list[int]:
    """|b_j| + sum_k |w_jk| * inputs_k, one per neuron: no partial sum is larger, whatever the order."""
    return [
        abs(start) + sum(abs(part) * most for part, most in zip(row, inputs, strict=True))
        for row, start in zip(weights, bias, strict=True)
    ]


def weighted_inputs(inputs: Sequence[InputScaler], weights: tuple[Ints, ...]) -> Ints:
    """Indices of the inputs that are not constant and that some neuron of the first layer weighs."""
    columns = zip(*weights, strict=True)
    return tuple(
        index
        for index, (scaler, column) in enumerate(zip(inputs, columns, strict=True))
        if scaler.scale(scaler.low) != scaler.scale(scaler.high) and any(column)
    )


def weights_per_input(weights: tuple[Ints, ...], used: Ints) -> Ints:
    """How many weights of the first layer are not zero, by input; none of an input that is not used."""
    columns = zip(*weights, strict=True)
    return tuple(sum(map(bool, column)) if k in used else 0 for k, column in enumerate(columns))


def shape_text(model: Any, fan_in: int) -> str:
    """Sizes of the input and of the layers, such as 12-16-16-2."""
    return "-".join(map(str, (fan_in, *(len(layer.weights) for layer in model.layers))))


# -- serialisation


def to_plain(value: Any) -> Any:
    """A frozen dataclass of integers, tuples and such dataclasses as plain objects and lists."""
    if isinstance(value, tuple):
        return [to_plain(part) for part in value]
    if hasattr(value, "__dataclass_fields__"):
        return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
    return value


def from_plain(where: str, kind: type[_T], document: object, nested: Mapping[str, int] = {}) -> _T:
    """The inverse of `to_plain` for one record. nested: names of its tuples, and how deep they are.

    InputError for a missing or unknown key and for what is not a list; numbers are left to the rules.
    """
    rules.check_keys(where, document, {field.name for field in fields(kind)})  # type: ignore[arg-type]
    assert isinstance(document, dict)
    return kind(
        **{
            name: _tuples(where, name, value, nested[name]) if name in nested else value
            for name, value in document.items()
        }
    )


def _tuples(where: str, name: str, value: object, depth: int) -> tuple[Any, ...]:
    parts = rules.as_tuple(where, name, value)
    return parts if depth == 1 else tuple(_tuples(where, name, part, depth - 1) for part in parts)
