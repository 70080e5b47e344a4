# SPDX-License-Identifier: Apache-2.0
"""Trees as Verilog: `ww_tree_N`, a pipeline for each tree with a level in two steps, and `ww_model`, which
adds up what their leaves say. A record enters in every cycle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from wirewise.errors import InputError
from wirewise.models import TreeEnsemble
from wirewise.models.bounded import Bound
from wirewise.models.tree import LEAF, Tree
from wirewise.targets.verilog.input_code import WORD, Field, bound_fields, clamp_bits, input_module, word_of
from wirewise.targets.verilog.options import Design, Options
from wirewise.targets.verilog.ports import input_instance, ports, result_words
from wirewise.targets.verilog.text import bits_for, instance, signed_bits, sized, vector

LIBRARY = ("ww_clamp", "ww_delay", "ww_level", "ww_leaves", "ww_slice", "ww_sum")
MAX_LEAVES = 1 << 16


@dataclass(frozen=True)
class Inputs:
    """What of the features goes down the pipelines: their kept bits, side by side, ascending by feature."""

    bits: dict[int, int]

    @property
    def total(self) -> int:
        return sum(self.bits.values())

    def extended(self, feature: int, bits: int, level: int) -> str:
        """A feature of the record that a level sees, with its sign extended."""
        at = self.total * level + sum(width for other, width in self.bits.items() if other < feature)
        end = at + self.bits[feature] - 1
        own = f"records[{end}:{at}]"
        more = bits - self.bits[feature]
        return f"{{{{{more}{{records[{end}]}}}}, {own}}}" if more else own


@dataclass(frozen=True)
class Level:
    """Nodes of a tree on one level, and leaves above it, which go on. first: place of a node's left child, or
    of a leaf itself, in the next level.
    """

    nodes: tuple[int, ...]
    first: tuple[int, ...]


def levels(tree: Tree) -> list[Level]:
    """The levels, the last one of leaves alone."""
    found, nodes = [], [0]
    for _ in range(tree.depth):
        first: list[int] = []
        below: list[int] = []
        for node in nodes:
            first.append(len(below))
            below += [node] if tree.feature[node] == LEAF else [tree.left[node], tree.right[node]]
        found.append(Level(tuple(nodes), tuple(first)))
        nodes = below
    return [*found, Level(tuple(nodes), ())]


def lower(model: TreeEnsemble, bounds: Sequence[Bound], options: Options) -> Design:
    """The design. Raises InputError for options of networks, and for more leaves than MAX_LEAVES."""
    _check(model, options)
    features = tuple(sorted({*model.used_features, *(bound.feature for bound in bounds)})) or (0,)
    thresholds: dict[int, list[int]] = {feature: [] for feature in features}
    for tree in model.trees:
        for feature, threshold in zip(tree.feature, tree.threshold, strict=True):
            if feature != LEAF:
                thresholds[feature].append(threshold)
    words = word_of(features)
    fields = [
        Field(f"feature_{feature}", "clamp", clamp_bits(found or [0]), WORD * words[feature])
        for feature, found in thresholds.items()
        if found or not model.used_features
    ]
    inputs = Inputs({int(field.name.removeprefix("feature_")): field.bits for field in fields})
    names = [field.name for field in reversed(fields)]
    record_bits = WORD * len(features)
    value_bits = _value_bits(model)
    files = {
        "ww_input.v": input_module(
            fields + bound_fields(bounds, words),
            f"{{{', '.join(names)}}}",
            inputs.total,
            record_bits,
            options.width,
        )
    }
    for index, tree in enumerate(model.trees):
        files[f"ww_tree_{index}.v"] = tree_module(model, index, tree, inputs, value_bits)
    terms = _terms(model)
    sum_levels = bits_for(max(map(len, terms)) + 1)
    best_levels = bits_for(model.n_outputs)
    unknown = model.n_classes if bounds else None
    files["ww_model.v"] = _top(model, inputs, terms, value_bits, sum_levels, options.width, unknown)
    beats = -(-record_bits // options.width)
    return Design(
        files=files,
        library=(*LIBRARY, *(("ww_argmax",) if model.n_outputs > 1 else ())),
        shape=f"{len(model.trees)} pipeline{'s' if len(model.trees) > 1 else ''} of {model.depth} levels",
        features=features,
        record_bits=record_bits,
        outputs=model.n_outputs,
        latency=1 + 2 * model.depth + 1 + sum_levels + best_levels + 1,
        interval=(1, beats),
        load=None,
    )


def _check(model: TreeEnsemble, options: Options) -> None:
    for name, value, usual in (
        ("parallel", options.parallel, 1),
        ("modules", options.modules, 1),
        ("input", options.input, "features"),
    ):
        if value != usual:
            raise InputError(
                f"{name} {value}",
                "is for binary networks; trees take a record in every cycle",
                "leave it out",
            )
    leaves = sum(tree.n_leaves for tree in model.trees)
    if leaves > MAX_LEAVES:
        raise InputError(
            "model",
            f"has {leaves:,} leaves, the Verilog target takes {MAX_LEAVES:,}",
            "train fewer or shallower trees",
        )


def _value_bits(model: TreeEnsemble) -> int:
    """Bits of what a leaf adds to a score: one for a vote, else a signed number."""
    if model.votes == "majority":
        return 1
    parts = chain(model.base, chain.from_iterable(chain.from_iterable(tree.value for tree in model.trees)))
    return max(map(signed_bits, parts))


def _outputs(model: TreeEnsemble, tree: Tree) -> range | tuple[int, ...]:
    """The outputs that a tree adds to."""
    return range(model.n_outputs) if tree.output is None else (tree.output,)


def _terms(model: TreeEnsemble) -> list[list[tuple[int, int]]]:
    """For each output: (tree, place of the part in what its leaves say)."""
    terms: list[list[tuple[int, int]]] = [[] for _ in range(model.n_outputs)]
    for index, tree in enumerate(model.trees):
        for place, output in enumerate(_outputs(model, tree)):
            terms[output].append((index, place))
    return terms


def tree_module(model: TreeEnsemble, index: int, tree: Tree, inputs: Inputs, value_bits: int) -> str:
    """`ww_tree_N`. records: the record as it is 1, 3, 5, ... steps after it came in, side by side."""
    plan = levels(tree)
    out_bits = value_bits * len(_outputs(model, tree))
    total = inputs.total
    lines = [
        f"// Tree {index}: depth {tree.depth}, {tree.n_leaves} leaves.",
        f"module ww_tree_{index} (",
        "    input  wire clk,",
        "    input  wire step,",
        f"    input  wire [{total * max(1, model.depth) - 1}:0] records,",
        f"    output wire [{out_bits - 1}:0] value",
        ");",
        "    wire [0:0] index_0 = 1'b0;",
        "    wire unused = &{1'b0, records};",
    ]
    bits = 1
    for number, level in enumerate(plan[:-1]):
        next_bits = max(1, bits_for(len(plan[number + 1].nodes)))
        tested = sorted({tree.feature[node] for node in level.nodes} - {LEAF})
        width = max(inputs.bits[feature] for feature in tested)
        select_bits = max(1, bits_for(len(tested)))
        entries = []
        for node, first in zip(level.nodes, level.first, strict=True):
            inner = tree.feature[node] != LEAF
            select = tested.index(tree.feature[node]) if inner else 0
            entry = int(inner) << next_bits | first
            entry = entry << select_bits | select
            entries.append(entry << width | tree.threshold[node] & (1 << width) - 1)
        parts = [inputs.extended(feature, width, number) for feature in reversed(tested)]
        lines += [
            "",
            f"    wire [{next_bits - 1}:0] index_{number + 1};",
            instance(
                "ww_level",
                f"level_{number}",
                {
                    "NODES": len(entries),
                    "INDEX_BITS": bits,
                    "NEXT_BITS": next_bits,
                    "FEATURES": len(tested),
                    "SELECT_BITS": select_bits,
                    "BITS": width,
                    "TABLE": vector(entries, 1 + next_bits + select_bits + width),
                },
                {
                    "clk": "clk",
                    "step": "step",
                    "index": f"index_{number}",
                    "features": f"{{{', '.join(parts)}}}",
                    "next": f"index_{number + 1}",
                },
            ),
        ]
        bits = next_bits
    leaves = [_leaf(model, tree, node, value_bits) for node in plan[-1].nodes]
    lines += [
        "",
        f"    wire [{bits - 1}:0] leaf;",
        instance(
            "ww_delay",
            "until_all",
            {"BITS": bits, "STEPS": 2 * (model.depth - tree.depth)},
            {"clk": "clk", "step": "step", "in": f"index_{tree.depth}", "out": "leaf"},
        ),
        instance(
            "ww_leaves",
            "table_of_leaves",
            {"LEAVES": len(leaves), "INDEX_BITS": bits, "BITS": out_bits, "TABLE": vector(leaves, out_bits)},
            {"clk": "clk", "step": "step", "index": "leaf", "value": "value"},
        ),
        "endmodule",
        "",
    ]
    return "\n".join(lines)


def _leaf(model: TreeEnsemble, tree: Tree, node: int, bits: int) -> int:
    """What a leaf says: a bit for each class with the one that it votes for, or parts of scores."""
    value = tree.value[node]
    if model.votes == "majority":
        return 1 << value[0]
    return sum((part & (1 << bits) - 1) << bits * place for place, part in enumerate(value))


def _top(
    model: TreeEnsemble,
    inputs: Inputs,
    terms: list[list[tuple[int, int]]],
    value_bits: int,
    sum_levels: int,
    width: int,
    unknown: int | None,
) -> str:
    total, depth, outputs = inputs.total, max(1, model.depth), model.n_outputs
    score_bits, best_levels = value_bits + sum_levels + (model.votes == "majority"), bits_for(outputs)
    steps = 2 * model.depth + 1 + sum_levels + best_levels
    result = 1 + 8 + score_bits * outputs
    lines = [
        *ports(width, outputs, loads=False),
        "    wire in_valid, in_outside, room;",
        f"    wire [{total - 1}:0] in_bits;",
        "    wire clk = aclk;",
        "    wire in_ready;",
        input_instance(),
        "",
        "    // All pipelines step together; they wait only for a result that nobody takes.",
        f"    reg [{steps - 1}:0] valid;",
        f"    wire step = !valid[{steps - 1}] || room;",
        "    assign in_ready = step;",
        "    always @(posedge clk)",
        f"        if (!aresetn) valid <= {sized(0, steps)};",
        "        else if (step) valid <= "
        + (f"{{valid[{steps - 2}:0], in_valid}};" if steps > 1 else "in_valid;"),
        "    wire outside;",
        _delay("outside_beside", 1, steps, "in_outside", "outside"),
        f"    wire [{total * depth - 1}:0] records;",
    ]
    for level in range(depth):
        before = f"records[{total * level - 1}:{total * (level - 1)}]" if level else "in_bits"
        after = f"records[{total * (level + 1) - 1}:{total * level}]"
        lines.append(_delay(f"record_{level}", total, 2 if level else 1, before, after))
    for index, tree in enumerate(model.trees):
        bits = value_bits * len(_outputs(model, tree))
        lines += [
            f"    wire [{bits - 1}:0] value_{index};",
            instance(
                f"ww_tree_{index}",
                f"tree_{index}",
                {},
                {"clk": "clk", "step": "step", "records": "records", "value": f"value_{index}"},
            ),
        ]
    lines += ["", f"    wire [{score_bits * outputs - 1}:0] sums;"]
    votes = model.votes == "majority"
    count = 1 << sum_levels
    for output, own in enumerate(terms):
        parts = [f"value_{tree}[{value_bits * (place + 1) - 1}:{value_bits * place}]" for tree, place in own]
        if not votes:
            parts.append(sized(model.base[output], value_bits))
        parts += [sized(0, value_bits)] * (count - len(parts))
        sums = f"sums[{score_bits * (output + 1) - 1 - votes}:{score_bits * output}]"
        lines.append(
            instance(
                "ww_sum",
                f"sum_{output}",
                {"TERMS": count, "BITS": value_bits, "LEVELS": sum_levels, "SIGNED": int(not votes)},
                {"clk": "clk", "step": "step", "in": "{" + ", ".join(reversed(parts)) + "}", "out": sums},
            )
        )
        if votes:
            lines.append(f"    assign sums[{score_bits * (output + 1) - 1}] = 1'b0;")
    lines += _best(outputs, score_bits, best_levels)
    lines += [
        f"    wire [{result - 1}:0] result;",
        "    assign m_axis_tlast = 1'b1;",
        instance(
            "ww_slice",
            "slice",
            {"BITS": result},
            {
                "clk": "clk", "resetn": "aresetn", "in_valid": f"valid[{steps - 1}]", "in_ready": "room",
                "in_data": "{outside, best_class, scores}", "out_valid": "m_axis_tvalid",
                "out_ready": "m_axis_tready", "out_data": "result",
            },
        ),
        *result_words(outputs, score_bits, unknown),
        "endmodule",
        "",
    ]  # fmt: skip
    return "\n".join(lines)


def _best(outputs: int, score_bits: int, best_levels: int) -> list[str]:
    """The class of the largest score; of a lone score, whether it is above 0."""
    lines = [f"    wire [{score_bits * outputs - 1}:0] scores;", "    wire [7:0] best_class;"]
    if outputs == 1:
        zero = sized(0, score_bits)
        return [
            *lines,
            "    assign scores = sums;",
            f"    assign best_class = {{7'd0, $signed(sums) > $signed({zero})}};",
        ]
    places = 1 << best_levels
    missing = places - outputs
    padded = f"{{{sized(0, score_bits * missing)}, sums}}" if missing else "sums"
    return [
        *lines,
        _delay("scores_beside", score_bits * outputs, best_levels, "sums", "scores"),
        f"    wire [{best_levels - 1}:0] best_index;",
        f"    wire [{score_bits - 1}:0] best_score;",
        "    wire best_present;",
        instance(
            "ww_argmax",
            "argmax",
            {"LEVELS": best_levels, "BITS": score_bits, "INDEX_BITS": best_levels},
            {
                "clk": "clk", "step": "step", "present": sized((1 << outputs) - 1, places), "scores": padded,
                "best_present": "best_present", "best": "best_score", "index": "best_index",
            },
        ),
        f"    assign best_class = {{{sized(0, 8 - best_levels)}, best_index}};",
        "    wire unused_best = &{1'b0, best_present, best_score};",
    ]  # fmt: skip


def _delay(name: str, bits: int, steps: int, before: str, after: str) -> str:
    return instance(
        "ww_delay",
        name,
        {"BITS": bits, "STEPS": steps},
        {"clk": "clk", "step": "step", "in": before, "out": after},
    )
