# SPDX-License-Identifier: Apache-2.0
"""Random models for parity tests and benchmarks. Equal generators give equal models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from wirewise.models import network
from wirewise.models.binary_bank import BinaryBank
from wirewise.models.binary_mlp import (
    MAX_INPUT_BITS,
    BinaryInput,
    BinaryLayer,
    BinaryMlp,
    BitsInput,
    StepsInput,
)
from wirewise.models.fixed_point_mlp import FRACTION_BITS, FixedPointLayer, FixedPointMlp
from wirewise.models.network import Ints
from wirewise.models.quantized_mlp import LIMIT, InputQuantizer, QuantizedLayer, QuantizedMlp
from wirewise.models.rules import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN
from wirewise.models.tree import LEAF, Tree, TreeEnsemble, Votes


def random_tree_ensemble(
    rng: np.random.Generator,
    *,
    n_features: int = 12,
    n_classes: int = 2,
    n_trees: int = 10,
    depth: int = 5,
    votes: Votes = "sum",
    n_outputs: int | None = None,
    full: bool = False,
    one_output_trees: bool | None = None,
    thresholds: Sequence[tuple[int, int]] | tuple[int, int] = (0, 1500),
    tested: Sequence[int] | None = None,
) -> TreeEnsemble:
    """An ensemble drawn from `rng`; equal generators give equal ensembles.

    full: every leaf at `depth`; otherwise a node above it is a leaf with probability 1/4, the root never.
    n_outputs: for sum votes, 1 (two classes only) or n_classes; default n_classes.
    one_output_trees: each tree adds to one output, as in multi-class boosting; default: a coin toss a tree.
    thresholds: inclusive range drawn from, one for all features or one per feature.
    tested: features that tests are drawn from; default: all.
    """
    ranges = np.array(thresholds, dtype=np.int64)
    ranges = np.tile(ranges, (n_features, 1)) if ranges.ndim == 1 else ranges
    choices = np.arange(n_features) if tested is None else np.array(tested)
    outputs = n_classes if votes == "majority" or n_outputs is None else n_outputs
    largest = (2**31 - 1) // (n_trees + 1)  # of a leaf or a base, so that scores fit int32

    def tree(index: int) -> Tree:
        feature, left, right = _structure(rng, depth, full)
        inner = feature != LEAF
        feature[inner] = choices[rng.integers(0, len(choices), inner.sum())]
        low, high = ranges[feature, 0], ranges[feature, 1]
        threshold = np.where(inner, rng.integers(low, high, endpoint=True), 0)
        single = bool(rng.integers(2)) if one_output_trees is None else one_output_trees
        output = index % outputs if votes == "sum" and single and outputs > 1 else None
        if votes == "majority":
            value = rng.integers(0, n_classes, (len(feature), 1))
        else:
            value = rng.integers(
                -largest, largest, (len(feature), 1 if output is not None else outputs), endpoint=True
            )
        return Tree(
            tuple(feature.tolist()),
            tuple(threshold.tolist()),
            tuple(left.tolist()),
            tuple(right.tolist()),
            tuple(
                () if is_inner else tuple(row)
                for is_inner, row in zip(inner.tolist(), value.tolist(), strict=True)
            ),
            output,
        )

    trees = tuple(tree(index) for index in range(n_trees))
    base = (
        [0] * outputs
        if votes == "majority"
        else rng.integers(-largest, largest, outputs, endpoint=True).tolist()
    )
    return TreeEnsemble(n_features, n_classes, votes, trees, outputs, tuple(base))


def _structure(
    rng: np.random.Generator, depth: int, full: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Level by level: feature (0 at inner nodes, -1 at leaves), left, right."""
    feature, left, right = [], [], []
    width, start = 1, 0
    for level in range(depth + 1):
        inner = np.full(width, level < depth)
        if not full and 0 < level < depth:
            inner &= rng.random(width) < 0.75
        child = start + width + 2 * (np.cumsum(inner) - 1)
        feature.append(np.where(inner, 0, LEAF))
        left.append(np.where(inner, child, LEAF))
        right.append(np.where(inner, child + 1, LEAF))
        start, width = start + width, 2 * int(inner.sum())
        if width == 0:
            break
    return np.concatenate(feature), np.concatenate(left), np.concatenate(right)


