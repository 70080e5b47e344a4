# SPDX-License-Identifier: Apache-2.0
"""A binary network as Verilog: `ww_executor`, its layers in a chain, and `ww_model`, executors in parallel.

The executor is that of siracusano-n3ic, section 4.3 and Figure 10: a block a layer, parametrised by the sizes
of its input and output; weights in block RAM read in two cycles, XNOR, population counts from tables of 256
entries, a tree of adders, a threshold.
"""

from __future__ import annotations

from collections.abc import Sequence

from wirewise.errors import InputError
from wirewise.models import BinaryMlp
from wirewise.models.binary_mlp import BitsInput
from wirewise.models.bounded import Bound
from wirewise.targets.verilog.input_code import (
    WORD,
    Field,
    bound_fields,
    clamp_bits,
    input_module,
    word_of,
)
from wirewise.targets.verilog.network_plan import LayerPlan, load_words, plan_layers
from wirewise.targets.verilog.options import Design, Options
from wirewise.targets.verilog.ports import input_instance, ports, result_words
from wirewise.targets.verilog.text import bits_for, instance, sized, vector

LIBRARY = (
    "ww_argmax", "ww_banks", "ww_count", "ww_delay", "ww_layer", "ww_neurons", "ww_ones", "ww_output",
    "ww_ram", "ww_slice", "ww_sum",
)  # fmt: skip


