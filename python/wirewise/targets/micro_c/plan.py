# SPDX-License-Identifier: Apache-2.0
"""How a binary network lies in an NFP's memories, and which of the two modes it gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from wirewise.errors import InputError
from wirewise.models import BinaryMlp
from wirewise.models.binary_mlp import StepsInput
from wirewise.targets.micro_c.options import Options, flag
from wirewise.targets.sizes import way_out

WORD = 32
BLOCK = 8
"""Words that the atomic engine of a memory moves at once."""
LMEM_WORDS = 128
"""Local memory of a thread: that of an ME, shared by 8."""
BEST_WORDS = 3
FLOW_WORDS = 3
FRAME_AT = 72
"""Where a frame begins in its buffer: the NBI's offset, and what the MAC puts in front."""
ETHERNET = 14
IPV4_AND_PORTS = 24
DEFAULT_EXECUTORS = 32


def words(bits: int) -> int:
    """Words that hold so many bits."""
    return -(-bits // WORD)


@dataclass(frozen=True)
class LayerPlan:
    """A layer. room: words of its input in a thread's local memory. at: where those lie among the words that
    the chain exchanges.
    """

    index: int
    inputs: int
    neurons: int
    last: bool
    room: int
    at: int

    @property
    def stride(self) -> int:
        """Words of a row: threshold or bias, then weights."""
        return 1 + words(self.inputs)


@dataclass(frozen=True)
class Plan:
    """A network's layout. table_bytes: weights, thresholds, thermometer steps. lmem: words of a thread's
    local memory. header_bytes, result_bytes: of the packet, behind Ethernet.
    """

    chained: bool
    layers: tuple[LayerPlan, ...]
    table_bytes: int
    lmem: int
    header_bytes: int
    result_bytes: int

    @property
    def shared_words(self) -> int:
        last = self.layers[-1]
        return last.at + last.room


def table_bytes(widths: Sequence[int], steps: int) -> int:
    """Of a network of these sizes (input bits, hidden layers, classes) with so many thermometer steps."""
    rows = sum(neurons * (1 + words(inputs)) for inputs, neurons in pairwise(widths))
    return 4 * rows + 8 * min(steps, widths[0])


def plan_network(model: BinaryMlp, features: Sequence[int], options: Options) -> Plan:
    """The layout. Raises InputError where a memory is too small, with the size that would fit."""
    widths = [model.input_bits, *(len(layer.weights) for layer in model.layers)]
    steps = sum(source.width for source in model.inputs if isinstance(source, StepsInput))
    needed = table_bytes(widths, steps if options.input != "bits" else 0)
    chained = options.mode == "model" or (options.mode == "auto" and needed > options.cls_bytes)
    memory, there = ("emem_bytes", options.emem_bytes) if chained else ("cls_bytes", options.cls_bytes)
    if needed > there:
        fitting = way_out(widths, lambda sizes: table_bytes(sizes, steps) <= there)
        larger = f"give a larger {flag(memory)}" + ("" if chained else ", or use --mode model")
        raise InputError(
            "model",
            f"needs {needed:,} bytes of weights and steps, the limit is {there:,}",
            f"{fitting}, or {larger}",
        )
    layers, at = [], 0
    for index, (inputs, neurons) in enumerate(pairwise(widths)):
        room = words(inputs)
        if chained:
            room = -(-room // BLOCK) * BLOCK
        layers.append(LayerPlan(index, inputs, neurons, index == len(widths) - 2, room, at))
        at += room
    return Plan(
        chained, tuple(layers), needed, _lmem(layers, options, widths[-1]), *_packet(model, features, options)
    )


def _lmem(layers: Sequence[LayerPlan], options: Options, classes: int) -> int:
    fixed = sum(layer.room for layer in layers) + BEST_WORDS
    fixed += FLOW_WORDS if options.input == "memory" else 0
    needed = fixed + (2 * classes if options.scores == "yes" else 0)
    if needed > LMEM_WORDS:
        raise InputError(
            "--scores",
            f"needs {needed} words of a thread's local memory, the limit is {LMEM_WORDS}",
            f"leave it out, or train on at most {(LMEM_WORDS - fixed) // 2} classes",
        )
    return needed


def _packet(model: BinaryMlp, features: Sequence[int], options: Options) -> tuple[int, int]:
    """Bytes of the header that is read, and of that which is written. Both must lie in the CTM."""
    header = IPV4_AND_PORTS
    if options.input == "packet":
        header = 8 * len(features)
    elif options.input == "bits":
        header = -(-model.input_bits // 8)
    result = 0
    if options.result == "field" and options.input != "memory":
        result = 1 + (8 * model.n_classes if options.scores == "yes" else 0)
    needed = FRAME_AT + ETHERNET + header + result
    if needed > options.ctm_bytes:
        room = options.ctm_bytes - FRAME_AT - ETHERNET - result
        fitting = f"at most {max(room, 0) // 8} features"
        if options.input == "bits":
            fitting = f"at most {8 * max(room, 0)} input bits"
        raise InputError(
            "model",
            f"needs {needed:,} bytes of a packet's buffer in CTM, the limit is {options.ctm_bytes:,}",
            f"train a network of {fitting}, give a larger --ctm-bytes, or use --input memory",
        )
    return header, result
