# SPDX-License-Identifier: Apache-2.0
"""Binary networks as P4 (siracusano-n3ic, section 4.2).

XNOR, popcount as a tree of shifts and masks (Algorithm 2), sign by comparison, and the signs folded into the
next layer's input (Algorithm 1, Figure 9).
"""

from __future__ import annotations

from wirewise.models import BinaryLayer, BinaryMlp, BitsInput, StepsInput
from wirewise.models.binary_mlp import BinaryInput
from wirewise.targets.p4.network_plan import BIAS_BITS, SCORE_BITS, LayerPlan, NetworkPlan
from wirewise.targets.p4.program import SIGN, Program, lit, mask

BLOCK_BITS = 32
"""Of a weight register: simple_switch takes values of up to 64 bits, signed, at run time."""
MAX_SHIFT = 256
"""That p4c takes for bmv2."""
SCORE_ZERO = 1 << BIAS_BITS - 1
"""What a score of 0 is as an unsigned word."""


def encode(program: Program, model: BinaryMlp, words: dict[int, str]) -> None:
    """Sets the first layer's input to the input bits that the model makes of its features."""
    program.stage("input bits")
    fields = []
    for index, source in enumerate(model.inputs):
        field = program.meta(source.width, f"in{index}")
        program.do(f"{field} = {_bits(program, source, words[source.feature])};")
        fields.append(field)
    program.do(f"{program.meta(model.input_bits, 'x0')} = {' ++ '.join(reversed(fields))};")


def take_bits(program: Program, model: BinaryMlp) -> None:
    """The same from a header that has the bits, the first of them in the header's last bit."""
    if padding := -model.input_bits % 8:
        program.features_header.append((padding, "padding"))
    program.features_header.append((model.input_bits, "bits"))
    program.do(f"{program.meta(model.input_bits, 'x0')} = hdr.features.bits;")


def _bits(program: Program, source: BinaryInput, word: str) -> str:
    """The bits of one feature. word : of the feature, its sign bit turned over."""
    if isinstance(source, StepsInput):
        steps = [program.at_least(64, word, threshold + 1 + SIGN) for threshold in source.thresholds]
        return " ++ ".join(f"({step})" for step in reversed(steps))
    assert isinstance(source, BitsInput)
    end, positive = source.shift + source.bits, f"{word}[63:63]"
    value = f"{word}[{end - 1}:{source.shift}]"
    if end < 63:
        above = program.at_least(63 - end, f"{word}[62:{end}]", 1)
        value = f"({value} | {mask(source.bits, f'({above})')})"
    return f"{value} & {mask(source.bits, positive)}"


def infer(program: Program, model: BinaryMlp, plan: NetworkPlan) -> list[str]:
    """The layers. The scores, as unsigned words of SCORE_BITS whose zero is SCORE_ZERO."""
    out: list[str] = []
    for index, (layer, size) in enumerate(zip(model.layers, plan.layers, strict=True)):
        out = _Layer(program, index, layer, size).print()
    return out


