# SPDX-License-Identifier: Apache-2.0
"""Lowers a BinaryBank: code for one network, which runs with the tables of each.

64 neurons are counted at a time, a bit of a word for each: numbers lie across words, of which the first has
the lowest bit of each neuron's count, the next the second, and so on. Three input bits choose a row of a
table, two words that say how many of the three agree with each neuron's weights. The rows are added up by
carry-save adders, which make of three words of a weight one of it and one of twice that. A count starts with
half its range less the neuron's threshold, so that its highest bit ends up as the neuron's output.

Straight code for 17 networks would be several times the processor's first cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from wirewise.errors import InputError
from wirewise.feature_sets.feature_set import Feature
from wirewise.models.binary_bank import BinaryBank
from wirewise.models.binary_mlp import BinaryInput, BinaryLayer, BinaryMlp, BitsInput, StepsInput
from wirewise.targets.ebpf import shapes
from wirewise.targets.ebpf.network_code import Range, feature_range, number, word
from wirewise.targets.ebpf.shapes import Lowered, Plan, begin_header

CHUNK_BITS = 3  # of an input: so many agreements make two bits, and 2^3 rows of them are not too many
ROWS = 1 << CHUNK_BITS
TABLES_LIMIT = 3 << 20  # bytes; the agent allows 4 MiB, and there are tables of inputs and scores too
SMALL = 256  # values of a feature whose steps are looked up
LANES = 64  # neurons of a word
INPUT_BITS = LANES // CHUNK_BITS * CHUNK_BITS  # of a word of the input: so that no chunk lies in two
WHY = "a bank is always functions, one a layer, which run for each network"


def lower(
    model: BinaryBank, shape: str, constants: Mapping[int, int], features: Sequence[Feature]
) -> Lowered:
    """See `families.Lower`."""
    shapes.check_shape(shape)
    if shape not in ("auto", "functions"):
        raise InputError(f"shape {shape!r}", f"is none for this model: {WHY}", "leave it to auto")
    encodings: list[Encoding] | list[LookedUp]
    if looked_up := LookedUp.of(model.encodings, constants, features):
        encodings = [looked_up]
    else:
        encodings = [Encoding(n, inputs, constants, features) for n, inputs in enumerate(model.encodings)]
    layers = [HiddenLayer.of(model, index) for index in range(len(model.networks[0].hidden))]
    last = LastLayer(model.networks)
    functions = [*encodings, *layers, last]
    size = 8 * sum(layer.words for layer in layers)
    if size > TABLES_LIMIT:
        raise InputError(
            f"model: the tables of its {len(model.networks)} networks take {size / (1 << 20):.1f} MiB; a "
            f"program may have {TABLES_LIMIT >> 20}: train fewer networks, or narrower ones"
        )
    instructions = sum(part.instructions for part in functions) + 20 * len(model.networks)
    plan = Plan(
        "functions",
        f"about {instructions} instructions: {WHY}",
        (tuple((n,) for n in range(len(functions))),),
        instructions + shapes.INSTRUCTIONS_OF_THE_REST,
        instructions + shapes.verified_of_the_rest(len(model.used_features)),
    )

    def header(banner: str) -> str:
        lines = [
            *begin_header(banner, plan),
            f"#define WW_BANK {len(model.networks)}",
            "",
            '#include "wirewise/network.h"',
            "",
        ]
        for part in functions:
            lines += [*part.table(), *part.function(), ""]
        return "\n".join([*lines, *_network(layers), *_bank(model, looked_up is not None), "#endif", ""])

    return Lowered(plan, header)


# -- input


@dataclass(frozen=True)
class LookedUp:
    """Several encodings, all of steps of small values: how many steps a value is above stands in a table,
    with a byte for each encoding. Comparisons would be straight code for each, which comes from no cache near
    to the processor when it is run once a round. encodings: steps by feature.
    """

    encodings: tuple[dict[int, tuple[int, ...]], ...]
    n_features: int

    @classmethod
    def of(
        cls,
        encodings: Sequence[tuple[BinaryInput, ...]],
        constants: Mapping[int, int],
        features: Sequence[Feature],
    ) -> LookedUp | None:
        """None where they are others, or where there is one."""
        found = []
        for inputs in encodings:
            steps = {
                source.feature: source.thresholds
                for source in inputs
                if isinstance(source, StepsInput) and source.width <= INPUT_BITS
            }
            if len(steps) < len(inputs):
                return None
            ranges = (feature_range(index, features[index], constants) for index in steps)
            if any(low < 0 or high >= SMALL for low, high in ranges):
                return None
            found.append(steps)
        return cls(tuple(found), len(features)) if len(found) > 1 else None

    @cached_property
    def _entries(self) -> list[list[list[int]]]:
        """By encoding and word: features whose bits are in it, with how many of the lower ones are not, and
        where the others begin.
        """
        words = max(-(-sum(map(len, steps.values())) // INPUT_BITS) for steps in self.encodings)
        found = []
        for steps in self.encodings:
            entries: list[list[int]] = [[] for _ in range(words)]
            at = 0
            for feature, thresholds in steps.items():
                index, shift = divmod(at, INPUT_BITS)
                entries[index].append(feature | shift << 16)
                if shift + len(thresholds) > INPUT_BITS:
                    entries[index + 1].append(feature | INPUT_BITS - shift << 8)
                at += len(thresholds)
            found.append(entries)
        return found

    @property
    def _size(self) -> int:
        """Entries of a word."""
        return max(len(entries) for words in self._entries for entries in words)

    @property
    def _features(self) -> int:
        """As many as masks need, like the stride: a power of two."""
        return 1 << (self.n_features - 1).bit_length()

    @property
    def _bytes(self) -> int:
        """Of the table of steps."""
        return self._features * SMALL * self._stride

    @property
    def _stride(self) -> int:
        return 1 << (len(self.encodings) - 1).bit_length()

    @property
    def instructions(self) -> int:
        return 40 * len(self._entries[0])

    def table(self) -> list[str]:
        lines = [
            "/* For each value of a feature, how many steps of each encoding it is above. */",
            f'static const volatile __u8 ww_bank_steps[{self._bytes}] SEC(".rodata.ww_rows") = {{',
        ]
        for feature in range(self._features):
            for value in range(SMALL):
                above = [sum(value > t for t in steps.get(feature, ())) for steps in self.encodings]
                above += [0] * (self._stride - len(above))
                lines.append("\t" + ", ".join(map(str, above)) + ",")
        nothing = INPUT_BITS << 8
        lines += [
            "};",
            "",
            "/* By encoding and word of inputs: a feature, how many of its bits are in the word before << 8",
            " * and where the others begin << 16. */",
            f"static const volatile __u32 ww_bank_inputs[{len(self.encodings)}]"
            f'[{len(self._entries[0])}][{self._size}] SEC(".rodata.ww_rows") = {{',
        ]
        for words in self._entries:
            rest = ([*entries, *[nothing] * (self._size - len(entries))] for entries in words)
            lines.append("\t{" + ", ".join("{" + ", ".join(map(hex, one)) + "}" for one in rest) + "},")
        return [*lines, "};", ""]

    def function(self) -> list[str]:
        words = len(self._entries[0])
        lines = [
            "/* The features as bits. */",
            "__noinline int ww_bank_encode(struct ww_scratch *s, __u32 encoding)",
            "{",
            "\tconst volatile __u32 *inputs;",
            "\t__u64 at = encoding, word;",
            "\t__u32 i;",
            "",
            "\tww_hide(at);",
            f"\tif (!s || at >= {len(self.encodings)})",
            "\t\treturn 0;",
        ]
        for index in range(words):
            lines += [
                f"\tinputs = ww_bank_inputs[at][{index}];",
                "\tword = 0;",
                f"\tfor (i = 0; i < {self._size}; i++)",
                "\t\tword |= ww_bank_input(s, inputs[i], at);",
                f"\t{_place(0, index)} = word;",
            ]
        one = [
            "/* Bits of a feature where they are in a word. */",
            "static __always_inline __u64 ww_bank_input(struct ww_scratch *s, __u64 input, __u64 encoding)",
            "{",
            f"\t__u64 feature = input & {self._features - 1}, at, above;",
            "",
            "\tww_hide(feature);",
            f"\tat = feature * {SMALL} + (ww_feature(s, feature) & {SMALL - 1});",
            f"\tat = at * {self._stride} + encoding;",
            "\tww_hide(at); /* the verifier may not know the bounds of a sum, but it knows a mask's */",
            f"\tabove = ww_bank_steps[at & {self._bytes - 1:#x}];",
            "\treturn ((1ULL << (above & 63)) - 1) >> (input >> 8 & 63) << (input >> 16 & 63);",
            "}",
            "",
        ]
        return [*one, *lines, "\treturn 0;", "}"]


class Encoding:
    """An encoding of the features as words of INPUT_BITS bits, lowest first, in the first activations."""

    def __init__(
        self,
        index: int,
        inputs: tuple[BinaryInput, ...],
        constants: Mapping[int, int],
        features: Sequence[Feature],
    ) -> None:
        self.index = index
        self._words: list[tuple[int, list[str]]] = []
        at = 0
        for source in inputs:
            bounds = feature_range(source.feature, features[source.feature], constants)
            for first, count, code, fixed in _parts(source, features[source.feature], bounds):
                self._place(at + first, count, code, fixed)
            at += source.width
        self.instructions = sum(2 * line.count(";") for _, lines in self._words for line in lines)

    def _place(self, at: int, count: int, code: str, fixed: int) -> None:
        """Puts a value of some bits where it belongs. code: what leaves it in v; "": it is fixed."""
        while count:
            index, shift = divmod(at, INPUT_BITS)
            while len(self._words) <= index:
                self._words.append((0, []))
            taken = min(count, INPUT_BITS - shift)
            mask = (1 << taken) - 1
            start, lines = self._words[index]
            self._words[index] = (start | (fixed & mask) << shift, lines)
            if code:
                value = f"v & {mask:#x}ULL" if taken < count else "v"
                lines.append(f"{{ {code} word |= ({value}) << {shift}; }}")
                code = f"{code} v >>= {taken};"
            at, count, fixed = at + taken, count - taken, fixed >> taken

    def table(self) -> list[str]:
        return []

    def function(self) -> list[str]:
        lines = [
            "/* The features as bits. */",
            f"__noinline int ww_bank_encode_{self.index}(struct ww_scratch *s)",
            "{",
            "\t__u64 word;",
            "",
            "\tif (!s)",
            "\t\treturn 0;",
        ]
        for index, (start, parts) in enumerate(self._words):
            lines += [f"\tword = {word(start)};", *(f"\t{part}" for part in parts)]
            lines.append(f"\t{_place(0, index)} = word;")
        return [*lines, "\treturn 0;", "}"]


def _parts(source: BinaryInput, feature: Feature, bounds: Range) -> Iterator[tuple[int, int, str, int]]:
    """Bits of an input: the first, how many, what leaves them in `v` or "", and those that are fixed."""
    low, high = bounds
    x = f"__s64 x = ww_feature(s, {source.feature}); /* {feature.label} */"
    if isinstance(source, BitsInput):
        least, greatest = (sum(bit << n for n, bit in enumerate(source.encode(end))) for end in bounds)
        if least == greatest:
            yield 0, source.bits, "", least
            return
        most = (1 << source.shift + source.bits) - 1
        clamp = " x = ww_relu(x);" if low < 0 else ""
        clamp += f" x = ww_at_most(x, {number(most)});" if high > most else ""
        yield 0, source.bits, f"{x}{clamp} __u64 v = (__u64)x >> {source.shift};", 0
        return
    # As thresholds ascend, how many are exceeded says which.
    for first in range(0, source.width, INPUT_BITS):
        thresholds = source.thresholds[first : first + INPUT_BITS]
        always = sum(low > t for t in thresholds)
        compared = [t for t in thresholds if low <= t < high]
        if not compared:
            yield first, len(thresholds), "", (1 << always) - 1
            continue
        steps = "".join(f" v += (__u64)({number(t)} - x) >> 63; ww_hide(v);" for t in compared)
        yield (
            first,
            len(thresholds),
            f"{x} __u64 v = 0;{steps} v = (1ULL << (v + {always})) - 1; ww_hide(v);",
            0,
        )


# -- layers


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


def _place(layer: int, word: int | str) -> str:
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
            lines.append(f"x = {_place(self.index, word_index)};")
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
        lines += [*adder.lines, f"{_place(self.index + 1, 'word')} = {top};"]
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
            lines.append(f"\tx = ~({_place(at, index)} ^ {weights}) & {differ};")
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


def _network(layers: Sequence[HiddenLayer]) -> list[str]:
    calls = [
        f"\tww_bank_layer_{layer.index}(s, network, {group});"
        for layer in layers
        for group in range(layer.groups)
    ]
    return [
        "static __always_inline __u64 ww_bank_network(struct ww_scratch *s, __u32 network)",
        "{",
        *calls,
        "\treturn ww_bank_score(s, network) << network;",
        "}",
        "",
    ]


def _bank(model: BinaryBank, looked_up: bool) -> list[str]:
    places = [model.encodings.index(one.inputs) for one in model.networks]
    runs = [list(run) for _, run in groupby(range(len(places)), key=lambda n: places[n])]
    lines = []
    for run in runs:
        first = places[run[0]]
        lines += [
            f"\tww_bank_encode(s, {first});" if looked_up else f"\tww_bank_encode_{first}(s);",
            f"\tfor (network = {run[0]}; network <= {run[-1]}; network++)",
            "\t\tanswers |= ww_bank_network(s, network);",
            "\tww_hide(answers);",
        ]
    return [
        "/* All networks. Leaves a bit for each, 1: yes. */",
        "__noinline int ww_bank(struct ww_scratch *s)",
        "{",
        "\t__u64 answers = 0;",
        "\t__u32 network;",
        "",
        "\tif (!s)",
        "\t\treturn 0;",
        *lines,
        "\ts->answers = answers;",
        "\treturn 0;",
        "}",
        "",
        "static __always_inline __u32 ww_infer(struct ww_scratch *s)",
        "{",
        "\tww_bank(s);",
        "\treturn s->answers != 0;",
        "}",
        "",
    ]
