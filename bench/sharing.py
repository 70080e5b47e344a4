# SPDX-License-Identifier: Apache-2.0
"""What flow tables that all CPUs share cost beside those of each CPU, for every preset.

    python -m bench.sharing --output build/bench/sharing.json

Flow extraction of each preset, with either kind of table, takes turns with the other in the same short rounds
(`wirewised bench`), on one CPU: the price of claiming an entry, as nobody else wants it. Kept are ratios
alone, of medians of rounds, so that the result also holds from a machine that does other work. A preset whose
packets cost at most LIMIT more shares its tables by default (wirewise/feature_sets/presets.py).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from bench import files, machine
from bench.files import at_least
from bench.programs import compiled_from
from wirewise import agent
from wirewise.feature_sets import PRESETS
from wirewise.feature_sets.feature_set import SHARINGS
from wirewise.targets import ebpf

FLOWS = (1, 10_000)
LIMIT = 1.05
"""The most that a packet may cost, as a multiple of its cost with per-CPU tables."""
_LOADS = 5  # where the kernel puts a program's code is chance


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives the exit code."""
    return files.report_on(_parser().parse_args(arguments), measure, show, keep_as="-sharing")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Compiles both programs of each preset and times them."""
    facts, clang_path = machine.begin()
    folder = options.output.parent / "objects"
    busy = os.getloadavg()[0] > 0.5
    results = []
    for name, preset in PRESETS.items():
        objects = {}
        for sharing in SHARINGS:
            sources = ebpf.emit(None, replace(preset, sharing=sharing))
            objects[sharing] = compiled_from(sources, f"{name}-{sharing}", folder, clang_path).path
        for flows in FLOWS:
            print(f"timing {name}, {flows:,} flows", file=sys.stderr)
            ratios = _ratios(objects, flows, options.rounds, options.repeat)
            low, _, high = quantiles(ratios, n=4)
            results.append(
                {
                    "preset": name,
                    "key": preset.key,
                    "flows": flows,
                    "shared_to_per_cpu": round(median(ratios), 3),
                    "quartiles": [round(low, 3), round(high, 3)],
                    "rounds": len(ratios),
                }
            )
    return {"machine": facts, "busy": busy, "limit": LIMIT, "results": results}


def _ratios(objects: dict[str, Path], flows: int, rounds: int, repeat: int) -> list[float]:
    """The ns per packet with shared tables, as a multiple of those with per-CPU tables, round by round."""
    ratios: list[float] = []
    given = [word for path in objects.values() for word in ("--object", path)]
    for _ in range(_LOADS):
        options = map(str, ("--flows", flows, "--rounds", rounds, "--repeat", repeat))
        said = agent.call("bench", *given, *options, timeout=None)
        timed = {
            sharing: result["rounds_ns"] for sharing, result in zip(objects, said["results"], strict=True)
        }
        ratios += [a / b for a, b in zip(timed["shared"], timed["per-cpu"], strict=True)]
    return ratios


def show(report: dict[str, Any]) -> None:
    """Prints the ratios."""
    if report["busy"]:
        print("other work ran on this machine: read the ratios alone")
    for row in report["results"]:
        low, high = row["quartiles"]
        print(
            f"{row['preset']:16} {row['flows']:>7,} flows: {row['shared_to_per_cpu']:.3f} times "
            f"(half of {row['rounds']} rounds within {low:.3f} to {high:.3f})"
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.sharing", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("build/bench/sharing.json"))
    parser.add_argument("--keep", action="store_true", help="also to bench/results")
    parser.add_argument("--rounds", type=at_least(1), default=15, help="after each load of the programs")
    parser.add_argument("--repeat", type=at_least(1), default=100_000, help="packets a round")
    return parser


if __name__ == "__main__":
    sys.exit(main())
