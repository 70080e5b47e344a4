# SPDX-License-Identifier: Apache-2.0
"""Lowers a QuantizedMlp: dot products by polynomial multiplication, weights as immediates.

A word holds n activations k bits apart, P = a0 + a1 2^k + ..., an immediate n weights in opposite order,
W = ... + w1 2^((n-2)k) + w0 2^((n-1)k). Of their product the coefficient at 2^((n-1)k) is the dot product
a0 w0 + a1 w1 + ...; what is above it falls off the word (n k >= 64). The words of a neuron add up before
anything is taken out.
The coefficients below are a number that must not reach into the dot product: the sum starts with an offset
that makes it positive, and `_cuts` proves by interval arithmetic over the neuron's weights that it stays
below 2^((n-1)k) and that the dot product fits the bits above. Where it would not, the sum is taken out and
starts anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wirewise.models.network import round_shift
from wirewise.models.quantized_mlp import LIMIT, QuantizedLayer, QuantizedMlp
from wirewise.targets.ebpf.network_code import (
    Code,
    Input,
    Piece,
    Range,
    lowered,
    number,
    varying_inputs,
    word,
)
from wirewise.targets.ebpf.shapes import Lowered

SPACING = {3: 22, 4: 16}  # activations in a word -> bits from one to the next
SUMS = 6  # of neurons at a time, each in a register; the others hold word, product, base and result


@dataclass(frozen=True)
class Part:
    """Words first to last - 1 of a neuron, added up in one register that starts with `start`."""

    first: int
    last: int
    start: int


@dataclass(frozen=True)
class Neuron:
    """weights: one immediate a word. bias: what the parts do not include. low, high: bounds of the sum."""

    weights: tuple[int, ...]
    parts: tuple[Part, ...]
    bias: int
    low: int
    high: int

    @property
    def instructions(self) -> int:
        return 4 * sum(map(bool, self.weights)) + 4 * len(self.parts) + bool(self.bias)


@dataclass(frozen=True)
class Packed:
    """A layer over words of `lanes` activations."""

    lanes: int
    neurons: tuple[Neuron, ...]

    @property
    def shift(self) -> int:
        return SPACING[self.lanes] * (self.lanes - 1)

    @property
    def instructions(self) -> int:
        return sum(neuron.instructions for neuron in self.neurons)


def lower(model: QuantizedMlp, shape: str, constants: Mapping[int, int], ranges: Sequence[Range]) -> Lowered:
    """See `families.Lower`."""
    first = model.layers[0]
    columns = list(zip(*first.weights, strict=True))
    inputs, constant = varying_inputs(model.inputs, columns, constants, ranges, LIMIT)
    bias = [
        start + sum(row[index] * value for index, value in constant.items())
        for row, start in zip(first.weights, first.bias, strict=True)
    ]
    weights = [[row[index] for index in inputs] for row in first.weights]
    bounds = [(one.low, one.high) for one in inputs.values()]
    packed, reach = [], 0
    for index, layer in enumerate(model.layers):
        if index:
            weights, bias = [list(row) for row in layer.weights], list(layer.bias)
        possible = filter(None, (_packed(lanes, weights, bias, bounds) for lanes in SPACING))
        best = min(possible, key=lambda way: way.instructions)
        packed.append(best)
        ends = [
            (neuron.low * m, neuron.high * m)
            for neuron, m in zip(best.neurons, layer.multiplier, strict=True)
        ]
        reach = max(max(map(abs, pair)) for pair in ends)
        bounds = [(_activation(low, layer.shift), _activation(high, layer.shift)) for low, high in ends]
    pieces = _input_pieces(list(inputs.values()), packed[0].lanes)
    for index, layer in enumerate(model.layers):
        lanes = packed[index + 1].lanes if index + 1 < len(packed) else None
        pieces += _layer_pieces(index, layer, packed[index], lanes)
    return lowered(Code(pieces, model.n_outputs, reach), len(model.used_features), shape)


def _activation(product: int, shift: int) -> int:
    return min(max(round_shift(product, shift), 0), LIMIT)


# -- bounds


def _packed(
    lanes: int, weights: Sequence[Sequence[int]], bias: Sequence[int], bounds: Sequence[Range]
) -> Packed | None:
    """None: the weights do not allow so many activations in a word."""
    neurons = []
    for row, start in zip(weights, bias, strict=True):
        neuron = _neuron(lanes, row, start, bounds)
        if neuron is None:
            return None
        neurons.append(neuron)
    return Packed(lanes, tuple(neurons))


def _neuron(lanes: int, weights: Sequence[int], bias: int, bounds: Sequence[Range]) -> Neuron | None:
    """None: a single word of weights could exceed the bits there are."""
    spacing = SPACING[lanes]
    words, coefficients = [], []
    for first in range(0, len(weights), lanes):
        row, of_row = weights[first : first + lanes], bounds[first : first + lanes]
        words.append(sum(w << spacing * (lanes - 1 - lane) for lane, w in enumerate(row)))
        coefficients.append(_coefficients(lanes, row, of_row))
    dots = [one[-1] for one in coefficients]
    low, high = bias + sum(dot[0] for dot in dots), bias + sum(dot[1] for dot in dots)
    left, parts = bias, list[Part]()
    for first, last in _cuts(lanes, words, coefficients):
        least = [sum(one[lane][0] for one in coefficients[first:last]) for lane in range(lanes)]
        most = sum(dot[1] for dot in dots[first:last])
        if _width_below(lanes, coefficients[first:last]) >= 1 << spacing * (lanes - 1):
            return None
        added = left if not parts and _fits(least[-1] + left, most + left, lanes) else 0
        if not _fits(least[-1] + added, most + added, lanes):
            added = -(least[-1] + most) // 2
            if not _fits(least[-1] + added, most + added, lanes):
                return None
        left -= added
        below = sum(value << spacing * lane for lane, value in enumerate(least[:-1]))
        parts.append(Part(first, last, (added << spacing * (lanes - 1)) - below))
    return Neuron(tuple(words), tuple(parts), left, low, high)


def _fits(low: int, high: int, lanes: int) -> bool:
    """Whether such dot products fit the highest bits of a word."""
    most = 1 << 63 - SPACING[lanes] * (lanes - 1)
    return -most <= low and high < most


def _coefficients(lanes: int, weights: Sequence[int], bounds: Sequence[Range]) -> list[Range]:
    """Bounds of the product's coefficients 0 to lanes - 1, of which the last is the dot product."""
    found = [(0, 0)] * lanes
    for i, (low, high) in enumerate(bounds):
        for j, weight in enumerate(weights):
            lane = i + lanes - 1 - j
            if lane < lanes:
                ends = sorted((low * weight, high * weight))
                found[lane] = (found[lane][0] + ends[0], found[lane][1] + ends[1])
    return found


