# SPDX-License-Identifier: Apache-2.0
"""Lowers a BinaryMlp: tables of packed partial counts instead of popcounts, which eBPF does not have.

The input bits of a layer are taken some at a time (a chunk). A table has a row for each value of a chunk:
words with a lane for each neuron that hold how many of the chunk's bits agree with the neuron's weights. Rows
add up over the chunks. In a hidden layer a lane starts with half its range less the neuron's threshold, so
that its top bit ends up as the neuron's output; the words of a block are shifted against each other so that
their top bits lie side by side: the lanes of that one word are the chunks of the next layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from wirewise.feature_sets.feature_set import Feature
from wirewise.models.binary_mlp import BinaryLayer, BinaryMlp, BitsInput, StepsInput
from wirewise.targets.comments import comment
from wirewise.targets.ebpf.network_code import Code, Piece, Range, feature_range, lowered, number, word
from wirewise.targets.ebpf.shapes import Lowered

CHUNK_BITS = 5  # of an input: rows of a table are 2^5
SUMS = 5  # words at a time, each in a register; the others hold row, index, base and table
# Differences of a value to thresholds that clang may take before it adds them up: it keeps them on the stack.
STEPS_AHEAD = 16


@dataclass(frozen=True)
class Chunk:
    """Some input bits of a layer, which together index a table. place: C of a word that holds them, `shift`
    bits up, masked by rows - 1. values: the bits (of all the layer's inputs) that are 1, by row; known: those
    that the chunk says something about. what: the bits, for people.
    """

    place: str
    shift: int
    values: tuple[int, ...]
    known: int
    what: str

    @property
    def rows(self) -> int:
        """A power of two, as the verifier wants a mask."""
        return 1 << (len(self.values) - 1).bit_length()


@dataclass(frozen=True)
class Inputs:
    """Chunks of a layer's inputs; known, ones: bits that are the same for every packet, and which are 1."""

    chunks: tuple[Chunk, ...]
    known: int = 0
    ones: int = 0


def lower(model: BinaryMlp, shape: str, constants: Mapping[int, int], features: Sequence[Feature]) -> Lowered:
    """See `families.Lower`."""
    pieces, inputs = _input_pieces(model, constants, features)
    tables: list[str] = []
    fan_in = model.input_bits
    for index, layer in enumerate(model.layers):
        last = index == len(model.layers) - 1
        lanes = Lanes.of(fan_in, last)
        chunks: list[Chunk] = []
        for order, words in enumerate(lanes.blocks(len(layer.weights))):
            block = Block(index, order, last, layer, fan_in, lanes, words, inputs)
            tables += block.table()
            pieces.append(block.piece())
            chunks += block.chunks()
        reach = fan_in + max(map(abs, layer.bias))
        inputs, fan_in = Inputs(tuple(chunks)), len(layer.weights)
    return lowered(Code(pieces, model.n_outputs, reach, tables), len(model.used_features), shape)


# -- input


def _input_pieces(
    model: BinaryMlp, constants: Mapping[int, int], features: Sequence[Feature]
) -> tuple[list[Piece], Inputs]:
    """Code that leaves the inputs where chunks find them, and those chunks."""
    pieces: list[Piece] = []
    chunks: list[Chunk] = []
    known = ones = at = words = 0
    for source in model.inputs:
        feature = features[source.feature]
        bounds = feature_range(source.feature, feature, constants)
        place = f"ww_activation(s, 0, {words})"
        if isinstance(source, BitsInput):
            piece, own, fixed = _bits(source, feature, at, bounds, place)
        else:
            piece, own, fixed = _steps(source, feature, at, bounds, place)
        if piece:
            pieces.append(piece)
            words += 1
        chunks += own
        known, ones, at = known | fixed[0], ones | fixed[1], at + source.width
    return pieces, Inputs(tuple(chunks), known, ones)


Found = tuple[Piece | None, list[Chunk], tuple[int, int]]


def _bits(source: BitsInput, feature: Feature, at: int, bounds: Range, place: str) -> Found:
    """at: the first of the source's bits in the layer's input."""
    encode: Callable[[int], int] = lambda x: sum(bit << n for n, bit in enumerate(source.encode(x)))  # noqa: E731
    low, high = encode(bounds[0]), encode(bounds[1])
    # The bits above the highest that differs are the same for all values between.
    varying = (low ^ high).bit_length()
    mask = (1 << source.bits) - (1 << varying)
    fixed = (mask << at, (high & mask) << at)
    if not varying:
        return None, [], fixed
    most = (1 << source.shift + source.bits) - 1
    lines, instructions = [f"__s64 x = ww_feature(s, {source.feature}); /* {comment(feature.label)} */"], 2
    piece = None
    if bounds[0] < 0 or bounds[1] > most:
        lines += ["x = ww_relu(x);"] if bounds[0] < 0 else []
        lines += [f"x = ww_at_most(x, {number(most)});"] if bounds[1] > most else []
        instructions += 4 * (bounds[0] < 0) + 5 * (bounds[1] > most)
        what = f"feature {source.feature}, {feature.name}, {source.bits} bits from bit {source.shift}"
        piece = Piece(what, (*lines, f"{place} = x;"), instructions)
    else:
        place = f"ww_feature(s, {source.feature})"
    count = -(-varying // CHUNK_BITS)
    ends = [varying * n // count for n in range(count + 1)]
    chunks = [
        Chunk(
            f"(__u64){place}",
            source.shift + first,
            tuple(value << at + first for value in range(1 << last - first)),
            ((1 << last - first) - 1) << at + first,
            f"{feature.label}: bits {source.shift + first} to {source.shift + last - 1}",
        )
        for first, last in pairwise(ends)
    ]
    return piece, chunks, fixed


def _steps(source: StepsInput, feature: Feature, at: int, bounds: Range, place: str) -> Found:
    """A thermometer is one chunk: as thresholds ascend, the number of those exceeded says all its bits."""
    low, high = bounds
    always = sum(low > t for t in source.thresholds)
    compared = [t for t in source.thresholds if low <= t < high]
    full = (1 << source.width) - 1
    between = ((1 << len(compared)) - 1) << always
    fixed = ((full ^ between) << at, ((1 << always) - 1) << at)
    if not compared:
        return None, [], fixed
    lines = [f"__u64 x = ww_feature(s, {source.feature}), above = 0; /* {comment(feature.label)} */"]
    for index, threshold in enumerate(compared):
        lines += [f"above += ({number(threshold)} - x) >> 63;", "ww_hide(above);"]
        if index % STEPS_AHEAD == STEPS_AHEAD - 1:
            lines.append("ww_hide(x);")
    what = f"feature {source.feature}, how many of {len(compared)} steps it is above"
    piece = Piece(what, (*lines, f"{place} = above;"), 4 * len(compared) + 3)
    above = f"{feature.label}: how many of {len(compared)} steps it is above"
    values = tuple(((1 << above) - 1) << always + at for above in range(len(compared) + 1))
    return piece, [Chunk(place, 0, values, between << at, above)], fixed


# -- layers


@dataclass(frozen=True)
class Lanes:
    """bits: of a lane. count: lanes of a word. words: how many words a block has at most."""

    bits: int
    count: int
    words: int

    @classmethod
    def of(cls, fan_in: int, last: bool) -> Lanes:
        """A lane of the last layer holds a count of agreements; of a hidden one also half its range, which is
        at least the largest count.
        """
        bits = fan_in.bit_length() if last else 1 + (fan_in - 1).bit_length()
        return cls(bits, 64 // bits, SUMS if last else min(SUMS, bits))

    def blocks(self, neurons: int) -> list[list[range]]:
        """Neurons by block and word; within a block they change words at each step."""
        words = -(-neurons // self.count)
        count = -(-words // self.words)
        blocks, given = [], 0
        for block in range(count):
            size = words * (block + 1) // count - words * block // count
            end = min(neurons, given + size * self.count)
            blocks.append([range(given + first, end, size) for first in range(size)])
            given = end
        return blocks


@dataclass(frozen=True)
class Block:
    """Some neurons of a layer, by word and lane, and their table."""

    index: int
    order: int
    last: bool
    layer: BinaryLayer
    fan_in: int
    lanes: Lanes
    words: Sequence[range]
    inputs: Inputs

    @property
    def _name(self) -> str:
        return f"ww_rows_{self.index}_{self.order}"

    @property
    def _turn(self) -> int:
        return self.index % 2

    def _agreement(self, known: int, ones: int, neurons: Sequence[int]) -> int:
        """A word: in each lane how many of the known bits agree with the neuron's weights."""
        total = 0
        for lane, neuron in enumerate(neurons):
            # What fires always or never counts nothing.
            if self.last or 1 <= self.layer.threshold[neuron] <= self.fan_in:
                agree = ~(self.layer.weights[neuron] ^ ones) & known
                total |= agree.bit_count() << lane * self.lanes.bits
        return total

    def _start(self, neurons: Sequence[int]) -> int:
        start = self._agreement(self.inputs.known, self.inputs.ones, neurons)
        if not self.last:
            half = 1 << self.lanes.bits - 1
            for lane, neuron in enumerate(neurons):
                threshold = self.layer.threshold[neuron]
                if threshold <= self.fan_in:
                    start += half - max(threshold, 0) << lane * self.lanes.bits
        return start

    def table(self) -> list[str]:
        """C of the rows of all chunks, one after the other; empty rows fill up to a power of two."""
        rows: list[str] = []
        count = 0
        for chunk in self.inputs.chunks:
            own = [
                [self._agreement(chunk.known, ones, neurons) for neurons in self.words]
                for ones in chunk.values
            ]
            own += [[0] * len(self.words)] * (chunk.rows - len(chunk.values))
            rows.append(f"\t/* rows {count} to {count + len(own) - 1}, {comment(chunk.what)} */")
            rows += ["\t{" + ", ".join(map(word, row)) + "}," for row in own]
            count += len(own)
        if not rows:
            return []
        shape = f"[{count}][{len(self.words)}]"
        head = f'static const volatile __u64 {self._name}{shape} SEC(".rodata.ww_rows") = {{'
        return [*self._legend(), head, *rows, "};", ""]

    def _legend(self) -> list[str]:
        """A comment: what rows, words and lanes of the table are."""
        kind = "score" if self.last else "neuron"
        lines = [
            f"/* Layer {self.index}: how many bits of a part of the inputs agree with each {kind}'s weights.",
            " * A row for each value of the part; its words hold, a lane of "
            f"{self.lanes.bits} bits each, from the lowest:",
        ]
        for n, neurons in enumerate(self.words):
            lines.append(f" * word {n}: {kind}s {', '.join(map(str, neurons))}")
        return [*lines, " */"]

    def piece(self) -> Piece:
        size, first = len(self.words), 0
        lines = ["const volatile __u64 *row;", "__u64 index;"] if self.inputs.chunks else []
        lines += [f"__u64 sum{n} = {word(self._start(neurons))};" for n, neurons in enumerate(self.words)]
        for chunk in self.inputs.chunks:
            lines.append(f"index = {chunk.place} >> {chunk.shift} & {chunk.rows - 1};")
            lines.append(f"row = {self._name}[{first} + index];")
            for n in range(size):
                lines += [f"sum{n} += row[{n}];", f"ww_hide(sum{n});"]
            first += chunk.rows
        instructions = size + len(self.inputs.chunks) * (8 + 2 * size)
        if self.last:
            for n, neurons in enumerate(self.words):
                for lane, neuron in enumerate(neurons):
                    taken = f"(sum{n} >> {lane * self.lanes.bits} & {(1 << self.lanes.bits) - 1})"
                    lines.append(f"s->score[{neuron}] = (__s64){taken} + {self.layer.bias[neuron]};")
                    instructions += 5
        else:
            tops = [
                f"(sum{n} & {word(self._tops(len(neurons)))}) >> {n}" for n, neurons in enumerate(self.words)
            ]
            lines.append(f"ww_activation(s, {1 - self._turn}, {self.order}) = {' | '.join(tops)};")
            instructions += 4 * size
        what = "scores" if self.last else "neurons"
        ends = f"{min(r.start for r in self.words)} to {max(r[-1] for r in self.words)}"
        return Piece(f"layer {self.index}, {what} {ends}", tuple(lines), instructions)

    def _tops(self, lanes: int) -> int:
        """The highest bit of each of so many lanes."""
        return sum(1 << lane * self.lanes.bits + self.lanes.bits - 1 for lane in range(lanes))

    def chunks(self) -> list[Chunk]:
        """The outputs as the next layer takes them: a lane of all words is a chunk."""
        size, place = len(self.words), f"ww_activation(s, {1 - self._turn}, {self.order})"
        found = []
        for lane in range(len(self.words[0])):
            # The first word has the highest bit.
            own = [words[lane] if lane < len(words) else None for words in reversed(self.words)]
            values = tuple(
                sum(1 << neuron for bit, neuron in enumerate(own) if neuron is not None and row >> bit & 1)
                for row in range(1 << size)
            )
            shift = lane * self.lanes.bits + self.lanes.bits - size
            ones = ", ".join(str(neuron) for neuron in own if neuron is not None)
            found.append(Chunk(place, shift, values, values[-1], f"neurons {ones}, the first the lowest bit"))
        return found
