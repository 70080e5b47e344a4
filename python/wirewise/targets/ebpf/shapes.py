# SPDX-License-Identifier: Apache-2.0
"""What a model's code can be cut into so that the verifier accepts it, and the limits that decide.

A family cuts its model into chunks of statements. By size the chunks become, in this order of preference:

- `inline`: the one chunk, in place;
- `functions`: a global function a chunk, verified once each;
- `tail-calls`: programs of such functions, for what exceeds half of a limit of one program.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from wirewise.errors import InputError, choose

SHAPES = ("inline", "functions", "tail-calls")

# Limits, and how much of them is used: half, because another compiler may need more (docs/architecture.md).
VERIFIED_LIMIT = 1_000_000 // 2
SUBPROGRAM_LIMIT = 256 // 2
TAIL_CALL_LIMIT = 33 - 1
# Of the kernel's 8 frames, ww_main, ww_process_ipv6 and the chunk's function take three.
NESTED_CALL_LIMIT = 8 - 3
# A jump spans 2^15 instructions, so what one function holds stays well below; clang's time grows faster than
# its functions (10 trees of depth 10: in place, twice, 10 times that of two functions).
FUNCTION_INSTRUCTIONS = 14_000
INLINE_INSTRUCTIONS = 5_000
# Trees may be larger where little else needs the stack: clang 14 keeps features there beside much code.
INLINE_TREES, FEATURES_BESIDE_INLINE_TREES = 10_000, 16
# IPv4 has the model in place, IPv6 calls a function with it; parsing and flow table are walked before.
WAYS_TO_INFERENCE = 2
INSTRUCTIONS_OF_THE_REST = 7_300
# Fits of what the kernel counted: 22,500 for the 12 features of hara2023 without a model, 69,000 for 64
# features with windows.
VERIFIED_OF_THE_REST, VERIFIED_PER_FEATURE = 15_000, 850


@dataclass(frozen=True)
class Plan:
    """The chosen shape. programs: per program the chunks it runs, a chunk being indices of what the family
    cuts a model into; without tail calls there is one program, part of ww_main. instructions, verified:
    predicted.
    """

    shape: str
    why: str
    programs: tuple[tuple[tuple[int, ...], ...], ...]
    instructions: int
    verified: int


@dataclass(frozen=True)
class Lowered:
    """A model's code. header: given the banner, the text of ww_model.h, which offers what bpf/main.bpf.c
    calls: ww_infer, or with tail calls ww_begin_inference, ww_add_N for each program N, ww_decide.
    """

    plan: Plan
    header: Callable[[str], str]


def check_shape(shape: str) -> None:
    """Raises InputError unless it is auto or one of SHAPES."""
    if shape not in ("auto", *SHAPES):
        raise InputError(f"shape {shape!r}", "is not known", choose(shape, ["auto", *SHAPES]))


def verified_of_the_rest(n_used_features: int) -> int:
    """Verified instructions of all that is no model."""
    return VERIFIED_OF_THE_REST + VERIFIED_PER_FEATURE * n_used_features


def begin_header(banner: str, plan: Plan, scores: int) -> list[str]:
    """The first lines of ww_model.h. scores : of the model (`models.scores`)."""
    tail = plan.shape == "tail-calls"
    lines = [
        banner,
        "#ifndef WW_MODEL_H",
        "#define WW_MODEL_H",
        "",
        "#define WW_NO_MODEL 0",
        f"#define WW_TAIL_CALLS {int(tail)}",
        f"#define WW_MODEL_IN_PLACE {int(plan.shape == 'inline')}",
        f"#define WW_SCORES {scores}",
        "",
    ]
    return [*lines, f"WW_PROGS({len(plan.programs) + 1});", ""] if tail else lines


def infer_in_one_program() -> list[str]:
    """ww_infer of a model that is in ww_main."""
    return [
        "/* Class of the features in s. */",
        "static __always_inline __u32 ww_infer(struct ww_scratch *s)",
        "{",
        "\tww_begin_inference(s);",
        "\tww_add_0(s);",
        "\treturn ww_decide(s);",
        "}",
        "",
    ]


def tail_calls(banner: str, count: int) -> str:
    """The text of ww_tail_calls.h: the chain of programs behind ww_main."""
    lines = [banner]
    for number in range(1, count + 1):
        lines += [
            'SEC("xdp")',
            f"int ww_model_{number}(WW_HOOK_CTX *ctx)",
            "{",
            "\tstruct ww_frame frame;",
            "",
            "\tif (ww_resume(&frame, ctx))",
            "\t\treturn ww_leave(WW_VERDICT_PASS);",
            f"\tww_add_{number - 1}(&frame.percpu->scratch);",
        ]
        if number < count:
            lines += [
                f"\tbpf_tail_call(ctx, &ww_progs, {number + 1});",
                "\treturn ww_leave(WW_VERDICT_PASS);",
                "}",
                "",
            ]
        else:
            lines += [
                "\treturn ww_hand_over(ctx, frame.percpu->scratch.ip_version == 4 ? ww_finish(&frame, 4)",
                "\t\t\t\t\t\t\t   : ww_finish(&frame, 6));",
                "}",
                "",
            ]
    return "\n".join(lines)
