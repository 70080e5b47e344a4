# SPDX-License-Identifier: Apache-2.0
"""How a binary network is laid out in a pipeline, and how much of the pipeline that takes.

A stage is a step of the paper's Figure 9: copy of the input, XNOR, each level of the popcount's tree, sign,
folding. P4-NetFPGA does all of a layer in one (section 4.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from wirewise.targets.p4.limits import DoesNotFit, Limits
from wirewise.targets.p4.options import Options
from wirewise.targets.p4.program import CLASS_BITS, count_bits
from wirewise.targets.sizes import way_out

BIAS_BITS = 32
SCORE_BITS = 33  # count + bias, from 0: the bias is stored with its sign bit turned over


@dataclass(frozen=True)
class LayerPlan:
    """fan_in, neurons : the layer's size. group : neurons computed at once. per_table : neurons whose weights
    one look-up gives; 0 without tables.
    """

    fan_in: int
    neurons: int
    group: int
    per_table: int
    last: bool

    @property
    def count_bits(self) -> int:
        return count_bits(self.fan_in)

    @property
    def threshold_bits(self) -> int:
        """Of a threshold from 0 to fan_in + 1, or of a bias."""
        return BIAS_BITS if self.last else count_bits(self.fan_in + 1)

    @property
    def levels(self) -> int:
        """Of the popcount's tree."""
        return (self.fan_in - 1).bit_length()

    def groups(self) -> list[range]:
        starts = range(0, self.neurons, self.group)
        return [range(start, min(start + self.group, self.neurons)) for start in starts]


@dataclass(frozen=True)
class NetworkPlan:
    """phv_bits : of headers and metadata alive at once, at most. stages : in a row."""

    layers: tuple[LayerPlan, ...]
    phv_bits: int
    stages: int


def plan_network(
    widths: Sequence[int], options: Options, limits: Limits, *, header_bits: int, features: int
) -> NetworkPlan:
    """The layout of a network. Raises InputError, with the size that would fit.

    widths : input bits, hidden layers, classes. header_bits : as of `Program`. features : 64-bit words the
    input bits are made of, 0 if they come as bits.
    """

    def attempt(sizes: Sequence[int]) -> NetworkPlan:
        return _plan(sizes, options, limits, header_bits, features)

    def fits(sizes: Sequence[int]) -> bool:
        try:
            attempt(sizes)
        except DoesNotFit:
            return False
        return True

    try:
        return attempt(widths)
    except DoesNotFit as error:
        raise error.refused(way_out(widths, fits)) from None


def _plan(
    widths: Sequence[int], options: Options, limits: Limits, header_bits: int, features: int
) -> NetworkPlan:
    encoding = 64 * features + 2 * widths[0]
    alive = [encoding, widths[-1] * (SCORE_BITS + CLASS_BITS)]
    layers = []
    for index, (fan_in, neurons) in enumerate(pairwise(widths), 1):
        layer = _layer(fan_in, neurons, index == len(widths) - 1, options, limits, header_bits)
        layers.append(layer)
        alive.append(_alive(layer, layer.group, options))
    phv_bits = header_bits + max(alive)
    stages = _stages(layers, options, features, widths[-1])
    limits.check("phv_bits", phv_bits)
    limits.check("stages", stages)
    return NetworkPlan(tuple(layers), phv_bits, stages)


def _layer(
    fan_in: int, neurons: int, last: bool, options: Options, limits: Limits, header_bits: int
) -> LayerPlan:
    group = min(neurons, options.parallel or neurons)
    layer = LayerPlan(fan_in, neurons, group, 0, last)
    if options.parallel is None and options.branches and limits.phv_bits:
        one, two = _alive(layer, 1, options), _alive(layer, 2, options)
        room = limits.phv_bits - header_bits - one
        group = max(1, min(group, 1 + room // (two - one)))
    per_table = 0
    if options.weights_in == "tables":
        bits = fan_in + layer.threshold_bits
        limits.check("table_bytes", -(-bits // 8))
        per_table = group if not limits.table_bytes else min(group, limits.table_bytes * 8 // bits)
    return LayerPlan(fan_in, neurons, group, per_table, last)


def _alive(layer: LayerPlan, group: int, options: Options) -> int:
    """Bits of metadata while a layer is computed, `group` neurons at once."""
    stored = 0 if options.weights_in == "constants" else layer.threshold_bits
    blocks = 32 * -(-layer.fan_in // 32) if options.weights_in == "registers" else 0
    out = layer.neurons * SCORE_BITS if layer.last else 2 * layer.neurons
    return layer.fan_in + blocks + group * (layer.fan_in + stored) + out


def _stages(layers: Sequence[LayerPlan], options: Options, features: int, classes: int) -> int:
    read = 2 if options.input == "registers" else 0  # flow hash, then its registers
    encode = 1 if features else 0
    choose, give = (classes - 1).bit_length(), 1
    if options.flavour == "netfpga":
        return read + encode + len(layers) + 1 + give
    inside = sum(
        len(layer.groups()) * (3 + layer.levels) + (not layer.last) for layer in layers
    )  # copy, XNOR, popcount, sign or score; then folding
    return read + encode + inside + choose + give