def random_quantized_mlp(
    rng: np.random.Generator,
    *,
    n_features: int = 12,
    layers: Sequence[int] = (16, 16),
    n_classes: int = 2,
    n_outputs: int | None = None,
    extreme: bool = False,
    ranges: Sequence[tuple[int, int]] | tuple[int, int] = (0, 1500),
) -> QuantizedMlp:
    """An int8 network. layers: hidden widths. n_outputs: default n_classes.

    ranges: inclusive clamps of the features, one for all or one per feature. extreme: weights of 0 and +-127,
    biases up to what int32 allows, any multiplier and shift, clamps and zeros at the ends of int64.
    """
    outputs = n_classes if n_outputs is None else n_outputs
    inputs = tuple(
        InputQuantizer(*_scaler(rng, low, high, LIMIT, extreme)) for low, high in _ranges(ranges, n_features)
    )
    made, fan_in = [], n_features
    for index, width in enumerate((*layers, outputs)):
        last = index == len(layers)
        weights = _weights(rng, width, fan_in, LIMIT, extreme)
        usual = 40 * 40 * int(max(1, fan_in) ** 0.5)  # a sum: weights and activations are about 40
        room = [INT32_MAX - most for most in network.reach(weights, (0,) * width, (LIMIT,) * fan_in)]
        bias = tuple(_integer(rng, most if extreme else usual) for most in room)
        shift = 0 if last else int(rng.integers(network.MAX_SHIFT + 1)) if extreme else 24
        scale = 2**16 if last else 2**24 * LIMIT // usual
        least, most = (1, INT32_MAX) if extreme else (scale // 2, scale)
        multiplier = tuple(rng.integers(least, most, width, endpoint=True).tolist())
        if last and outputs == 1:
            multiplier = (1,)
        made.append(QuantizedLayer(weights, bias, multiplier, shift))
        fan_in = width
    return QuantizedMlp(n_features, n_classes, outputs, inputs, tuple(made))


def random_fixed_point_mlp(
    rng: np.random.Generator,
    *,
    n_features: int = 12,
    layers: Sequence[int] = (32, 32),
    n_classes: int = 2,
    n_outputs: int | None = None,
    extreme: bool = False,
    ceilings: bool = False,
    ranges: Sequence[tuple[int, int]] | tuple[int, int] = (0, 1500),
) -> FixedPointMlp:
    """A Q16 network; arguments as of `random_quantized_mlp`. ceilings: clamp hidden activations.

    extreme: inputs up to 2^31 - 1, and weights and biases as large as the proof of the sums allows.
    """
    outputs = n_classes if n_outputs is None else n_outputs
    one = 1 << FRACTION_BITS
    inputs = tuple(
        network.InputScaler(*_scaler(rng, low, high, INT32_MAX if extreme else 3 * one, extreme))
        for low, high in _ranges(ranges, n_features)
    )
    made, reach = [], [scaler.reach for scaler in inputs]
    for index, width in enumerate((*layers, outputs)):
        last, budget = index == len(layers), INT64_MAX - one
        if extreme and not last:  # leaves the next layer weights of some bits
            budget = min(budget, (budget >> 12) // width << FRACTION_BITS)
        largest = min(INT32_MAX, budget // 2 // max(1, sum(reach))) if extreme else one
        weights = _weights(rng, width, len(reach), largest, extreme)
        sums = network.reach(weights, (0,) * width, reach)
        bias = tuple(_integer(rng, budget - most if extreme else one * one) for most in sums)
        ceiling = int(rng.integers(1, INT32_MAX, endpoint=True)) if ceilings and not last else None
        made.append(FixedPointLayer(weights, bias, ceiling))
        sums = network.reach(weights, bias, reach)
        reach = [network.round_shift(most, FRACTION_BITS) for most in sums]
        reach = reach if ceiling is None else [min(most, ceiling) for most in reach]
    return FixedPointMlp(n_features, n_classes, outputs, inputs, tuple(made))


def random_binary_mlp(
    rng: np.random.Generator,
    *,
    n_features: int = 12,
    layers: Sequence[int] = (32, 16),
    n_classes: int = 2,
    input_bits: int = 256,
    extreme: bool = False,
    steps: bool | None = None,
    ranges: Sequence[tuple[int, int]] | tuple[int, int] = (0, 1500),
) -> BinaryMlp:
    """A binary network. layers: hidden widths. input_bits: spread evenly over the features.

    steps: thermometers instead of the highest bits of the value; default: a coin toss a feature. extreme:
    weights that are all equal, thresholds and biases anywhere in int32, inputs of any bits and steps.
    """
    spread = max(input_bits, n_features)
    widths = [spread // n_features + (index < spread % n_features) for index in range(n_features)]
    inputs = tuple(
        _extreme_input(rng, index)
        if extreme
        else _binary_input(rng, index, width, low, high, bool(rng.integers(2)) if steps is None else steps)
        for index, (width, (low, high)) in enumerate(zip(widths, _ranges(ranges, n_features), strict=True))
    )
    fan_in = sum(source.width for source in inputs)
    while fan_in > MAX_INPUT_BITS:
        inputs = inputs[1:]
        fan_in = sum(source.width for source in inputs)
    made = random_binary_layers(rng, (fan_in, *layers, n_classes), extreme=extreme)
    return BinaryMlp(n_features, n_classes, inputs, made)


def random_binary_bank(
    rng: np.random.Generator,
    *,
    networks: int = 5,
    n_features: int = 12,
    layers: Sequence[int] = (32, 16),
    input_bits: int = 256,
    extreme: bool = False,
    steps: bool | None = None,
    same_inputs: bool = True,
    ranges: Sequence[tuple[int, int]] | tuple[int, int] = (0, 1500),
) -> BinaryBank:
    """A bank; arguments as of `random_binary_mlp`. same_inputs: as all networks' are encoded."""

    def network() -> BinaryMlp:
        return random_binary_mlp(
            rng, n_features=n_features, layers=layers, input_bits=input_bits, extreme=extreme, steps=steps,
            ranges=ranges,
        )  # fmt: skip

    first = network()
    made = [first]
    while len(made) < networks:
        if same_inputs:
            widths = (first.input_bits, *layers, 2)
            made.append(replace(first, layers=random_binary_layers(rng, widths, extreme=extreme)))
        else:
            made.append(network())
    return BinaryBank(tuple(f"n{index}" for index in range(networks)), tuple(made))


def random_binary_layers(
    rng: np.random.Generator, widths: Sequence[int], *, extreme: bool = False
) -> tuple[BinaryLayer, ...]:
    """Layers of a binary network. widths: input bits, hidden layers, classes. extreme: see there."""
    made = []
    for index, (fan_in, width) in enumerate(pairwise(widths)):
        words = [int.from_bytes(rng.bytes(fan_in // 8 + 1), "little") >> 8 - fan_in % 8 for _ in range(width)]
        spread = max(1, int(fan_in**0.5))
        threshold = (fan_in // 2 + rng.integers(-spread, spread, width, endpoint=True)).tolist()
        if index == len(widths) - 2:
            threshold = rng.integers(-spread, spread, width, endpoint=True).tolist()
        if extreme:
            words = [
                int(rng.choice([0, 1, -1])) & (1 << fan_in) - 1 if rng.random() < 0.3 else w for w in words
            ]
            ends = [INT32_MIN, -1, 0, 1, fan_in - 1, fan_in, fan_in + 1, INT32_MAX]
            threshold = [int(rng.choice(ends)) if rng.random() < 0.4 else t for t in threshold]
        made.append(BinaryLayer(tuple(words), tuple(threshold)))
    return tuple(made)


def _binary_input(
    rng: np.random.Generator, feature: int, width: int, low: int, high: int, steps: bool
) -> BinaryInput:
    """Bits, or a thermometer, of a feature that goes from low to high."""
    if not steps:
        width = min(width, 63)
        return BitsInput(feature, min(max(0, high.bit_length() - width), 63 - width), width)
    return StepsInput(feature, tuple(sorted(rng.integers(low, high, width, endpoint=True).tolist())))


def _extreme_input(rng: np.random.Generator, feature: int) -> BinaryInput:
    if rng.integers(2):
        shift = int(rng.choice([0, 1, 31, 32, 62]))
        return BitsInput(feature, shift, int(rng.integers(1, 63 - shift, endpoint=True)))
    ends = [INT64_MIN, INT64_MIN + 1, -1, 0, 1, 2**31, 2**32, 2**47 - 1, INT64_MAX - 1, INT64_MAX]
    return StepsInput(feature, tuple(sorted(rng.choice(ends, int(rng.integers(1, 20))).tolist())))


def _ranges(ranges: Sequence[tuple[int, int]] | tuple[int, int], n_features: int) -> list[Ints]:
    given = np.array(ranges, np.int64)
    return [tuple(pair) for pair in (np.tile(given, (n_features, 1)) if given.ndim == 1 else given).tolist()]


def _integer(rng: np.random.Generator, most: int) -> int:
    """Between -most and most; often at one of the ends."""
    return (
        int(rng.choice([-most, most]))
        if rng.random() < 0.1
        else int(rng.integers(-most, most, endpoint=True))
    )


def _weights(
    rng: np.random.Generator, neurons: int, fan_in: int, most: int, extreme: bool
) -> tuple[Ints, ...]:
    """Bell-shaped, deviation a third of `most`; extreme: -most, 0 or most, some neurons all of a sign."""
    if extreme:
        drawn = rng.choice([-most, 0, most], (neurons, fan_in), p=[0.45, 0.1, 0.45])
        same = rng.random(neurons) < 0.3
        drawn[same] = np.abs(drawn[same]) * rng.choice([-1, 1], (int(same.sum()), 1))
    else:
        drawn = np.clip(np.rint(rng.normal(0, most / 3, (neurons, fan_in))), -most, most).astype(np.int64)
    return tuple(tuple(row) for row in drawn.tolist())


def _scaler(
    rng: np.random.Generator, low: int, high: int, most: int, extreme: bool
) -> tuple[int, int, int, int, int]:
    """low, high, zero, multiplier, shift of a scaler that takes low to high to about -most to most.

    extreme: one of five: a constant, a single value, the widest range, a large zero, the largest factor.
    """
    kind = int(rng.integers(5)) if extreme else -1
    if kind == 0:
        return low, high, int(rng.integers(low, high, endpoint=True)), 0, int(rng.integers(63))
    if kind == 1:
        return low, low, low, INT32_MAX, 0
    if kind == 2:
        return INT64_MIN // 2, INT64_MAX // 2, 0, 1, 62
    if kind == 3:
        low, high = INT64_MAX - 1000, INT64_MAX
    if kind == 4:
        low, high = 2**40, 2**40 + 1
    zero = (low + high) // 2
    apart = max(high - zero, zero - low, 1)
    shift = 0
    while shift < network.MAX_SHIFT and (most << shift + 1) // apart <= INT32_MAX and most << shift < 2**61:
        shift += 1
    return low, high, zero, min(INT32_MAX, (most << shift) // apart), shift
