# SPDX-License-Identifier: Apache-2.0
"""What is printed for a model: its sizes, its tables, its input bits, its layers (Algorithm 1)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wirewise.models import BinaryMlp
from wirewise.models.binary_mlp import BinaryInput, BitsInput
from wirewise.models.bounded import Bound
from wirewise.targets.comments import comment
from wirewise.targets.micro_c.options import Options
from wirewise.targets.micro_c.plan import BLOCK, DEFAULT_EXECUTORS, ETHERNET, WORD, LayerPlan, Plan, words

ETHERTYPE = 0x88B5
"""Of the packets with features: the first of IEEE 802's for local experiments."""
_READ_WORDS = 16
"""Words that CLS gives at once."""
_PER_LINE = 8
_MASK = (1 << WORD) - 1


def config(model: BinaryMlp, features: Sequence[int], unknown: int, plan: Plan, options: Options) -> str:
    """ww_config.h."""
    numbers: dict[str, object] = {
        "WW_INPUT_BITS": model.input_bits,
        "WW_INPUT_WORDS": words(model.input_bits),
        "WW_INPUT_ROOM": plan.layers[0].room,
        "WW_LAYERS": len(plan.layers),
        "WW_OUTPUTS": model.n_classes,
        "WW_UNKNOWN": unknown,
        "WW_FEATURES": len(features),
        "WW_CTM_SIZE": f"PKT_CTM_SIZE_{options.ctm_bytes}",
        "WW_LEAST": ETHERNET + plan.header_bytes + plan.result_bytes,
    }
    if options.input == "memory":
        numbers["WW_FLOW_BITS"] = options.flow_bits
    else:
        numbers |= {"WW_ETHERTYPE": f"0x{ETHERTYPE:x}", "WW_HEADER_BYTES": plan.header_bytes}
    if options.input != "bits":
        kinds = {"WW_FIELDS" if isinstance(source, BitsInput) else "WW_STEPS" for source in model.inputs}
        numbers |= dict.fromkeys(sorted(kinds), "")
    if options.result == "memory":
        numbers["WW_RESULT_MEMORY"] = ""
    if options.scores == "yes":
        numbers["WW_SCORES"] = ""
    if plan.chained:
        numbers |= {
            "WW_EXECUTORS": options.executors or DEFAULT_EXECUTORS,
            "WW_SHARED_WORDS": plan.shared_words,
        }
    lines = [f"#define {name} {value}".rstrip() for name, value in numbers.items()]
    memory, read = "__cls", "cls_read(to, from, size)"
    if plan.chained:
        memory, read = "__emem", "mem_read32(to, (__mem40 void *)(from), size)"
    lines += [
        "",
        "/* Where the network's tables are. */",
        f"#define WW_TABLE __export __shared {memory}",
        f"#define WW_READ(to, from, size) {read}",
    ]
    return "".join(f"{line}\n" for line in lines)


