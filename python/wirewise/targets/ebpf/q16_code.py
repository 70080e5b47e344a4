# SPDX-License-Identifier: Apache-2.0
"""Lowers a FixedPointMlp: a 64-bit multiplication and addition a weight, weights as immediates, a weight of 0
for nothing. The IR has proved that no sum overflows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wirewise.models.fixed_point_mlp import FRACTION_BITS, FixedPointLayer, FixedPointMlp
from wirewise.targets.ebpf.network_code import Code, Piece, Range, lowered, number, varying_inputs
from wirewise.targets.ebpf.shapes import Lowered

SUMS = 6  # of neurons at a time, each in a register
HALF = 1 << FRACTION_BITS - 1


def lower(model: FixedPointMlp, shape: str, constants: Mapping[int, int], ranges: Sequence[Range]) -> Lowered:
    """See `families.Lower`."""
    first = model.layers[0]
    columns = list(zip(*first.weights, strict=True))
    inputs, constant = varying_inputs(model.inputs, columns, constants, ranges, None)
    pieces = [
        Piece(f"feature {index}", (*one.lines, f"ww_activation(s, 0, {place}) = q;"), one.instructions + 1)
        for place, (index, one) in enumerate(inputs.items())
    ]
    for index, layer in enumerate(model.layers):
        weights, bias = layer.weights, layer.bias
        if not index:
            bias = tuple(
                start + sum(row[k] * value for k, value in constant.items())
                for row, start in zip(weights, bias, strict=True)
            )
            weights = tuple(tuple(row[k] for k in inputs) for row in weights)
        last = index == len(model.layers) - 1
        for start in range(0, len(weights), SUMS):
            block = range(start, min(start + SUMS, len(weights)))
            pieces.append(_block(index, FixedPointLayer(weights, bias, layer.ceiling), block, model, last))
    return lowered(Code(pieces, model.n_outputs, max(model.reach[-1])), len(model.used_features), shape)


def _block(index: int, layer: FixedPointLayer, block: range, model: FixedPointMlp, last: bool) -> Piece:
    turn, instructions = index % 2, 2 * len(block)
    lines = ["__u64 word __attribute__((unused));"]
    for n, j in enumerate(block):
        lines.append(f"__u64 sum{n} = {number(layer.bias[j] + (0 if last else HALF))};")
    for at in range(len(layer.weights[0])):
        weighed = [(n, layer.weights[j][at]) for n, j in enumerate(block) if layer.weights[j][at]]
        if not weighed:
            continue
        lines.append(f"word = ww_activation(s, {turn}, {at});")
        lines += [f"ww_add_product(sum{n}, word, {weight});" for n, weight in weighed]
        instructions += 1 + 3 * len(weighed)
    for n, j in enumerate(block):
        if last:
            lines.append(f"s->score[{j}] = sum{n};")
            instructions += 1
            continue
        result = f"ww_relu((__s64)sum{n} >> {FRACTION_BITS})"
        instructions += 6
        if layer.ceiling is not None and model.reach[index][j] + HALF >> FRACTION_BITS > layer.ceiling:
            result = f"ww_at_most({result}, {number(layer.ceiling)})"
            instructions += 5
        lines.append(f"ww_activation(s, {1 - turn}, {j}) = {result};")
    what = "scores" if last else "neurons"
    return Piece(f"layer {index}, {what} {block[0]} to {block[-1]}", tuple(lines), instructions)
