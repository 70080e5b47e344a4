# SPDX-License-Identifier: Apache-2.0
"""The input selector (siracusano-n3ic, section 3.2): where the model's features come from.

Features are signed 64-bit numbers. In metadata their sign bit is turned over, so that unsigned comparisons
and range matches order them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from wirewise.models import Bounded
from wirewise.targets.p4.program import CLASS_BITS, SIGN, Program, lit, mask

REGISTERS_KEY = "five-tuple"
"""What a flow's element in the registers is found by."""


def feature_names(names: Sequence[str]) -> list[str]:
    """Of the fields and registers: the features' own, as far as P4 allows."""
    return [f"f{index}_{re.sub('[^A-Za-z0-9_]', '_', name)}" for index, name in enumerate(names)]


def declare_features(program: Program, used: Sequence[int], names: Sequence[str]) -> dict[int, str]:
    """Declares header or registers, and reads them. The features that are used, as words in metadata."""
    words = {index: program.meta(64, f"u{index}") for index in used}
    if program.options.input == "registers":
        _read_registers(program, words, names)
        return words
    program.stage("features, so that unsigned numbers order them")
    for index, word in words.items():
        program.features_header.append((64, names[index]))
        program.do(f"{word} = hdr.features.{names[index]} ^ {lit(64, SIGN)};")
    return words


def _read_registers(program: Program, words: dict[int, str], names: Sequence[str]) -> None:
    bits = program.options.flows.bit_length() - 1
    flow = program.meta(bits, "flow")
    program.stage("the flow's element of each feature's register")
    if program.options.flavour == "v1model":
        key = (
            "{ hdr.ipv4.source, hdr.ipv4.destination, hdr.ports.source, hdr.ports.destination, "
            "hdr.ipv4.protocol }"
        )
        program.do(f"hash({flow}, HashAlgorithm.crc32, {lit(bits, 0)}, {key}, 32w{program.options.flows});")
        for index, word in words.items():
            name = f"register_{names[index]}"
            program.declarations.append(f"register<bit<64>>({program.options.flows}) {name};")
            program.do(f"{name}.read({word}, (bit<32>) {flow});", f"{word} = {word} ^ {lit(64, SIGN)};")
        return
    folded = program.meta(32, "folded")
    program.do(
        f"{folded} = hdr.ipv4.source ^ hdr.ipv4.destination ^ (hdr.ports.source ++ hdr.ports.destination);",
        f"{folded} = {folded} ^ ({folded} >> 16) ^ (bit<32>) hdr.ipv4.protocol;",
        f"{flow} = (bit<{bits}>) ({folded} ^ ({folded} >> {bits}));",
    )
    for index, word in words.items():
        name = f"{names[index]}_reg_rw"
        program.externs += [
            "@Xilinx_MaxLatency(1)",
            f"@Xilinx_ControlWidth({bits})",
            f"extern void {name}(in bit<{bits}> index, in bit<64> newVal, in bit<8> opCode, "
            "out bit<64> result);",
        ]
        program.do(f"{name}({flow}, 64w0, REG_READ, {word});", f"{word} = {word} ^ {lit(64, SIGN)};")
    program.constants.append("const bit<8> REG_READ = 8w0;")


def choose_class(program: Program, scores: Sequence[str], width: int, zero: int) -> None:
    """Sets meta.class_id to the largest score, ties to the lowest class; of a lone score, whether it is above
    `zero`. scores : unsigned words of this width.
    """
    program.stage("the class")
    if len(scores) == 1:
        program.do(f"meta.class_id = ({lit(7, 0)} ++ ({program.at_least(width, scores[0], zero + 1)}));")
        return
    left: list[tuple[str, str]] = [(score, lit(CLASS_BITS, index)) for index, score in enumerate(scores)]
    best = [program.meta(width, f"best{index}") for index in range(len(scores) // 2)]
    leader = [program.meta(CLASS_BITS, f"leader{index}") for index in range(len(scores) // 2)]
    wins = program.meta(1, "wins")
    while len(left) > 1:  # a knock-out round, in which the lower class wins a tie
        won = []
        for index in range(len(left) // 2):
            (a, first), (b, second) = left[2 * index : 2 * index + 2]
            program.do(f"{wins} = {program.below(width, a, b)};")
            program.do(f"{leader[index]} = {first} ^ (({first} ^ {second}) & {mask(CLASS_BITS, wins)});")
            program.do(f"{best[index]} = {a} ^ (({a} ^ {b}) & {mask(width, wins)});")
            won.append((best[index], leader[index]))
        left = won + left[2 * len(won) :]
    program.do(f"meta.class_id = {left[0][1]};")


def bound_class(program: Program, model: Bounded, words: dict[int, str]) -> None:
    """Sets meta.class_id to that of unknown where a feature is outside its bounds."""
    program.stage("outside of what training saw")
    outside = program.meta(1, "outside")
    program.do(f"{outside} = 1w0;")
    for bound in model.bounds:
        word = words[bound.feature]
        program.do(f"{outside} = {outside} | {program.below(64, word, bound.low ^ SIGN)};")
        program.do(f"{outside} = {outside} | {program.at_least(64, word, (bound.high ^ SIGN) + 1)};")
    unknown = lit(CLASS_BITS, model.n_classes - 1)
    program.do(
        f"meta.class_id = meta.class_id ^ ((meta.class_id ^ {unknown}) & {mask(CLASS_BITS, outside)});"
    )
