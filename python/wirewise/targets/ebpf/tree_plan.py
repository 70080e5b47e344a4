# SPDX-License-Identifier: Apache-2.0
"""Chooses how a TreeEnsemble is cut into pieces that the verifier accepts, before anything is printed.

A model's trees are cut into chunks. By size the chunks become, in this order of preference (`plan`):

- `inline`: the one chunk, in place;
- `functions`: a global function a chunk, verified once each;
- `tail-calls`: programs of such functions, for what exceeds half of a limit of one program.
"""

from __future__ import annotations

from dataclasses import dataclass

from wirewise.errors import InputError
from wirewise.models.tree import LEAF, Tree, TreeEnsemble

# Limits, and how much of them is used: half, because another compiler may need more (docs/architecture.md).
VERIFIED_LIMIT = 1_000_000 // 2
SUBPROGRAM_LIMIT = 256 // 2
TAIL_CALL_LIMIT = 33 - 1
# Of the kernel's 8 frames, ww_xdp, ww_xdp_ipv6 and the chunk's function take three.
NESTED_CALL_LIMIT = 8 - 3
# A jump spans 2^15 instructions, so what one function holds stays well below; clang's time grows faster than
# its functions (10 trees of depth 10: in place, twice, 10 times that of two functions).
FUNCTION_INSTRUCTIONS = 14_000
INLINE_INSTRUCTIONS = 5_000
# IPv4 and IPv6 have the code between flow look-up and verdict each; parsing and flow table are walked before.
WAYS_TO_INFERENCE = 2
INSTRUCTIONS_OF_THE_REST = 3_000
# Fits of what the kernel counted: 22,500 for the 12 features of hara2023 without a model, 69,000 for 64
# features with windows; a tree of depth 10 over 2 or 16 classes costs 1.4 times its instructions.
VERIFIED_OF_THE_REST, VERIFIED_PER_FEATURE = 15_000, 850
VERIFIED_PER_INSTRUCTION = 1.5

SHAPES = ("inline", "functions", "tail-calls")


@dataclass(frozen=True)
class Plan:
    """The chosen shape. programs: per program the chunks it runs, a chunk being tree indices; without tail
    calls there is one, part of ww_xdp. instructions, verified: predicted.
    """

    shape: str
    why: str
    programs: tuple[tuple[tuple[int, ...], ...], ...]
    instructions: int
    verified: int


def plan(model: TreeEnsemble, shape: str = "auto") -> Plan:
    """Choose the cheapest shape that stays under half of every limit, or check the one asked for.

    Raises InputError where the model does not fit, saying what would.
    """
    if shape not in ("auto", *SHAPES):
        raise InputError(f"shape {shape!r}: there are auto, {', '.join(SHAPES)}")
    size = [_instructions(model, tree) for tree in model.trees]
    total = sum(size)
    of_trees = int(VERIFIED_PER_INSTRUCTION * total)
    instructions, verified = total + INSTRUCTIONS_OF_THE_REST, of_trees + _verified_of_the_rest(model)
    if shape == "inline" or (shape == "auto" and total <= INLINE_INSTRUCTIONS):
        why = f"about {total} instructions: up to {INLINE_INSTRUCTIONS} stand in place, without a call"
        verified += (WAYS_TO_INFERENCE - 1) * of_trees
        return Plan("inline", why, ((tuple(order(model)),),), instructions + total, verified)
    _check_nesting(model)
    chunks = _chunks(model, size)
    functions = len(chunks) + sum(len(cut(model, tree)) for tree in model.trees)
    fits = functions <= SUBPROGRAM_LIMIT and verified <= VERIFIED_LIMIT
    if shape == "functions" or (shape == "auto" and fits):
        why = (
            f"about {total} instructions: over {INLINE_INSTRUCTIONS}, "
            f"so {functions} functions, verified once each"
        )
        return Plan("functions", why, (tuple(chunks),), instructions, verified)
    programs = _programs(model, chunks, size)
    if len(programs) > TAIL_CALL_LIMIT:
        nodes = sum(tree.n_nodes for tree in model.trees)
        raise InputError(
            f"model: {len(model.trees)} trees with {nodes} nodes need {len(programs)} tail calls; the kernel "
            f"allows {TAIL_CALL_LIMIT}: about {nodes * TAIL_CALL_LIMIT // len(programs)} nodes would fit; "
            "train fewer or shallower trees (max_depth, max_leaf_nodes)"
        )
    why = (
        f"about {total} instructions: over half of a program's limits, so a chain of {len(programs)} programs"
    )
    return Plan("tail-calls", why, tuple(programs), instructions, verified)