def _cuts(lanes: int, words: Sequence[int], coefficients: Sequence[Sequence[Range]]) -> list[tuple[int, int]]:
    """Words that add up in one register, from first to last + 1: as few parts as the bounds allow."""
    spacing = SPACING[lanes]
    cuts: list[tuple[int, int]] = []
    below = dot = 0
    for index, (weight, ranges) in enumerate(zip(words, coefficients, strict=True)):
        if not weight:
            continue
        own_below, own_dot = _width_below(lanes, [ranges]), ranges[-1][1] - ranges[-1][0]
        below, dot = below + own_below, dot + own_dot
        if cuts and below < 1 << spacing * (lanes - 1) and dot < 1 << 64 - spacing * (lanes - 1):
            cuts[-1] = (cuts[-1][0], index + 1)
        else:
            cuts.append((index, index + 1))
            below, dot = own_below, own_dot
    return cuts


def _width_below(lanes: int, coefficients: Sequence[Sequence[Range]]) -> int:
    """How far apart the largest and the smallest value of all below the dot product can be."""
    return sum(
        (high - low) << SPACING[lanes] * lane
        for ranges in coefficients
        for lane, (low, high) in enumerate(ranges[:-1])
    )


# -- code


def _input_pieces(inputs: Sequence[Input], lanes: int) -> list[Piece]:
    pieces = []
    for first in range(0, len(inputs), lanes):
        lines, instructions = ["__u64 packed = 0;"], 1
        group = inputs[first : first + lanes]
        for lane, one in enumerate(group):
            shifted = f"\tpacked += (__u64)q << {SPACING[lanes] * lane};"
            lines += ["{", *(f"\t{line}" for line in one.lines), shifted, "\tww_hide(packed);", "}"]
            instructions += one.instructions + 2
        lines.append(f"ww_activation(s, 0, {first // lanes}) = packed;")
        what = f"inputs {first} to {first + len(group) - 1} of those that vary, in a word"
        pieces.append(Piece(what, tuple(lines), instructions + 1))
    return pieces