class _Layer:
    """A layer. Neurons of a group have a field each; groups use the same fields, one after another."""

    def __init__(self, program: Program, index: int, layer: BinaryLayer, plan: LayerPlan) -> None:
        self.program, self.index, self.layer, self.plan = program, index, layer, plan
        self.weights_in = program.options.weights_in
        name, bits = f"l{index}", plan.threshold_bits
        self.input = f"meta.x{index}"
        self.counts = [program.meta(plan.fan_in, f"{name}_n{slot}") for slot in range(plan.group)]
        self.thresholds: list[str] = []
        if self.weights_in != "constants":
            self.thresholds = [program.meta(bits, f"{name}_t{slot}") for slot in range(plan.group)]
        width = SCORE_BITS if plan.last else 1
        self.outputs = [program.meta(width, f"{name}_y{neuron}") for neuron in range(plan.neurons)]
        self.masks = [f"L{index}_MASK{level}" for level in range(plan.levels)]
        for level, mask_name in enumerate(self.masks):
            value = _every_other(plan.fan_in, 1 << level)
            program.constants.append(f"const bit<{plan.fan_in}> {mask_name} = {lit(plan.fan_in, value)};")
        if self.weights_in == "registers":
            self._declare_registers()

    def print(self) -> list[str]:
        program, plan = self.program, self.plan
        for neurons in plan.groups():
            which = f"neurons {neurons[0]} to {neurons[-1]}" if len(neurons) > 1 else f"neuron {neurons[0]}"
            program.stage(f"layer {self.index}, {which}: XNOR with the weights")
            {
                "tables": self._xnor_by_tables,
                "registers": self._xnor_by_registers,
                "constants": self._xnor_by_constants,
            }[self.weights_in](neurons)
            for level, name in enumerate(self.masks):
                program.stage(f"popcount, sums of {2 << level} bits")
                program.do(
                    *(
                        _add_halves(plan.fan_in, self.counts[slot], name, 1 << level)
                        for slot in range(len(neurons))
                    )
                )
            program.stage("scores" if plan.last else "signs")
            program.do(*(self._output(slot, neuron) for slot, neuron in enumerate(neurons)))
        if plan.last:
            return self.outputs
        program.stage("folded into the next layer's input")
        following = program.meta(plan.neurons, f"x{self.index + 1}")
        program.do(f"{following} = {' ++ '.join(reversed(self.outputs))};")
        return []

    def _stored(self, neuron: int) -> int:
        """The threshold, cut to where the neuron is always or never on; or the bias, from 0 on."""
        value = self.layer.threshold[neuron]
        return value + SCORE_ZERO if self.plan.last else min(max(value, 0), self.plan.fan_in + 1)

    def _output(self, slot: int, neuron: int) -> str:
        plan, bits = self.plan, self.plan.threshold_bits
        count = f"{self.counts[slot]}[{plan.count_bits - 1}:0]"
        stored = self.thresholds[slot] if self.thresholds else lit(bits, self._stored(neuron))
        if plan.last:
            return f"{self.outputs[neuron]} = (bit<{SCORE_BITS}>) {count} + (bit<{SCORE_BITS}>) {stored};"
        threshold = stored if self.thresholds else self._stored(neuron)
        sign = self.program.at_least(bits, f"((bit<{bits}>) {count})", threshold)
        return f"{self.outputs[neuron]} = {sign};"

    def _xnor(self, slot: int, weights: str) -> str:
        return f"{self.counts[slot]} = ~({self.input} ^ {weights});"

    # -- where the weights are

    def _xnor_by_constants(self, neurons: range) -> None:
        width = self.plan.fan_in
        self.program.do(
            *(self._xnor(slot, lit(width, self.layer.weights[n])) for slot, n in enumerate(neurons))
        )

    def _xnor_by_tables(self, neurons: range) -> None:
        """A table gives the weights and thresholds of some neurons. The key says of which model: another one
        is written beside, and all packets change over at once.
        """
        plan, program = self.plan, self.program
        for start in range(0, len(neurons), plan.per_table):
            slots = range(start, min(start + plan.per_table, len(neurons)))
            first = neurons[start]
            table, action = f"weights_l{self.index}_n{first}", f"load_l{self.index}_n{first}"
            parameters, body, data = [], [], []
            for slot in slots:
                parameters += [(plan.fan_in, f"w{slot}"), (plan.threshold_bits, f"t{slot}")]
                body += [self._xnor(slot, f"w{slot}"), f"{self.thresholds[slot]} = t{slot};"]
                data += [self.layer.weights[neurons[slot]], self._stored(neurons[slot])]
            program.action(action, parameters, body)
            program.table(table, [("meta.model", "exact")], [action], 64)
            program.entries.add(table, action, (program.options.number,), *data)
            program.do(f"{table}.apply();")

    @property
    def _blocks(self) -> int:
        return -(-self.plan.fan_in // BLOCK_BITS)

    def _declare_registers(self) -> None:
        """Two banks of each: one is read while the other is written."""
        name, plan, program = f"l{self.index}", self.plan, self.program
        self.blocks = [program.meta(BLOCK_BITS, f"{name}_b{block}") for block in range(self._blocks)]
        self.banks = [(plan.neurons * self._blocks - 1).bit_length(), (plan.neurons - 1).bit_length()]
        sizes = [2 << bits for bits in self.banks]
        program.declarations += [
            f"register<bit<{BLOCK_BITS}>>({sizes[0]}) weights_{name};",
            f"register<bit<{plan.threshold_bits}>>({sizes[1]}) thresholds_{name};",
        ]
        first = [program.options.number << bits for bits in self.banks]
        for neuron, weights in enumerate(self.layer.weights):
            for block in range(self._blocks):
                value = weights >> BLOCK_BITS * block & (1 << BLOCK_BITS) - 1
                program.entries.registers.append(
                    (f"weights_{name}", first[0] + neuron * self._blocks + block, value)
                )
            program.entries.registers.append((f"thresholds_{name}", first[1] + neuron, self._stored(neuron)))

    def _xnor_by_registers(self, neurons: range) -> None:
        """Blocks of weights, as in Algorithm 1: a register's elements are narrow."""
        name, plan, program = f"l{self.index}", self.plan, self.program
        highest = plan.fan_in - BLOCK_BITS * (self._blocks - 1)
        parts = [f"{self.blocks[-1]}[{highest - 1}:0]", *reversed(self.blocks[:-1])]
        for slot, neuron in enumerate(neurons):
            for block, field in enumerate(self.blocks):
                index = _banked(self.banks[0], neuron * self._blocks + block)
                program.do(f"weights_{name}.read({field}, {index});")
            index = _banked(self.banks[1], neuron)
            program.do(
                self._xnor(slot, f"({' ++ '.join(parts)})"),
                f"thresholds_{name}.read({self.thresholds[slot]}, {index});",
            )


def _banked(bits: int, index: int) -> str:
    """An element of a register with two banks of 2^bits elements; model 2 is in the second."""
    return f"((bit<32>) meta.model[1:1] << {bits}) + 32w{index}"


def _every_other(width: int, run: int) -> int:
    """Runs of ones and zeros in turn, from the lowest bit: the masks of Algorithm 2."""
    ones = (1 << run) - 1
    return sum(ones << at for at in range(0, width, 2 * run)) & (1 << width) - 1


def _add_halves(width: int, field: str, mask_name: str, run: int) -> str:
    """A level of the tree: each run of bits plus the run above it."""
    above = f"(({field} >> {run}) & {mask_name})"
    if run > MAX_SHIFT:  # then there are but two runs
        above = f"((bit<{width}>) {field}[{width - 1}:{run}])"
    return f"{field} = ({field} & {mask_name}) + {above};"