def _verified_of_the_rest(model: TreeEnsemble) -> int:
    return VERIFIED_OF_THE_REST + VERIFIED_PER_FEATURE * len(model.used_features)


def _instructions(model: TreeEnsemble, tree: Tree) -> int:
    """Estimate: a load and a jump an inner node, with a threshold beyond 32 bits two more; a value and a
    jump a leaf, leaves of equal value sharing theirs.
    """
    values = {value for value in tree.value if value}
    leaves = tree.feature.count(LEAF)
    wide = sum(1 for t in tree.threshold if not -(1 << 31) <= t < 1 << 31)
    rows = leaves * 2 if len(values) > leaves // 4 else leaves if len(values) > 4 else leaves // 2
    return 2 * (tree.n_nodes - leaves) + 2 * wide + rows + 2 * model.n_outputs


def order(model: TreeEnsemble) -> list[int]:
    """Trees by the output they add to, so that one running sum serves at a time."""
    return sorted(range(len(model.trees)), key=lambda t: (model.trees[t].output or 0, t))


def _chunks(model: TreeEnsemble, sizes: list[int]) -> list[tuple[int, ...]]:
    chunks: list[list[int]] = []
    size, output = 0, None
    for index in order(model):
        tree = model.trees[index]
        if not chunks or size + sizes[index] > FUNCTION_INSTRUCTIONS or tree.output != output:
            chunks.append([])
            size = 0
        chunks[-1].append(index)
        size, output = size + sizes[index], tree.output
    return [tuple(chunk) for chunk in chunks]


def _programs(
    model: TreeEnsemble, chunks: list[tuple[int, ...]], sizes: list[int]
) -> list[tuple[tuple[int, ...], ...]]:
    programs: list[list[tuple[int, ...]]] = []
    instructions = functions = 0
    for chunk in chunks:
        chunk_instructions = sum(sizes[t] for t in chunk)
        chunk_functions = 1 + sum(len(cut(model, model.trees[t])) for t in chunk)
        verified = VERIFIED_PER_INSTRUCTION * (instructions + chunk_instructions)
        too_large = verified + VERIFIED_OF_THE_REST > VERIFIED_LIMIT
        if not programs or too_large or functions + chunk_functions > SUBPROGRAM_LIMIT:
            programs.append([])
            instructions = functions = 0
        programs[-1].append(chunk)
        instructions, functions = instructions + chunk_instructions, functions + chunk_functions
    return [tuple(program) for program in programs]


def cut(model: TreeEnsemble, tree: Tree) -> list[int]:
    """Nodes whose subtrees become functions of their own, so that no jump is too long. Deepest first."""
    whole = _instructions(model, tree)
    if whole <= FUNCTION_INSTRUCTIONS:
        return []
    limit = tree.n_nodes * FUNCTION_INSTRUCTIONS // (2 * whole)
    weight = [1] * tree.n_nodes
    roots = []
    for node in range(tree.n_nodes - 1, -1, -1):
        if tree.feature[node] == LEAF:
            continue
        weight[node] = 1 + weight[tree.left[node]] + weight[tree.right[node]]
        if node and weight[node] > limit:
            roots.append(node)
            weight[node] = 1
    return roots


def _check_nesting(model: TreeEnsemble) -> None:
    """Raises InputError where a path goes through more functions than may call each other."""
    for index, tree in enumerate(model.trees):
        roots, calls = set(cut(model, tree)), [0] * tree.n_nodes
        for node in range(tree.n_nodes):
            if tree.feature[node] != LEAF:
                for child in (tree.left[node], tree.right[node]):
                    calls[child] = calls[node] + (child in roots)
        if max(calls) > NESTED_CALL_LIMIT:
            raise InputError(
                f"model, tree {index}: a path of {tree.depth} tests needs {max(calls)} functions inside each "
                f"other; the kernel allows {NESTED_CALL_LIMIT}: train shallower trees "
                "(max_depth, max_leaf_nodes)"
            )
