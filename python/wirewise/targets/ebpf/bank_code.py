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

from collections.abc import Mapping, Sequence
from itertools import groupby

from wirewise.errors import InputError
from wirewise.feature_sets.feature_set import Feature
from wirewise.models.binary_bank import BinaryBank
from wirewise.targets.ebpf import shapes
from wirewise.targets.ebpf.bank_inputs import Encoding, LookedUp
from wirewise.targets.ebpf.bank_layers import HiddenLayer, LastLayer
from wirewise.targets.ebpf.shapes import Lowered, Plan, begin_header

TABLES_LIMIT = 3 << 20  # bytes; the agent allows 4 MiB, and there are tables of inputs and scores too
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
            *begin_header(banner, plan, 0),
            f"#define WW_BANK {len(model.networks)}",
            "",
            '#include "classify/network.h"',
            "",
        ]
        for part in functions:
            lines += [*part.table(), *part.function(), ""]
        return "\n".join([*lines, *_network(layers), *_bank(model, looked_up is not None), "#endif", ""])

    return Lowered(plan, header)


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
