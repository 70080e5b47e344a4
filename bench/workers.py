# SPDX-License-Identifier: Apache-2.0
"""Two engines on shared maps, each on a CPU of its own, beside one: what a second worker adds.

Each has flows of its own, as from a network card that divides them, in bursts of 64. Its figure counts the
time that it is on the CPU, so it leaves out what else the machine does, but not what the two take from each
other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from bench.programs import HARA2023, PROGRAMS, SEED, compiled_from
from wirewise.targets import ebpf

SHARED = "flow-shared"
"""hara2023 by conversation, whose table CPUs share."""
NAMES = ("flow-hara2023", SHARED, "forest-10x10", "mlp-int8-16x16")
FLOWS = 10_000
WORKERS = 2


def _sources(name: str) -> ebpf.Sources:
    if name != SHARED:
        return PROGRAMS[name]()
    return ebpf.emit(None, replace(HARA2023, name=SHARED, key="five-tuple-bidirectional", sharing="shared"))


def measure(
    folder: Path, clang_path: str, rounds: int, call: Callable[..., dict[str, Any]], names: Iterable[str]
) -> list[dict[str, Any]]:
    """A row a program. call : crates/wirewised/examples/planes with arguments."""
    results = []
    for name in names:
        program = compiled_from(_sources(name), name, folder, clang_path)
        said = call(
            "workers", "--object", program.path, "--seed", SEED, "--table-size", 65_536,
            "--flows", FLOWS, "--workers", WORKERS, "--rounds", rounds,
        )  # fmt: skip
        one, several = said["one_rounds_mpps"], said["several_rounds_mpps"]
        results.append(
            {
                "program": name,
                "flows": FLOWS,
                "workers": WORKERS,
                "one_mpps": round(median(one), 2),
                "several_mpps": round(median(several), 2),
                # What disturbs a round disturbs both.
                "ratio": round(median(b / a for a, b in zip(one, several, strict=True)), 3),
                "one_rounds_mpps": [round(value, 2) for value in one],
                "several_rounds_mpps": [round(value, 2) for value in several],
            }
        )
    return results


def show(results: list[dict[str, Any]]) -> None:
    """A row a program."""
    print(f"\n{'million packets/s':<28} {'one worker':>12} {f'{WORKERS} workers':>12} {'ratio':>8}")
    for row in results:
        title = f"{row['program']}, {row['flows']:,} flows"
        print(f"{title:<28} {row['one_mpps']:>12.1f} {row['several_mpps']:>12.1f} {row['ratio']:>8.2f}")