def lower(model: BinaryMlp, bounds: Sequence[Bound], options: Options) -> Design:
    """The design. Raises InputError where records are bits, but bounds ask for features."""
    kinds: set[str] = set()
    features: tuple[int, ...] = ()
    if options.input == "bits":
        if bounds:
            raise InputError(
                "input bits",
                "leaves out the features, whose bounds the class unknown needs",
                "let records hold features, or compile the model without --unknown",
            )
        record_bits = model.input_bits
        entry = bits_input(model, options.width)
    else:
        features = tuple(sorted({*model.used_features, *(bound.feature for bound in bounds)}))
        record_bits = WORD * len(features)
        entry, kinds = features_input(model, features, bounds, options.width)
    plans = plan_layers(model, options.parallel)
    modules = options.modules
    beats = -(-record_bits // options.width)
    slowest = max(layer.rows for layer in plans)
    return Design(
        files={
            "ww_input.v": entry,
            "ww_executor.v": executor(plans),
            "ww_model.v": top(plans, modules, options.width, model.n_classes if bounds else None),
        },
        library=(*LIBRARY, *sorted(kinds)),
        shape=f"{modules} executor{'s' if modules > 1 else ''} of "
        + "-".join(str(size) for size in (model.input_bits, *(layer.neurons for layer in plans)))
        + f", {options.parallel} neuron{'s' if options.parallel > 1 else ''} a cycle",
        features=features,
        record_bits=record_bits,
        outputs=model.n_classes,
        latency=latency(plans) + (modules > 1),
        interval=(modules, slowest) if slowest > modules * beats else (1, beats),
        load=list(load_words(model)),
    )


def latency(plans: Sequence[LayerPlan]) -> int:
    """Cycles from the last beat of a record to the result of one executor.

    In: 1. A layer: its record 1, its rows, memory and XNOR 3, tables and adders, a slice 1. The last layer:
    scores 1, the best of a row, the best of all 1.
    """
    layers = sum(1 + layer.rows + 3 + layer.levels + 1 for layer in plans)
    return 1 + layers + 1 + bits_for(plans[-1].parallel) + 1


def features_input(
    model: BinaryMlp, features: Sequence[int], bounds: Sequence[Bound], width: int
) -> tuple[str, set[str]]:
    """`ww_input` of records that are features, and the library modules that it needs."""
    words = word_of(features)
    fields, parts = [], []
    for index, source in enumerate(model.inputs):
        name, at = f"input_{index}", WORD * words[source.feature]
        if isinstance(source, BitsInput):
            fields.append(Field(name, "bits", source.bits, at, shift=source.shift))
            parts.append(name)
            continue
        bits = clamp_bits(source.thresholds)
        fields.append(Field(name, "clamp", bits, at))
        steps = [sized(threshold, bits) for threshold in source.thresholds]
        parts += [f"$signed({name}) > $signed({step})" for step in steps]
    kinds = {f"ww_{field.kind}" for field in fields}
    fields += bound_fields(bounds, words)
    out = "{\n        " + ",\n        ".join(reversed(parts)) + "\n    }"
    return input_module(fields, out, model.input_bits, WORD * len(features), width), kinds


def bits_input(model: BinaryMlp, width: int) -> str:
    """`ww_input` of records that are the input bits of the network."""
    bits = model.input_bits
    fields = [Field(f"part_{at // width}", "raw", min(width, bits - at), at) for at in range(0, bits, width)]
    out = "{" + ", ".join(field.name for field in reversed(fields)) + "}"
    return input_module(fields, out, bits, bits, width)


def executor(plans: Sequence[LayerPlan]) -> str:
    """`ww_executor`."""
    bits, classes = plans[0].inputs, plans[-1].neurons
    lines = [
        f"// A network {'-'.join(str(size) for size in (bits, *(plan.neurons for plan in plans)))}.",
        "module ww_executor (",
        "    input  wire        clk,",
        "    input  wire        resetn,",
        "    input  wire        load_valid,",
        "    output wire        load_ready,",
        "    input  wire        load_last,",
        "    input  wire [63:0] load_data,",
        "    input  wire        in_valid,",
        "    output wire        in_ready,",
        f"    input  wire [{bits - 1}:0] in_bits,",
        "    input  wire        in_outside,",
        "    output wire        out_valid,",
        "    input  wire        out_ready,",
        "    output wire [7:0] out_class,",
        f"    output wire [{33 * classes - 1}:0] out_scores,",
        "    output wire        out_outside",
        ");",
        "    wire active, write, unused_bank;",
        "    wire [31:0] write_address, write_data;",
        instance(
            "ww_banks",
            "banks",
            {},
            {
                "clk": "clk", "resetn": "resetn", "load_valid": "load_valid", "load_ready": "load_ready",
                "load_last": "load_last", "load_data": "load_data", "enters": "in_valid && in_ready",
                "leaves": "out_valid && out_ready", "active": "active", "write": "write",
                "write_address": "write_address", "write_data": "write_data",
            },
        ),
        "",
    ]  # fmt: skip
    before, ready = "in_valid", "in_ready"
    in_bits, in_tag = "in_bits", "{in_outside, active}"
    for index, plan in enumerate(plans):
        ports = {
            "clk": "clk", "resetn": "resetn", "write": "write", "write_bank": "!active",
            "write_address": "write_address", "write_data": "write_data",
            "in_valid": before, "in_ready": ready, "in_bits": in_bits, "in_tag": in_tag,
        }  # fmt: skip
        parameters = {**plan.parameters, "TAG_BITS": 2, "LAYER": sized(index, 8)}
        parameters["WEIGHTS"] = vector(plan.lanes(), 32)
        values = vector(plan.lane_values(), plan.value_bits)
        if plan.last:
            ports |= {
                "out_valid": "out_valid", "out_ready": "out_ready", "out_class": "out_class",
                "out_scores": "out_scores", "out_tag": "{out_outside, unused_bank}",
            }  # fmt: skip
            lines.append(instance("ww_output", "last", {**parameters, "BIASES": values}, ports))
            continue
        before, ready, in_bits, in_tag = (f"{what}_{index}" for what in ("valid", "ready", "bits", "tag"))
        lines += [
            f"    wire {before}, {ready};",
            f"    wire [{plan.neurons - 1}:0] {in_bits};",
            f"    wire [1:0] {in_tag};",
        ]
        ports |= {"out_valid": before, "out_ready": ready, "out_bits": in_bits, "out_tag": in_tag}
        lines += [instance("ww_layer", f"layer_{index}", {**parameters, "THRESHOLDS": values}, ports), ""]
    return "\n".join([*lines, "    wire unused = &{1'b0, unused_bank};", "endmodule", ""])


def top(plans: Sequence[LayerPlan], modules: int, width: int, unknown: int | None) -> str:
    """`ww_model`. unknown: the class of records outside their bounds, if there are bounds."""
    bits, classes = plans[0].inputs, plans[-1].neurons
    turn_bits = max(1, bits_for(modules))
    result = 1 + 8 + 33 * classes
    own = f"results[{result}*turn_out +: {result}]" if modules > 1 else "results"
    lines = [
        *ports(width, classes, loads=True),
        "    wire in_valid, in_ready, in_outside;",
        f"    wire [{bits - 1}:0] in_bits;",
        input_instance(),
        "",
        "    // Executors take turns with records and with results, which so keep their order.",
        f"    wire [{modules - 1}:0] load_ready, ready, valid;",
        f"    wire [{modules * result - 1}:0] results;",
        f"    wire [{turn_bits - 1}:0] turn_in, turn_out;",
        "    wire out_ready;",
        "    assign s_cfg_tready = &load_ready;",
        f"    assign in_ready = ready[{'turn_in' if modules > 1 else 0}];",
        f"    wire out_valid = valid[{'turn_out' if modules > 1 else 0}];",
        f"    wire [{result - 1}:0] out = {own};",
    ]
    if modules > 1:
        lines += [*_turn("turn_in", "in", modules, turn_bits), *_turn("turn_out", "out", modules, turn_bits)]
    else:
        lines += ["    assign turn_in = 1'b0;", "    assign turn_out = 1'b0;"]
    lines += [
        "    genvar m;",
        "    generate",
        f"        for (m = 0; m < {modules}; m = m + 1) begin : module_of",
        f"            localparam [{turn_bits - 1}:0] TURN = m;",
        "            ww_executor executor (",
        "                .clk(aclk), .resetn(aresetn),",
        "                .load_valid(s_cfg_tvalid && s_cfg_tready), .load_ready(load_ready[m]),",
        "                .load_last(s_cfg_tlast), .load_data(s_cfg_tdata),",
        "                .in_valid(in_valid && turn_in == TURN), .in_ready(ready[m]),",
        "                .in_bits(in_bits), .in_outside(in_outside),",
        "                .out_valid(valid[m]), .out_ready(out_ready && turn_out == TURN),",
        f"                .out_class(results[{result}*m + {result - 9} +: 8]),",
        f"                .out_scores(results[{result}*m +: {result - 9}]),",
        f"                .out_outside(results[{result}*m + {result - 1}])",
        "            );",
        "        end",
        "    endgenerate",
        "",
        *_last_slice(modules, result, classes, unknown),
        "endmodule",
        "",
    ]
    return "\n".join(lines)


def _turn(name: str, side: str, modules: int, bits: int) -> list[str]:
    last = f"{name}_now == {sized(modules - 1, bits)}"
    return [
        f"    reg [{bits - 1}:0] {name}_now;",
        f"    assign {name} = {name}_now;",
        "    always @(posedge aclk)",
        f"        if (!aresetn) {name}_now <= {sized(0, bits)};",
        f"        else if ({side}_valid && {side}_ready)",
        f"            {name}_now <= {last} ? {sized(0, bits)} : {name}_now + {sized(1, bits)};",
    ]


def _last_slice(modules: int, result: int, classes: int, unknown: int | None) -> list[str]:
    """With one executor its own slice is the last; the turns of several need another behind them."""
    lines = [f"    wire [{result - 1}:0] result;", "    assign m_axis_tlast = 1'b1;"]
    if modules > 1:
        lines.append(
            instance(
                "ww_slice",
                "slice",
                {"BITS": result},
                {
                    "clk": "aclk", "resetn": "aresetn", "in_valid": "out_valid", "in_ready": "out_ready",
                    "in_data": "out", "out_valid": "m_axis_tvalid", "out_ready": "m_axis_tready",
                    "out_data": "result",
                },
            )
        )  # fmt: skip
    else:
        lines += [
            "    assign m_axis_tvalid = out_valid;",
            "    assign out_ready = m_axis_tready;",
            "    assign result = out;",
        ]
    return [*lines, *result_words(classes, 33, unknown)]