def _layer_pieces(index: int, layer: QuantizedLayer, packed: Packed, lanes: int | None) -> list[Piece]:
    """lanes: activations in a word of the next layer; None: this is the last."""
    alone = all(len(neuron.parts) <= 1 for neuron in packed.neurons)
    step = lanes or 3
    if alone and 2 * step <= SUMS:
        step *= 2
    return [
        _block(index, layer, packed, range(first, min(first + step, len(packed.neurons))), lanes)
        for first in range(0, len(packed.neurons), step)
    ]


def _block(index: int, layer: QuantizedLayer, packed: Packed, block: range, lanes: int | None) -> Piece:
    neurons = [packed.neurons[j] for j in block]
    turn, instructions = index % 2, 0
    lines = ["__u64 word __attribute__((unused));"]
    several = [len(neuron.parts) > 1 for neuron in neurons]
    for n, neuron in enumerate(neurons):
        lines.append(f"__u64 sum{n} = {word(neuron.parts[0].start) if neuron.parts else 0};")
        lines += [f"__s64 before{n} = 0;"] if several[n] else []
    for at in range(len(packed.neurons[0].weights)):
        weighed = [(n, neuron) for n, neuron in enumerate(neurons) if neuron.weights[at]]
        if not weighed:
            continue
        lines.append(f"word = ww_activation(s, {turn}, {at});")
        instructions += 1
        for n, neuron in weighed:
            if any(part.first == at for part in neuron.parts[1:]):
                (start,) = [part.start for part in neuron.parts if part.first == at]
                lines.append(f"before{n} += (__s64)sum{n} >> {packed.shift};")
                lines.append(f"sum{n} = {word(start)};")
            lines.append(f"ww_add_products(sum{n}, word, {word(neuron.weights[at])});")
    ends: list[Range] = []
    for n, (j, neuron) in enumerate(zip(block, neurons, strict=True)):
        more = (f" + before{n}" if several[n] else "") + (f" + {number(neuron.bias)}" if neuron.bias else "")
        m, shift = layer.multiplier[j], layer.shift
        lines.append(f"sum{n} = (((__s64)sum{n} >> {packed.shift}){more}) * {m};")
        if lanes is None:
            lines.append(f"s->score[{j}] = sum{n};")
        else:
            lines.append(f"sum{n} = (__s64)(sum{n} + {word(1 << shift >> 1)}) >> {shift};")
        ends.append((round_shift(neuron.low * m, shift), round_shift(neuron.high * m, shift)))
        instructions += neuron.instructions + 3
    if lanes is None:
        return Piece(f"layer {index}, scores {block[0]} to {block[-1]}", tuple(lines), instructions)
    for first in range(0, len(neurons), lanes):
        own = range(first, min(first + lanes, len(neurons)))
        place = f"ww_activation(s, {1 - turn}, {(block[0] + first) // lanes})"
        code, size = _activations(own, ends[first : own.stop], lanes)
        lines += [*code, f"{place} = word;"]
        instructions += size + 2
    return Piece(f"layer {index}, neurons {block[0]} to {block[-1]}", tuple(lines), instructions)


def _activations(sums: range, ends: Sequence[Range], lanes: int) -> tuple[list[str], int]:
    """C that puts the activations of some rescaled sums, with these bounds, into `word`; its instructions."""
    spacing = SPACING[lanes]
    bits = 64 - spacing * (lanes - 1)
    half = 1 << bits - 1
    ones = sum(1 << spacing * lane for lane in range(len(sums)))
    negative, large = any(low < 0 for low, _ in ends), any(high > LIMIT for _, high in ends)
    lines, size, start = [], 0, 0
    if all(LIMIT + 1 - half <= low and high < half for low, high in ends):
        start = ones * half if negative else 0
        after = [f"word = ww_activate(word, {word(ones)}, {bits}, {int(negative)}, {int(large)});"]
        after, size = (after, 7 + 6 * large) if negative or large else ([], 0)
    else:
        after = []
        for n in sums:
            lines.append(f"sum{n} = ww_at_most(ww_relu(sum{n}), {LIMIT});")
            size += 10
    lines.append(f"word = {word(start)};")
    for lane, n in enumerate(sums):
        lines += [f"word += sum{n} << {spacing * lane};", "ww_hide(word);"]
        size += 2
    return [*lines, *after], size
