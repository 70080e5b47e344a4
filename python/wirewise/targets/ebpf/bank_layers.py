# SPDX-License-Identifier: Apache-2.0
"""The layers of a bank's networks: 64 neurons at a time, a bit of a word for each (`bank_code`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from wirewise.models.binary_bank import BinaryBank
from wirewise.models.binary_mlp import BinaryLayer, BinaryMlp
from wirewise.targets.ebpf.network_code import word

CHUNK_BITS = 3  # of an input: so many agreements make two bits, and 2^3 rows of them are not too many
ROWS = 1 << CHUNK_BITS
LANES = 64  # neurons of a word
INPUT_BITS = LANES // CHUNK_BITS * CHUNK_BITS  # of a word of the input: so that no chunk lies in two


@dataclass(frozen=True)
class Chunk:
    """Input bits of a layer: the first, how many, and where they lie among the activations."""

    first: int
    count: int
    word: int
    shift: int


def _chunks(bits: int, of_a_word: int) -> list[Chunk]:
    found = []
    for at in range(0, bits, of_a_word):
        end = min(bits, at + of_a_word)
        found += [
            Chunk(first, min(CHUNK_BITS, end - first), at // of_a_word, first - at)
            for first in range(at, end, CHUNK_BITS)
        ]
    return found


def activation(layer: int, word: int | str) -> str:
    """C of a word that a layer reads. The input, which all networks read, stays where it is."""
    return (
        f"ww_activation(s, 0, {word})" if layer == 0 else f"ww_activation(s, 1, {layer % 2 * LANES} + {word})"
    )


class Adder:
    """Adds numbers that lie across words. Gives the highest bit of the sum; what is carried out is lost."""

    def __init__(self, bits: int) -> None:
        self.lines: list[str] = []
        self.operations = 0
        self._waiting: list[list[str]] = [[] for _ in range(bits)]
        self._free: list[str] = []
        self.names: list[str] = []

    def name(self) -> str:
        """A variable that nothing is in."""
        if not self._free:
            self.names.append(f"w{len(self.names)}")
            return self.names[-1]
        return self._free.pop()

    def put(self, weight: int, value: str) -> None:
        """value: a variable of `name`, whose word counts 2^weight."""
        if weight >= len(self._waiting):
            self._free.append(value)  # of the carry out
            return
        here = self._waiting[weight]
        here.append(value)
        if weight == len(self._waiting) - 1:
            if len(here) == 2:
                self._say(f"{here[0]} ^= {here[1]};", 1)
                self._free.append(here.pop())
        elif len(here) == 3:
            a, b, c = here
            here[:] = [a]
            # a, b, c become their sum, in a, and the carry, in b.
            self._say(f"ww_add3({a}, {b}, {c});", 7)
            self._free.append(c)
            self.put(weight + 1, b)

    def end(self) -> str:
        """The variable that has the highest bit of the sum."""
        for weight, here in enumerate(self._waiting[:-1]):
            if len(here) == 2:
                a, b = here
                here.clear()
                self._say(f"{a} &= {b};", 1)
                self._free.append(b)
                self.put(weight + 1, a)
        (top,) = self._waiting[-1]
        return top

    def _say(self, line: str, operations: int) -> None:
        self.lines += [line, f"ww_hide({line.split()[0].removeprefix('ww_add3(').rstrip(',')});"]
        self.operations += operations


@dataclass(frozen=True)
class HiddenLayer:
    """A hidden layer of all networks. bits: of a count."""

    index: int
    layers: tuple[BinaryLayer, ...]
    fan_ins: tuple[int, ...]
    chunks: tuple[Chunk, ...]
    bits: int

    @classmethod
    def of(cls, model: BinaryBank, index: int) -> HiddenLayer:
        fan_ins = tuple(one.input_bits if index == 0 else one.hidden[index - 1] for one in model.networks)
        chunks = _chunks(max(fan_ins), INPUT_BITS if index == 0 else LANES)
        layers = tuple(one.layers[index] for one in model.networks)
        return cls(index, layers, fan_ins, tuple(chunks), max(fan_ins).bit_length() + 1)

    @property
    def groups(self) -> int:
        """Words of neurons."""
        return -(-len(self.layers[0].weights) // LANES)

    @property
    def words(self) -> int:
        """Of all networks' tables."""
        return len(self.layers) * self.groups * self._row

    @property
    def _row(self) -> int:
        """Words of all that is known of a group of neurons."""
        return self.bits + len(self.chunks) * ROWS * 2

    def table(self) -> list[str]:
        name = f"ww_bank_{self.index}[{len(self.layers) * self.groups}][{self._row}]"
        lines = [
            f"/* Layer {self.index}: for each network and {LANES} of its neurons {self.bits} words that",
            f" * counts start with, then for each {CHUNK_BITS} input bits {ROWS} rows of how many agree. */",
            f'static const volatile __u64 {name} SEC(".rodata.ww_rows") = {{',
        ]
        for layer, fan_in in zip(self.layers, self.fan_ins, strict=True):
            for group in range(self.groups):
                words = ", ".join(map(word, self._words(layer, fan_in, group)))
                lines.append(f"\t{{{words}}},")
        return [*lines, "};", ""]

    def _words(self, layer: BinaryLayer, fan_in: int, group: int) -> Iterator[int]:
        neurons = range(group * LANES, min(len(layer.weights), (group + 1) * LANES))
        half = 1 << self.bits - 1
        starts = [half - min(max(layer.threshold[neuron], 0), fan_in + 1) for neuron in neurons]
        for bit in range(self.bits):
            yield sum((start >> bit & 1) << lane for lane, start in enumerate(starts))
        for chunk in self.chunks:
            count = min(chunk.count, max(0, fan_in - chunk.first))
            ones = (1 << count) - 1
            weights = [layer.weights[neuron] >> chunk.first & ones for neuron in neurons]
            for value in range(ROWS):
                agree = [(~(value ^ own) & ones).bit_count() for own in weights]
                yield sum((both & 1) << lane for lane, both in enumerate(agree))
                yield sum((both >> 1) << lane for lane, both in enumerate(agree))

    def _code(self) -> tuple[list[str], Adder]:
        adder = Adder(self.bits)
        lines: list[str] = []

        def take(weight: int, place: str) -> None:
            name = adder.name()
            lines.append(f"{name} = {place};")
            adder.put(weight, name)
            lines.extend(adder.lines)
            adder.lines.clear()

        for bit in range(self.bits):
            take(bit, f"base[{bit}]")
        at = self.bits
        for word_index, chunks in groupby(self.chunks, key=lambda chunk: chunk.word):
            lines.append(f"x = {activation(self.index, word_index)};")
            for chunk in chunks:
                # A row has 16 bytes.
                shift = chunk.shift - 4
                moved = f"x >> {shift}" if shift >= 0 else f"x << {-shift}"
                lines += [f"row = ({moved}) & {(ROWS - 1) << 4};", "ww_hide(row);"]
                place = f"ww_at(base, row, {at})"
                take(0, place)
                if chunk.count > 1:
                    take(1, place.replace(f"{at})", f"{at + 1})"))
                at += 2 * ROWS
        top = adder.end()
        lines += [*adder.lines, f"{activation(self.index + 1, 'word')} = {top};"]
        return lines, adder

    @property
    def instructions(self) -> int:
        lines, adder = self._code()
        return adder.operations + len(lines) + 5 * len(self.chunks)

    def function(self) -> list[str]:
        lines, adder = self._code()
        return [
            f"/* {LANES} neurons of layer {self.index} of a network. */",
            f"__noinline int ww_bank_layer_{self.index}(struct ww_scratch *s, __u32 network, __u32 group)",
            "{",
            "\tconst volatile __u64 *base;",
            f"\t__u64 at, word = group, x, row, {', '.join(adder.names)};",
            "",
            "\tww_hide(word);",
            f"\tat = (__u64)network * {self.groups} + word;",
            "\tww_hide(at);",
            f"\tif (!s || word >= {self.groups} || at >= {len(self.layers) * self.groups})",
            "\t\treturn 0;",
            f"\tbase = ww_bank_{self.index}[at];",
            *(f"\t{line}" for line in lines),
            "\treturn 0;",
            "}",
        ]


