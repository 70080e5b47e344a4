# SPDX-License-Identifier: Apache-2.0
"""The inputs of a bank's networks, as words of bits (`bank_code`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from wirewise.feature_sets.feature_set import Feature
from wirewise.models.binary_mlp import BinaryInput, BitsInput, StepsInput
from wirewise.targets.comments import comment
from wirewise.targets.ebpf.bank_layers import INPUT_BITS, activation
from wirewise.targets.ebpf.network_code import Range, feature_range, number, word

SMALL = 256  # values of a feature whose steps are looked up


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
                f"\t{activation(0, index)} = word;",
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
            lines.append(f"\t{activation(0, index)} = word;")
        return [*lines, "\treturn 0;", "}"]


def _parts(source: BinaryInput, feature: Feature, bounds: Range) -> Iterator[tuple[int, int, str, int]]:
    """Bits of an input: the first, how many, what leaves them in `v` or "", and those that are fixed."""
    low, high = bounds
    x = f"__s64 x = ww_feature(s, {source.feature}); /* {comment(feature.label)} */"
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
        # One after the other: of 64 differences at once the compiler would keep most on the stack.
        steps = "".join(f" v += (__u64)({number(t)} - x) >> 63; ww_hide(v); ww_hide(x);" for t in compared)
        yield (
            first,
            len(thresholds),
            f"{x} __u64 v = 0;{steps} v = (1ULL << (v + {always})) - 1; ww_hide(v);",
            0,
        )
