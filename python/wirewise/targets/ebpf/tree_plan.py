# SPDX-License-Identifier: Apache-2.0
"""Chooses how a TreeEnsemble is cut into pieces that the verifier accepts, before anything is printed.

Trees are cut into chunks, those into functions or programs (shapes.py).
"""

from __future__ import annotations

from wirewise.errors import InputError
from wirewise.models.tree import LEAF, Tree, TreeEnsemble
from wirewise.targets.ebpf import shapes
from wirewise.targets.ebpf.shapes import Plan

# What the kernel counted: a tree of depth 10 over 2 or 16 classes costs 1.4 times its instructions.
VERIFIED_PER_INSTRUCTION = 1.5


def plan(model: TreeEnsemble, shape: str = "auto") -> Plan:
    """Choose the cheapest shape that stays under half of every limit, or check the one asked for.

    Raises InputError where the model does not fit, saying what would.
    """
    shapes.check_shape(shape)
    size = [_instructions(model, tree) for tree in model.trees]
    total = sum(size)
    of_trees = int(VERIFIED_PER_INSTRUCTION * total)
    instructions, verified = (
        total + shapes.INSTRUCTIONS_OF_THE_REST,
        of_trees + shapes.verified_of_the_rest(len(model.used_features)),
    )
    few = len(model.used_features) <= shapes.FEATURES_BESIDE_INLINE_TREES
    limit = shapes.INLINE_TREES if few else shapes.INLINE_INSTRUCTIONS
    if shape == "inline" or (shape == "auto" and total <= limit):
        why = "small enough to stand in place, without a call"
        verified += (shapes.WAYS_TO_INFERENCE - 1) * of_trees
        return Plan("inline", why, ((tuple(order(model)),),), instructions + total, verified)
    _check_nesting(model)
    chunks = _chunks(model, size)
    functions = len(chunks) + sum(len(cut(model, tree)) for tree in model.trees)
    fits = functions <= shapes.SUBPROGRAM_LIMIT and verified <= shapes.VERIFIED_LIMIT
    if shape == "functions" or (shape == "auto" and fits):
        why = f"too large to stand in place: {functions} functions, verified once each"
        return Plan("functions", why, (tuple(chunks),), instructions, verified)
    programs = _programs(model, chunks, size)
    if len(programs) > shapes.TAIL_CALL_LIMIT:
        nodes = sum(tree.n_nodes for tree in model.trees)
        raise InputError(
            f"model: {len(model.trees)} trees with {nodes} nodes need {len(programs)} tail calls; the kernel "
            f"allows {shapes.TAIL_CALL_LIMIT}: about {nodes * shapes.TAIL_CALL_LIMIT // len(programs)} nodes "
            "would fit; train fewer or shallower trees (max_depth, max_leaf_nodes)"
        )
    why = f"too large for one program: a chain of {len(programs)}"
    return Plan("tail-calls", why, tuple(programs), instructions, verified)


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
        if not chunks or size + sizes[index] > shapes.FUNCTION_INSTRUCTIONS or tree.output != output:
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
        too_large = verified + shapes.VERIFIED_OF_THE_REST > shapes.VERIFIED_LIMIT
        if not programs or too_large or functions + chunk_functions > shapes.SUBPROGRAM_LIMIT:
            programs.append([])
            instructions = functions = 0
        programs[-1].append(chunk)
        instructions, functions = instructions + chunk_instructions, functions + chunk_functions
    return [tuple(program) for program in programs]


def cut(model: TreeEnsemble, tree: Tree) -> list[int]:
    """Nodes whose subtrees become functions of their own, so that no jump is too long. Deepest first."""
    whole = _instructions(model, tree)
    if whole <= shapes.FUNCTION_INSTRUCTIONS:
        return []
    limit = tree.n_nodes * shapes.FUNCTION_INSTRUCTIONS // (2 * whole)
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
        if max(calls) > shapes.NESTED_CALL_LIMIT:
            raise InputError(
                f"model, tree {index}: a path of {tree.depth} tests needs {max(calls)} functions inside each "
                f"other; the kernel allows {shapes.NESTED_CALL_LIMIT}: train shallower trees "
                "(max_depth, max_leaf_nodes)"
            )