def tables(model: BinaryMlp, plan: Plan, options: Options) -> str:
    """ww_tables.h."""
    parts = []
    for layer, given in zip(plan.layers, model.layers, strict=True):
        rows = [row(layer, *neuron) for neuron in zip(given.weights, given.threshold, strict=True)]
        value = "bias" if layer.last else "threshold"
        parts += [
            f"/* Layer {layer.index}: for each neuron its {value}, then its weights. Bits beyond the input's "
            "are 1,",
            " * which no input agrees with. */",
            *_array(f"ww_weights{layer.index}", rows),
            "",
        ]
    steps = [] if options.input == "bits" else list(_steps(model))
    if steps:
        parts += [
            "/* Steps of thermometers, a high and a low word each. */",
            *_array("ww_steps", [high_low(step) for step in steps], together=_PER_LINE // 2),
            "",
        ]
    return "".join(f"{line}\n" for line in parts[:-1])


def row(layer: LayerPlan, weights: int, threshold: int) -> list[int]:
    """A neuron's row. A threshold is cut to where the neuron is always or never on."""
    value = threshold if layer.last else min(max(threshold, 0), layer.inputs + 1)
    filled = weights | (1 << WORD * words(layer.inputs)) - (1 << layer.inputs)
    return [value & _MASK, *(filled >> WORD * word & _MASK for word in range(words(layer.inputs)))]


def high_low(value: int) -> list[int]:
    """A number of 64 bits as two words."""
    return [value >> WORD & _MASK, value & _MASK]


def _steps(model: BinaryMlp) -> Iterable[int]:
    for source in model.inputs:
        if not isinstance(source, BitsInput):
            yield from source.thresholds


def _array(name: str, rows: Sequence[Sequence[int]], together: int = 1) -> list[str]:
    lines = []
    for start in range(0, len(rows), together):
        values = [f"0x{value:08x}," for one in rows[start : start + together] for value in one]
        lines += ["    " + " ".join(values[at : at + _PER_LINE]) for at in range(0, len(values), _PER_LINE)]
    return [f"WW_TABLE uint32_t {name}[{sum(map(len, rows))}] = {{", *lines, "};"]


def ports(n_classes: int) -> str:
    """The table of --result port."""
    numbers = ", ".join(map(str, range(n_classes)))
    return (
        "/* The port by which packets of a class leave. */\n"
        f"__export __shared __cls uint32_t ww_port_of_class[{n_classes}] = {{{numbers}}};\n"
    )


def encode(model: BinaryMlp, features: Sequence[int], labels: Sequence[str], bounds: Sequence[Bound]) -> str:
    """ww_encode: from features, signed numbers of 64 bits one after another, to input bits."""
    lines = [
        "/* The input bits of features, signed numbers of 64 bits; whether one is outside its bounds. */",
        "static uint32_t ww_encode(__mem40 uint8_t *from)",
        "{",
        "    __xread uint32_t value[2];",
        "    __gpr uint32_t word, outside;",
        "",
        "    for (word = 0; word < WW_INPUT_ROOM; word++)",
        "        ww_x0[word] = 0;",
        "    outside = 0;",
    ]
    at, step, calls = 0, 0, dict[int, list[str]]()
    for source in model.inputs:
        calls.setdefault(source.feature, []).append(_take(source, at, step))
        at += source.width
        step += 0 if isinstance(source, BitsInput) else source.width
    for bound in bounds:
        low, high = (", ".join(map(str, map(hex, high_low(end)))) for end in (bound.low, bound.high))
        calls.setdefault(bound.feature, []).extend(
            (
                f"    outside |= ww_above({low}, value[0], value[1]);",
                f"    outside |= ww_above(value[0], value[1], {high});",
            )
        )
    for place, feature in enumerate(features):
        lines += [
            "",
            f"    /* {comment(labels[feature])} */",
            f"    mem_read32(value, from + {8 * place}, sizeof(value));",
            *calls[feature],
        ]
    return "\n".join([*lines, "    return outside;", "}", ""])


def _take(source: BinaryInput, at: int, step: int) -> str:
    if isinstance(source, BitsInput):
        return f"    ww_take_bits(value[0], value[1], {at}, {source.shift}, {source.bits});"
    return f"    ww_take_steps(value[0], value[1], {at}, {step}, {source.width});"


def local_memory(plan: Plan) -> str:
    """Bits between layers, a thread's own."""
    return "".join(
        f"static __lmem uint32_t ww_x{layer.index}[{layer.room}]; /* bits that layer {layer.index} reads */\n"
        for layer in plan.layers[1:]
    )


def layer_function(layer: LayerPlan, chained: bool) -> str:
    """A layer as a function: neurons `first` to `last`."""
    goal = f"{layer.neurons} {'scores' if layer.last else 'bits'}"
    names = "neuron, count, value, high" if layer.last else "neuron, count, value, on"
    lines = [
        f"/* Layer {layer.index}, {layer.inputs} bits to {goal}: neurons `first` to `end` - 1. */",
        f"static void ww_layer{layer.index}(uint32_t first, uint32_t end)",
        "{",
        f"    __xread uint32_t row[{min(_READ_WORDS, layer.stride)}];",
        f"    __gpr uint32_t {names};",
        "",
        *([] if layer.last else ["    on = 0;"]),
        "    for (neuron = first; neuron < end; neuron++) {",
    ]
    for start in range(0, layer.stride, _READ_WORDS):
        part = range(start, min(start + _READ_WORDS, layer.stride))
        size = "sizeof(row)" if len(part) == min(_READ_WORDS, layer.stride) else str(4 * len(part))
        offset = f" + {start}" if start else ""
        source = f"&ww_weights{layer.index}[{layer.stride} * neuron{offset}]"
        lines.append(f"        WW_READ(row, {source}, {size});")
        if not start:
            lines += ["        value = row[0];", "        count = 0;"]
        lines += [
            f"        count += pop_count(~(row[{word - start}] ^ ww_x{layer.index}[{word - 1}]));"
            for word in part
            if word
        ]
    lines += _score(chained) if layer.last else _sign(layer, chained)
    return "\n".join([*lines, "    }", "}", ""])


def _sign(layer: LayerPlan, chained: bool) -> list[str]:
    following = layer.index + 1
    keep = f"ww_x{following}[neuron >> 5] = on;"
    if chained:
        keep = f"ww_set_bits({layer.at + layer.room} + (neuron >> 5), on);"
    return [
        "        if (count >= value)",
        "            on |= 1u << (neuron & 31);",
        "        if ((neuron & 31) == 31 || neuron + 1 == end) {",
        f"            {keep}",
        "            on = 0;",
        "        }",
    ]


def _score(chained: bool) -> list[str]:
    """Count and bias, added up in 64 bits: the bias may be any of 32."""
    return [
        "        high = value >> 31 ? 0xffffffff : 0;",
        "        value += count;",
        "        high += value < count;",
        f"        {'ww_set_sum' if chained else 'ww_offer'}(neuron, high, value);",
    ]


def infer_function(plan: Plan) -> str:
    """ww_infer of a thread that computes all of it."""
    calls = [f"    ww_layer{layer.index}(0, {layer.neurons});" for layer in plan.layers]
    head = ["/* The class of the input bits. */", "static uint32_t ww_infer(void)", "{"]
    return "\n".join([*head, *calls, "    return ww_best[2];", "}", ""])


def execute_function(plan: Plan, executors: int) -> str:
    """ww_execute: an executor's share of each layer, and the bits that it needs for that."""
    lines = []
    for layer in plan.layers:
        name = f"ww_x{layer.index}"
        lines += [
            f"static void ww_fetch{layer.index}(void)",
            "{",
            f"    __xread uint32_t block[{BLOCK}];",
            "    __gpr uint32_t word;",
            "",
            f"    for (word = 0; word < {layer.room}; word += {BLOCK}) {{",
            f"        mem_read_atomic(block, (__mem40 void *)&ww_bits[{layer.at} + word], sizeof(block));",
            f"        {name}[word] = block[0];",
            *(f"        {name}[word + {k}] = block[{k}];" for k in range(1, BLOCK)),
            "    }",
            "}",
            "",
        ]
    lines += [
        "/* The work of an executor: its share of each layer, again and again. */",
        "static void ww_execute(uint32_t place)",
        "{",
        "    for (;;) {",
    ]
    for layer in plan.layers:
        each = -(-layer.neurons // executors)
        first, end = (f"ww_share({where}, {each}, {layer.neurons})" for where in ("place", "place + 1"))
        lines += [
            "        ww_started(place);",
            f"        ww_fetch{layer.index}();",
            f"        ww_layer{layer.index}({first}, {end});",
            "        ww_ended(place);",
        ]
    return "\n".join([*lines, "    }", "}", ""])
