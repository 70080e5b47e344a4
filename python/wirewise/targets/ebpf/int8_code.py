# SPDX-License-Identifier: Apache-2.0
"""Lowers a QuantizedMlp: dot products by polynomial multiplication, weights as words of a table.

A word holds n activations k bits apart, P = a0 + a1 2^k + ..., one of the table n weights in opposite order,
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

from wirewise.feature_sets.feature_set import Feature
from wirewise.models.network import round_shift
from wirewise.models.quantized_mlp import LIMIT, QuantizedLayer, QuantizedMlp
from wirewise.targets.comments import comment
from wirewise.targets.ebpf.network_code import (
    Code,
    Input,
    Piece,
    Range,
    lowered,
    varying_inputs,
    word,
)
from wirewise.targets.ebpf.shapes import Lowered

SPACING = {3: 22, 4: 16}  # activations in a word -> bits from one to the next
HELD = 16  # words of a layer that a piece keeps in registers and on the stack, 128 of its 512 bytes
REGISTERS = 5  # of these words; the others hold sum, product, table, base and result
NEURONS = 32  # of a piece
NEAR = 16  # words of the table on either side of where a register points


@dataclass(frozen=True)
class Part:
    """Words first to last - 1 of a neuron, added up in one register that starts with `start`."""

    first: int
    last: int
    start: int


@dataclass(frozen=True)
class Neuron:
    """row: a weight an input. weights: the same, one word a word of activations. bias: what the parts do not
    include. low, high: bounds of the sum.
    """

    row: tuple[int, ...]
    weights: tuple[int, ...]
    parts: tuple[Part, ...]
    bias: int
    low: int
    high: int

    @property
    def instructions(self) -> int:
        used = sum(map(bool, self.weights))
        return 3 * used + max(used - REGISTERS, 0) + 3 * len(self.parts) + 1


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


def lower(
    model: QuantizedMlp, shape: str, constants: Mapping[int, int], features: Sequence[Feature]
) -> Lowered:
    """See `families.Lower`."""
    first = model.layers[0]
    columns = list(zip(*first.weights, strict=True))
    inputs, constant = varying_inputs(model.inputs, columns, constants, features, LIMIT)
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
    names = [features[index].name for index in inputs]
    pieces, table = _input_pieces(list(inputs.values()), names, packed[0].lanes), Table()
    for index, layer in enumerate(model.layers):
        lanes = packed[index + 1].lanes if index + 1 < len(packed) else None
        pieces += _layer_pieces(index, layer, names, packed[index], lanes, table)
        names = [f"neuron {j}" for j in range(len(layer.weights))]
    code = Code(pieces, model.n_outputs, reach, table.declared())
    return lowered(code, len(model.used_features), shape)


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
    return Neuron(tuple(weights), tuple(words), tuple(parts), left, low, high)


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


class Table:
    """Words of read-only data, in the order in which the code reads them: where a sum starts, its weights.

    A register points into the midst of those that are next: what is at most 128 bytes away takes a shorter
    instruction of the processor.
    """

    def __init__(self) -> None:
        self._words = list[tuple[int, str]]()
        self._pointed_to = 0

    def begin(self) -> list[str]:
        """C that a piece starts with."""
        self._pointed_to = len(self._words) + NEAR
        return [f"const volatile __u64 *at = ww_weights + {self._pointed_to};", "ww_hide(at);"]

    def entry(self, value: int, what: str, lines: list[str]) -> str:
        """C that reads the next word, this value. what: for people. lines: get what has to come before."""
        if len(self._words) == self._pointed_to + NEAR:
            self._pointed_to += 2 * NEAR
            lines += [f"at += {2 * NEAR};", "ww_hide(at);"]
        self._words.append((value, what))
        return f"at[{len(self._words) - 1 - self._pointed_to}]"

    def declared(self) -> list[str]:
        """C of the table; zeros at its end keep the pointer inside."""
        words = self._words + [(0, "not read")] * (self._pointed_to + 1 - len(self._words))
        head = f'static const volatile __u64 ww_weights[{len(words)}] SEC(".rodata.ww_weights") = {{'
        return [head, *(f"\t{word(one)}, /* {comment(what)} */" for one, what in words), "};", ""]


def _input_pieces(inputs: Sequence[Input], names: Sequence[str], lanes: int) -> list[Piece]:
    pieces = []
    for first in range(0, len(inputs), lanes):
        lines, instructions = ["__u64 packed = 0;"], 1
        group = inputs[first : first + lanes]
        for lane, one in enumerate(group):
            shifted = f"\tpacked += (__u64)q << {SPACING[lanes] * lane};"
            lines += ["{", *(f"\t{line}" for line in one.lines), shifted, "\tww_hide(packed);", "}"]
            instructions += one.instructions + 2
        lines.append(f"ww_activation(s, 0, {first // lanes}) = packed;")
        what = f"a word of inputs: {', '.join(names[first : first + lanes])}"
        pieces.append(Piece(what, tuple(lines), instructions + 1))
    return pieces


def _layer_pieces(
    index: int,
    layer: QuantizedLayer,
    names: Sequence[str],
    packed: Packed,
    lanes: int | None,
    table: Table,
) -> list[Piece]:
    """names: of the layer's inputs, for comments. lanes: activations in a word of the next layer; None: this
    is the last.
    """
    neurons, pieces = range(len(packed.neurons)), []
    size = NEURONS - NEURONS % (lanes or 1)
    for first in range(0, len(neurons), size):
        block = neurons[first : first + size]
        code = Block(index, layer, names, packed, table)
        if lanes is None:
            code.add_scores(block)
        else:
            for start in range(0, len(block), lanes):
                code.add_word(block[start : start + lanes], lanes)
        what = f"layer {index}, {'neurons' if lanes else 'scores'} {block[0]} to {block[-1]}"
        pieces.append(Piece(what, tuple(code.lines), code.instructions))
    return pieces


class Block:
    """Code of some neurons of a layer, one after the other, over words that were read once."""

    def __init__(
        self, index: int, layer: QuantizedLayer, names: Sequence[str], packed: Packed, table: Table
    ) -> None:
        self._index, self._layer, self._names = index, layer, names
        self._packed, self._table, self._turn = packed, table, index % 2
        held = min(len(packed.neurons[0].weights), HELD)
        self.lines = [
            "__u64 word __attribute__((unused)), sum;",
            "__s64 before __attribute__((unused));",
            *table.begin(),
            *(
                f"const __u64 input{at} __attribute__((unused)) = ww_activation(s, {self._turn}, {at});"
                for at in range(held)
            ),
        ]
        self.instructions = 2 + held

    def add_scores(self, neurons: range) -> None:
        for j in neurons:
            self._rescaled(j, 0)
            self.lines.append(f"s->score[{j}] = sum;")

    def add_word(self, neurons: range, lanes: int) -> None:
        """The activations of some neurons, a word of the next layer."""
        shift, spacing = self._layer.shift, SPACING[lanes]
        ends = [self._ends(j) for j in neurons]
        low, high = min(end[0] for end in ends), max(end[1] for end in ends)
        bits = 64 - spacing * (lanes - 1)
        half = 1 << bits - 1
        together = LIMIT + 1 - half <= low and high < half
        ones = sum(1 << spacing * lane for lane in range(len(neurons)))
        self.lines.append(f"word = {word(ones * half if together and low < 0 else 0)};")
        for lane, j in enumerate(neurons):
            self._rescaled(j, 1 << shift >> 1)
            self.lines += [f"sum = (__s64)sum >> {shift};", "ww_hide(sum);"]
            if not together:
                self.lines.append(f"sum = ww_at_most(ww_relu(sum), {LIMIT});")
                self.instructions += 9
            self.lines += [f"word += sum << {spacing * lane};", "ww_hide(word);"]
            self.instructions += 3
        negative, large = low < 0, high > LIMIT
        if together and (negative or large):
            self.lines.append(f"word = ww_activate(word, {word(ones)}, {bits}, {negative:d}, {large:d});")
            self.instructions += 9 + 6 * large
        self.lines.append(f"ww_activation(s, {1 - self._turn}, {neurons[0] // lanes}) = word;")
        self.instructions += 1

    def _ends(self, j: int) -> Range:
        neuron, m, shift = self._packed.neurons[j], self._layer.multiplier[j], self._layer.shift
        return round_shift(neuron.low * m, shift), round_shift(neuron.high * m, shift)

    def _weights(self, neuron: Neuron, at: int) -> str:
        """For people: the weights of one word, and the inputs that they are of."""
        of_word = slice(at * self._packed.lanes, (at + 1) * self._packed.lanes)
        pairs = zip(neuron.row[of_word], self._names[of_word], strict=True)
        return ", ".join(f"{weight} {name}" for weight, name in pairs)

    def _rescaled(self, j: int, added: int) -> None:
        """Leaves in `sum` the neuron's sum times its multiplier, plus what is added."""
        neuron, shift, m = self._packed.neurons[j], self._packed.shift, self._layer.multiplier[j]
        where = f"layer {self._index}, neuron {j}"
        for order, part in enumerate(neuron.parts):
            if order:
                self.lines.append(f"before {'+' if order > 1 else ''}= (__s64)sum >> {shift};")
            start = self._table.entry(part.start, f"{where}: where its sum starts", self.lines)
            self.lines.append(f"sum = {start};")
            for at in range(part.first, part.last):
                if neuron.weights[at]:
                    source = f"input{at}" if at < HELD else f"ww_activation(s, {self._turn}, {at})"
                    weights = self._table.entry(
                        neuron.weights[at], f"{where}: {self._weights(neuron, at)}", self.lines
                    )
                    self.lines.append(f"ww_add_product(sum, {source}, {weights});")
        if not neuron.parts:
            self.lines.append("sum = 0;")
        else:
            self.lines.append(f"sum = (__s64)sum >> {shift};")
        self.lines += ["sum += before;"] if len(neuron.parts) > 1 else []
        self.lines.append(f"sum = sum * {m} + {word(neuron.bias * m + added)};")
        self.instructions += neuron.instructions + 3
