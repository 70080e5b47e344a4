# SPDX-License-Identifier: Apache-2.0
"""Lowers a TreeEnsemble to ww_model.h: one if/else per node, thresholds and leaf values as immediates.

Two things keep the verifier's work linear in the number of nodes, in every shape (tree_plan.py): features
are read through a volatile pointer, so that no register carries what one path learned of a feature into the
next tree; and what a leaf adds is either a number no check depends on, or passes through memory, so that the
paths of a tree meet in equal states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wirewise.feature_sets.feature_set import Feature
from wirewise.models.scores import n_scores
from wirewise.models.tree import LEAF, Tree, TreeEnsemble
from wirewise.targets.comments import comment
from wirewise.targets.ebpf.shapes import Lowered, Plan, begin_header, infer_in_one_program
from wirewise.targets.ebpf.tree_plan import cut, plan

PACKED_VOTE_CLASSES = 8
PACKED_VOTE_TREES = 255


def lower(
    model: TreeEnsemble, shape: str, constants: Mapping[int, int], features: Sequence[Feature]
) -> Lowered:
    """See `families.Lower`. Trees have no use for the features' ranges."""
    chosen = plan(model, shape)
    return Lowered(chosen, TreeCode(model, chosen, constants, features).header)


class TreeCode:
    """Prints one model. What a leaf holds depends on `kind`:

    - `class`: the one tree of a majority vote, in place: a leaf is the class;
    - `packed`: majority votes of up to 8 classes in the bytes of one 64-bit word: a leaf adds to its
    class's byte; - `single`: a leaf adds its score to the running sum of the one output its tree adds to;
    - `rows`: a leaf is a class, or the index of a row of scores, which is added to the scores in ww_scratch.
    """

    def __init__(
        self, model: TreeEnsemble, chosen: Plan, constants: Mapping[int, int], features: Sequence[Feature]
    ) -> None:
        """constants: features that are the same for every packet, with their values; they are not tested."""
        self.model, self.plan, self.constants, self.features = model, chosen, constants, features
        self.majority = model.votes == "majority"
        if self.majority:
            small = model.n_classes <= PACKED_VOTE_CLASSES and len(model.trees) <= PACKED_VOTE_TREES
            self.kind = "packed" if small else "rows"
            if len(model.trees) == 1 and chosen.shape == "inline":
                self.kind = "class"
        else:
            alone = model.n_outputs == 1 or all(t.output is not None for t in model.trees)
            self.kind = "single" if alone else "rows"
        self.n_scores = model.n_classes if self.majority else model.n_outputs
        self.type = "__u64" if self.kind == "packed" else "int"

    def header(self, banner: str) -> str:
        """The text of ww_model.h: ww_begin_inference, ww_add_N for each program, ww_decide."""
        lines = begin_header(banner, self.plan, n_scores(self.model))
        for index, tree in enumerate(self.model.trees):
            if self._has_rows(tree):
                lines += self._rows(index, tree)
        for program in self.plan.programs:
            for chunk in program:
                for index in chunk:
                    lines += self._parts(index)
                    lines += self._tree_macro(index, 0, "", "sum +=" if self._sums else "leaf =")
                if self.plan.shape != "inline":
                    lines += self._chunk_function(chunk)
        if self.kind == "class":
            return "\n".join([*lines, *self._infer_class(), "#endif", ""])
        lines += self._begin()
        for number, program in enumerate(self.plan.programs):
            lines += self._add(number, program)
        lines += self._decide()
        if self.plan.shape != "tail-calls":
            lines += infer_in_one_program()
        return "\n".join([*lines, "#endif", ""])

    @property
    def _sums(self) -> bool:
        """Whether leaves add to a running sum."""
        return self.kind in ("packed", "single")

    def _infer_class(self) -> list[str]:
        """ww_infer of a lone tree: nothing to add up, and scores only if somebody looks at them."""
        return [
            "/* Class of the features in s: the leaf's. */",
            "static __always_inline __u32 ww_infer(struct ww_scratch *s)",
            "{",
            "\tconst volatile __s64 *x __attribute__((unused)) = s->feature;",
            "\t__u32 leaf = 0;",
            "",
            "\tWW_TREE_0",
            "\tww_hide(leaf);",
            "\tif (ww_unlikely(ww_config.trace)) {",
            *(f"\t\ts->score[{c}] = 0;" for c in range(self.n_scores)),
            # Out of memory, or the verifier would follow each class apart.
            "\t\ts->leaf = leaf;",
            "\t\ts->score[*(volatile __u64 *)&s->leaf & (WW_MAX_CLASSES - 1)] = 1;",
            "\t}",
            "\treturn leaf;",
            "}",
            "",
        ]

    # -- one tree

    def _has_rows(self, tree: Tree) -> bool:
        return self.kind == "rows" and not self.majority and tree.output is None

    def _leaf_values(self, tree: Tree) -> dict[int, str]:
        """Leaf node -> what it holds, as C."""
        leaves = [node for node in range(tree.n_nodes) if tree.feature[node] == LEAF]
        if self.kind == "packed":
            return {node: f"{1 << 8 * tree.value[node][0]:#x}ULL" for node in leaves}
        if self._has_rows(tree):
            return {node: str(row) for row, node in enumerate(leaves)}
        return {node: str(tree.value[node][0]) for node in leaves}

    def _branches(self, index: int, root: int, target: str, roots: set[int]) -> list[str]:
        """Nested if/else that gives what the leaf holds to `target`. Without recursion, for trees of any
        depth.
        """
        tree = self.model.trees[index]
        values = self._leaf_values(tree)
        lines: list[str] = []
        todo: list[tuple[int, str | int]] = [(1, root)]
        while todo:
            depth, item = todo.pop()
            indent = "\t" * depth
            if isinstance(item, str):
                lines.append(indent + item)
            elif item in values:
                lines.append(f"{indent}{target} {values[item]};")
            elif item in roots and item != root:
                lines.append(f"{indent}{target} ww_tree_{index}_{item}(s);")
            elif tree.feature[item] in self.constants:
                goes_left = self.constants[tree.feature[item]] <= tree.threshold[item]
                todo.append((depth, tree.left[item] if goes_left else tree.right[item]))
            else:
                tested = f"x[{tree.feature[item]}] /* {comment(self.features[tree.feature[item]].label)} */"
                lines.append(f"{indent}if ({tested} <= {_int64(tree.threshold[item])}) {{")
                todo += [
                    (depth, "}"),
                    (depth + 1, tree.right[item]),
                    (depth, "} else {"),
                    (depth + 1, tree.left[item]),
                ]
        return lines

    def _tree_macro(self, index: int, root: int, what: str, target: str) -> list[str]:
        """The branches of one tree, or of a part. A macro, because clang writes debug information for
        every source line with code in time quadratic in their number (clang 19: 38 of 43 s for 20 trees of
        depth 10).
        """
        tree = self.model.trees[index]
        roots = set(cut(self.model, tree))
        name = _macro(index, root)
        lines = [f"/* Tree {index}, {tree.n_nodes} nodes{what}. */", f"#define {name} \\"]
        lines += [f"{line} \\" for line in self._branches(index, root, target, roots)]
        lines[-1] = lines[-1].removesuffix(" \\")
        return [*lines, ""]

    def _tree(self, index: int) -> list[str]:
        """Statements for one whole tree; its paths meet again at their end."""
        tree, branches = self.model.trees[index], _macro(index, 0)
        if self._sums:
            return [f"\t{branches}", "\tww_hide(sum);"]
        # The verifier would follow an index to a row or a score for each leaf apart, had it not come out
        # of memory.
        lines = [f"\t{branches}", "\ts->leaf = leaf;", "\tleaf = *(volatile __u64 *)&s->leaf;"]
        if self.majority:
            return [*lines, "\ts->score[leaf & (WW_MAX_CLASSES - 1)]++;"]
        if not self._has_rows(tree):
            return [*lines, f"\ts->score[{tree.output}] += (__s32)leaf;"]
        count = tree.feature.count(LEAF)
        lines += [
            f"\tleaf = leaf < {count} ? leaf : 0; /* always true; for the verifier */",
            "\tww_hide(leaf);",
        ]
        return lines + [f"\ts->score[{c}] += ww_rows_{index}[leaf][{c}];" for c in range(self.n_scores)]

    def _rows(self, index: int, tree: Tree) -> list[str]:
        rows = [
            "\t{" + ", ".join(map(str, value)) + f"}}, /* leaf {row}, node {node} */"
            for row, (node, value) in enumerate((n, v) for n, v in enumerate(tree.value) if v)
        ]
        shape = f"[{len(rows)}][{self.n_scores}]"
        what = f"/* Tree {index}: what each leaf adds to the {self.n_scores} scores. */"
        head = f'static const volatile __s32 ww_rows_{index}{shape} SEC(".rodata.ww_rows") = {{'
        return [what, head, *rows, "};", ""]

    def _parts(self, index: int) -> list[str]:
        """Functions for subtrees of a large tree, the deepest first; each returns what its leaf holds."""
        lines = []
        for node in cut(self.model, self.model.trees[index]):
            lines += [
                *self._tree_macro(index, node, f", from node {node} down", "leaf ="),
                *self._open(f"ww_tree_{index}_{node}", f"{self.type} leaf = 0;"),
                f"\t{_macro(index, node)}",
                "\treturn leaf;",
                "}",
                "",
            ]
        return lines

    # -- chunks and programs

    def _open(self, name: str, *declarations: str) -> list[str]:
        """A global function over ww_scratch: the verifier looks at it once, whoever calls."""
        return [
            f"__noinline {self.type} {name}(struct ww_scratch *s)",
            "{",
            "\tconst volatile __s64 *x __attribute__((unused)); /* by a lone leaf */",
            *(f"\t{declaration}" for declaration in declarations),
            "",
            "\tif (!s)",
            "\t\treturn 0;",
            "\tx = s->feature;",
        ]

    @property
    def _local(self) -> str:
        return (
            "__u64 leaf = 0;"
            if self.kind == "rows"
            else f"{'__u64' if self.kind == 'packed' else '__s64'} sum = 0;"
        )

    def _chunk_function(self, chunk: tuple[int, ...]) -> list[str]:
        trees = [line for index in chunk for line in self._tree(index)]
        result = "0" if self.kind == "rows" else "sum"
        return [*self._open(f"ww_trees_{chunk[0]}", self._local), *trees, f"\treturn {result};", "}", ""]

    def _begin(self) -> list[str]:
        base = [0] * self.n_scores if self.majority else list(self.model.base)
        if self.kind == "packed":
            base = [0]
        return [
            "static __always_inline void ww_begin_inference(struct ww_scratch *s)",
            "{",
            *(f"\ts->score[{c}] = {value};" for c, value in enumerate(base)),
            "}",
            "",
        ]

    def _add(self, number: int, program: tuple[tuple[int, ...], ...]) -> list[str]:
        """ww_add_N: runs one program's trees and adds what they say to the scores."""
        if self.plan.shape == "inline":
            lines = ["static __always_inline void ww_add_0(struct ww_scratch *s)", "{"]
            lines += [
                "\tconst volatile __s64 *x __attribute__((unused)) = s->feature;",
                f"\t{self._local}",
                "",
            ]
            for index in program[0]:
                lines += self._tree(index)
                output = self.model.trees[index].output or 0
                if self.kind == "single" and self.n_scores > 1:
                    lines += [f"\ts->score[{output}] += sum;", "\tsum = 0;"]
            if self.kind == "packed" or (self.kind == "single" and self.n_scores == 1):
                lines.append("\ts->score[0] += sum;")
            return [*lines, "}", ""]
        lines = [f"static __always_inline void ww_add_{number}(struct ww_scratch *s)", "{"]
        outputs: dict[int, list[str]] = {}
        for chunk in program:
            output = self.model.trees[chunk[0]].output or 0
            outputs.setdefault(output, []).append(f"ww_trees_{chunk[0]}(s)")
        for output, calls in outputs.items():
            if self.kind == "rows":
                lines += [f"\t{call};" for call in calls]
            else:
                lines += [f"\ts->score[{output}] += (__s64){calls[0]}"]
                lines += [f"\t\t+ (__s64){call}" for call in calls[1:]]
                lines[-1] += ";"
        return [*lines, "}", ""]

    def _decide(self) -> list[str]:
        lines = [
            "/* The class the scores say. */",
            "static __always_inline __u32 ww_decide(struct ww_scratch *s)",
            "{",
        ]
        if not self.majority and self.model.n_outputs == 1:
            return [*lines, "\treturn *(volatile __s64 *)s->score > 0;", "}", ""]
        if self.kind == "packed":
            # Out of memory, as above: the class picks a rule, and the verifier would follow each sum of
            # votes.
            lines += ["\t__u64 votes = *(volatile __u64 *)s->score;", ""]
            lines += [f"\ts->score[{c}] = votes >> {8 * c} & 0xff;" for c in range(self.n_scores)]
        lines += [f"\treturn ww_argmax(s->score, {self.n_scores});", "}", ""]
        return lines


def _macro(index: int, root: int) -> str:
    return f"WW_TREE_{index}" + (f"_{root}" if root else "")


def _int64(value: int) -> str:
    if value == -(1 << 63):
        return "(-0x7fffffffffffffffLL - 1)"
    return str(value) if -(1 << 31) <= value < 1 << 31 else f"{value}LL"
