# SPDX-License-Identifier: Apache-2.0
"""Chooses how a network's pieces become functions and programs, before anything is printed."""

from __future__ import annotations

from collections.abc import Sequence

from wirewise.errors import InputError
from wirewise.targets.ebpf import shapes
from wirewise.targets.ebpf.shapes import Plan

# What the kernel counted: pieces have no branches, so each instruction is verified once. The verifier counts
# a 64-bit immediate as one, the sizes here as two.
VERIFIED_PER_INSTRUCTION = 1.0


def plan(sizes: Sequence[int], n_used_features: int, shape: str) -> Plan:
    """Choose the cheapest shape that stays under half of every limit, or check the one asked for.

    sizes: instructions of each piece, in the order in which they run. Raises InputError where they do not
    fit, saying what would.
    """
    shapes.check_shape(shape)
    total = sum(sizes)
    of_model = int(VERIFIED_PER_INSTRUCTION * total)
    instructions = total + shapes.INSTRUCTIONS_OF_THE_REST
    verified = of_model + shapes.verified_of_the_rest(n_used_features)
    if shape == "inline" or (shape == "auto" and total <= shapes.INLINE_INSTRUCTIONS):
        why = "small enough to stand in place, without a call"
        verified += (shapes.WAYS_TO_INFERENCE - 1) * of_model
        return Plan("inline", why, ((tuple(range(len(sizes))),),), instructions + total, verified)
    chunks = _filled([(piece,) for piece in range(len(sizes))], sizes, shapes.FUNCTION_INSTRUCTIONS)
    fits = len(chunks) <= shapes.SUBPROGRAM_LIMIT and verified <= shapes.VERIFIED_LIMIT
    if shape == "functions" or (shape == "auto" and fits):
        why = f"too large to stand in place: {len(chunks)} functions, verified once each"
        return Plan("functions", why, (tuple(chunks),), instructions, verified)
    room = int((shapes.VERIFIED_LIMIT - shapes.VERIFIED_OF_THE_REST) / VERIFIED_PER_INSTRUCTION)
    programs = _programs(chunks, sizes, room)
    if len(programs) > shapes.TAIL_CALL_LIMIT:
        raise InputError(
            f"model: its layers need about {total} instructions, {len(programs)} tail calls; the kernel "
            f"allows {shapes.TAIL_CALL_LIMIT}: train a network with fewer or narrower layers"
        )
    why = f"too large for one program: a chain of {len(programs)}"
    return Plan("tail-calls", why, tuple(programs), instructions, verified)


def _filled(parts: Sequence[tuple[int, ...]], sizes: Sequence[int], room: int) -> list[tuple[int, ...]]:
    """Neighbours joined as long as they stay within the room."""
    filled: list[tuple[int, ...]] = []
    taken = 0
    for part in parts:
        size = sum(sizes[piece] for piece in part)
        if filled and taken + size <= room:
            filled[-1] += part
            taken += size
        else:
            filled.append(part)
            taken = size
    return filled


def _programs(
    chunks: Sequence[tuple[int, ...]], sizes: Sequence[int], room: int
) -> list[tuple[tuple[int, ...], ...]]:
    programs: list[list[tuple[int, ...]]] = []
    taken = 0
    for chunk in chunks:
        size = sum(sizes[piece] for piece in chunk)
        if not programs or taken + size > room or len(programs[-1]) == shapes.SUBPROGRAM_LIMIT:
            programs.append([])
            taken = 0
        programs[-1].append(chunk)
        taken += size
    return [tuple(program) for program in programs]
