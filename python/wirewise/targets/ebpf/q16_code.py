# SPDX-License-Identifier: Apache-2.0
"""Lowers a FixedPointMlp: 64-bit sums of products, weights as immediates.

Where most weights are not 0, two products take one multiplication (Winograd, "A new algorithm for inner
product", IEEE Transactions on Computers 17(7), 1968):

    z0 w0 + z1 w1 = (z0 + w1) (z1 + w0) - z0 z1 - w0 w1

The products of neighbouring activations are added up once for all neurons of a layer, those of weights are
constants. z0 and z1 are not copied for each neuron: what the one before added to them stays, and only the
difference is added. Sums are exact modulo 2^64, and the IR has proved that the true ones fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from wirewise.abi import MAX_WIDTH
from wirewise.feature_sets.feature_set import Feature
from wirewise.models.fixed_point_mlp import FRACTION_BITS, FixedPointLayer, FixedPointMlp
from wirewise.targets.comments import comment
from wirewise.targets.ebpf.network_code import Code, Piece, lowered, number, varying_inputs, word
from wirewise.targets.ebpf.shapes import Lowered

SUMS = 6  # of neurons at a time, each in a register
# From so many neurons and so large a share of weights that are not 0 on, pairs are faster.
PAIRED_NEURONS, PAIRED_SHARE = 8, 0.9
HALF = 1 << FRACTION_BITS - 1


def lower(
    model: FixedPointMlp, shape: str, constants: Mapping[int, int], features: Sequence[Feature]
) -> Lowered:
    """See `families.Lower`."""
    first = model.layers[0]
    columns = list(zip(*first.weights, strict=True))
    inputs, constant = varying_inputs(model.inputs, columns, constants, features, None)
    pieces = [
        Piece(
            f"feature {index}, {features[index].name}",
            (*one.lines, f"ww_activation(s, 0, {place}) = q;"),
            one.instructions + 1,
        )
        for place, (index, one) in enumerate(inputs.items())
    ]
    names = [features[index].name for index in inputs]
    for index, layer in enumerate(model.layers):
        weights, bias = layer.weights, layer.bias
        if not index:
            bias = tuple(
                start + sum(row[k] * value for k, value in constant.items())
                for row, start in zip(weights, bias, strict=True)
            )
            weights = tuple(tuple(row[k] for k in inputs) for row in weights)
        layer = replace(layer, weights=weights, bias=bias)
        paired = _pays(layer)
        if paired:
            pieces.append(_pairs(index, len(weights[0])))
        for start in range(0, len(weights), SUMS):
            block = range(start, min(start + SUMS, len(weights)))
            pieces.append(_block(index, layer, block, model, paired, names))
        names = [f"neuron {j}" for j in range(len(weights))]
    return lowered(Code(pieces, model.n_outputs, max(model.reach[-1])), len(model.used_features), shape)


def _pays(layer: FixedPointLayer) -> bool:
    fan_in = len(layer.weights[0])
    used = sum(1 for row in layer.weights for weight in row if weight)
    return (
        len(layer.weights) >= PAIRED_NEURONS
        and 2 <= fan_in < MAX_WIDTH  # the word behind the activations is needed
        and used >= PAIRED_SHARE * fan_in * len(layer.weights)
    )


def _pairs(index: int, fan_in: int) -> Piece:
    """Adds up z0 z1 + z2 z3 + ..., into the word behind the activations."""
    turn = index % 2
    lines = [
        "__u64 sum = 0;",
        *(
            f"sum += ww_activation(s, {turn}, {at}) * ww_activation(s, {turn}, {at + 1});"
            for at in range(0, fan_in - 1, 2)
        ),
        f"ww_activation(s, {turn}, {fan_in}) = sum;",
    ]
    return Piece(f"layer {index}, products of neighbouring inputs", tuple(lines), 2 * fan_in + 2)


def _block(
    index: int, layer: FixedPointLayer, block: range, model: FixedPointMlp, paired: bool, names: Sequence[str]
) -> Piece:
    """names: of the layer's inputs, for comments."""
    turn, last, fan_in = index % 2, index == len(model.layers) - 1, len(layer.weights[0])
    rows = [layer.weights[j] for j in block]
    starts = [layer.bias[j] + (0 if last else HALF) for j in block]
    lines, instructions = ["__u64 word __attribute__((unused));"], 2 * len(block)
    pairs = range(0, fan_in - 1, 2) if paired else range(0)
    if paired:
        lines += ["__u64 next;", f"word = ww_activation(s, {turn}, {fan_in});"]
        starts = [
            start - sum(row[at] * row[at + 1] for at in pairs)
            for start, row in zip(starts, rows, strict=True)
        ]
    minus = " - word" if paired else ""
    what = "score" if last else "neuron"
    lines += [
        f"__u64 sum{n} = {word(start)}{minus}; /* {what} {j} */"
        for n, (start, j) in enumerate(zip(starts, block, strict=True))
    ]
    for at in pairs:
        lines.append(f"word = ww_activation(s, {turn}, {at}); /* {comment(names[at])} */")
        lines.append(f"next = ww_activation(s, {turn}, {at + 1}); /* {comment(names[at + 1])} */")
        added = (0, 0)
        for n, row in enumerate(rows):
            first, second = row[at + 1], row[at]
            differences = f"{number(first - added[0])}, {number(second - added[1])}"
            lines.append(f"ww_add_pair(sum{n}, word, next, {differences});")
            added = (first, second)
        instructions += 2 + 5 * len(rows)
    for at in range(2 * len(pairs), fan_in):
        weighed = [(n, row[at]) for n, row in enumerate(rows) if row[at]]
        lines += [f"word = ww_activation(s, {turn}, {at}); /* {comment(names[at])} */"] if weighed else []
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
    return Piece(f"layer {index}, {what}s {block[0]} to {block[-1]}", tuple(lines), instructions)