@dataclass(frozen=True)
class LastLayer:
    """What each network's second output is ahead of its first. Inputs that both weigh alike do not matter; of
    the others those that agree with the second count 1, the rest -1.
    """

    networks: tuple[BinaryMlp, ...]

    @property
    def _words(self) -> int:
        return -(-len(self.networks[0].layers[-2].weights) // LANES)

    @property
    def instructions(self) -> int:
        return 24 * self._words + 20

    def table(self) -> list[str]:
        lines = [
            "/* The scores: for each network what it begins with, and for each word of inputs the weights of",
            " * the second output, and where they differ from those of the first. */",
            f"static const volatile __u64 ww_bank_last[{len(self.networks)}][{1 + 2 * self._words}] "
            'SEC(".rodata.ww_rows") = {',
        ]
        for one in self.networks:
            (first, second), bias = one.layers[-1].weights, one.layers[-1].bias
            differ = first ^ second
            words = [bias[1] - bias[0] - differ.bit_count()]
            for index in range(self._words):
                ones = (1 << LANES) - 1
                words += [second >> LANES * index & ones, differ >> LANES * index & ones]
            lines.append("\t{" + ", ".join(map(word, words)) + "},")
        return [*lines, "};", ""]

    def function(self) -> list[str]:
        at = len(self.networks[0].layers) - 1
        lines = []
        for index in range(self._words):
            weights, differ = f"base[{1 + 2 * index}]", f"base[{2 + 2 * index}]"
            lines.append(f"\tx = ~({activation(at, index)} ^ {weights}) & {differ};")
            lines.append("\tscore += 2 * ww_bits(x);")
        return [
            "/* A network's score. Returns 1 if it says yes. */",
            "__noinline __u64 ww_bank_score(struct ww_scratch *s, __u32 network)",
            "{",
            "\tconst volatile __u64 *base;",
            "\t__u64 x;",
            "\t__s64 score;",
            "",
            f"\tif (!s || network >= {len(self.networks)})",
            "\t\treturn 0;",
            "\tbase = ww_bank_last[network];",
            "\tscore = base[0];",
            *lines,
            "\ts->score[network] = score;",
            "\treturn (__u64)-score >> 63;",
            "}",
        ]
