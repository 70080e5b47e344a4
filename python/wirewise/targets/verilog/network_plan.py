# SPDX-License-Identifier: Apache-2.0
"""How the layers of a binary network lie in memory, and the words that load one at run time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from wirewise.models import BinaryMlp
from wirewise.models.binary_mlp import BinaryLayer
from wirewise.targets.verilog.text import bits_for

WORD = 32
VALUE_WORD = 255
"""The word of a neuron at which its threshold or bias is loaded."""
BLOCK_ROWS = 16
"""From so many rows on, weights lie in block RAM; below, block RAM would be nearly empty."""


@dataclass(frozen=True)
class LayerPlan:
    """A layer. parallel: neurons of a row, a power of two. values: thresholds as the hardware has them, or
    biases, of value_bits each.
    """

    inputs: int
    neurons: int
    parallel: int
    last: bool
    weights: tuple[int, ...]
    values: tuple[int, ...]

    @property
    def rows(self) -> int:
        return -(-self.neurons // self.parallel)

    @property
    def words(self) -> int:
        return -(-self.inputs // WORD)

    @property
    def levels(self) -> int:
        """Levels of adders above the tables."""
        return bits_for(-(-self.inputs // 8))

    @property
    def value_bits(self) -> int:
        return WORD if self.last else self.levels + 4

    @property
    def block(self) -> bool:
        return self.rows >= BLOCK_ROWS

    @property
    def parameters(self) -> dict[str, object]:
        return {
            "INPUTS": self.inputs,
            "NEURONS": self.neurons,
            "PARALLEL": self.parallel,
            "PARALLEL_BITS": bits_for(self.parallel),
            "ROWS": self.rows,
            "ROW_BITS": max(1, bits_for(self.rows)),
            "WORDS": self.words,
            "LEVELS": self.levels,
            "BLOCK": int(self.block),
        }

    def lanes(self) -> list[int]:
        """Words of weights as the memories hold them: by neuron in the row, word, row."""
        filled = [*self.weights, *[0] * (self.rows * self.parallel - self.neurons)]
        return [
            filled[row * self.parallel + slot] >> WORD * word & (1 << WORD) - 1
            for slot in range(self.parallel)
            for word in range(self.words)
            for row in range(self.rows)
        ]

    def lane_values(self) -> list[int]:
        """Values as the memories hold them: by neuron in the row, row."""
        filled = [*self.values, *[0] * (self.rows * self.parallel - self.neurons)]
        return [
            filled[row * self.parallel + slot] for slot in range(self.parallel) for row in range(self.rows)
        ]


def plan_layers(model: BinaryMlp, parallel: int) -> list[LayerPlan]:
    """The layers. parallel: neurons a cycle, a power of two; a layer that has fewer takes one row."""
    plans, inputs = [], model.input_bits
    for index, layer in enumerate(model.layers, 1):
        neurons, last = len(layer.weights), index == len(model.layers)
        plans.append(
            LayerPlan(
                inputs,
                neurons,
                min(parallel, 1 << bits_for(neurons)),
                last,
                layer.weights,
                _values(layer, inputs, last),
            )
        )
        inputs = neurons
    return plans


def _values(layer: BinaryLayer, inputs: int, last: bool) -> tuple[int, ...]:
    """Biases; or thresholds within 0 to inputs + 1, which no agreement can tell from those beyond."""
    if last:
        return layer.bias
    return tuple(min(max(threshold, 0), inputs + 1) for threshold in layer.threshold)


def load_words(model: BinaryMlp) -> Iterator[int]:
    """The beats of the stream that loads a network, 64 bits each: address in the upper half, of which 8 bits
    layer, 16 neuron, 8 word; data in the lower half. They are the same for every `parallel`.
    """
    inputs = model.input_bits
    for number, layer in enumerate(model.layers):
        values = _values(layer, inputs, number == len(model.layers) - 1)
        for neuron, (weights, value) in enumerate(zip(layer.weights, values, strict=True)):
            address = number << 24 | neuron << 8
            for word in range(-(-inputs // WORD)):
                yield (address | word) << WORD | weights >> WORD * word & (1 << WORD) - 1
            yield (address | VALUE_WORD) << WORD | value & (1 << WORD) - 1
        inputs = len(layer.weights)
