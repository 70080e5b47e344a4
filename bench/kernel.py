# SPDX-License-Identifier: Apache-2.0
"""Nanoseconds a packet costs in the kernel, and the ratio to a program that counts and drops.

    python -m bench.kernel --output build/bench/kernel.json

Each program takes turns with the empty one (`wirewised bench`), by BPF_PROG_TEST_RUN over a TCP segment in
64 bytes, on one CPU. Figures are medians of the rounds; the ratio is to the empty program of the same rounds.
Where the kernel puts a program's code is chance and worth 4 % either way, so each is loaded several times.
Over many flows the program rewrites the packet's source address, which the empty one does not do. Triggered
programs meet one flow of 100 packets after the other, and take turns with flow extraction alone as well.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench import files, machine
from bench.files import at_least
from bench.programs import (
    EMPTY,
    FLOW,
    FLOW_PACKETS,
    PROGRAMS,
    TRIGGER_PACKETS,
    TRIGGERED,
    Compiled,
    compiled,
)
from wirewise import agent

FLOWS = (1, 10_000, 1_000_000)
_LOADS = 5
_NAMES = (*PROGRAMS, *TRIGGERED)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives the exit code."""
    return files.report_on(_parser().parse_args(arguments), measure, show, keep_as="")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Compiles what has changed, then times."""
    facts, clang_path = machine.begin()
    objects: dict[str, Compiled] = {}
    chosen = options.program or _NAMES
    beside = [FLOW] if TRIGGERED.keys() & set(chosen) else []
    for name in dict.fromkeys([EMPTY, *beside, *chosen]):
        print(f"compiling and verifying {name}", file=sys.stderr)
        objects[name] = compiled(TRIGGERED.get(name, name), options.output.parent / "objects", clang_path)
    results = []
    for flows in options.flows or FLOWS:
        results += over_flows(objects, flows, options.loads, options.rounds, options.repeat)
    return {"machine": facts, "results": results}


def over_flows(
    objects: dict[str, Compiled], flows: int, loads: int | None, rounds: int, repeat: int | None
) -> list[dict[str, Any]]:
    """Results for one number of flows, the empty program's first.

    loads: times each program is loaded; None: as many as is good. rounds: after each load. repeat: packets a
    round; None: enough to meet each flow.
    """
    repeat = repeat or max(200_000, flows)
    # Over so many flows memory decides, not where the code lies.
    loads = loads or (_LOADS if flows < max(FLOWS) else 2)
    results, of_empty = [], []
    for name, program in objects.items():
        if name == EMPTY or (name in TRIGGERED and flows > 1):
            continue
        print(f"timing {name}, {flows} flows", file=sys.stderr)
        in_turn = [objects[EMPTY].path, *([objects[FLOW].path] if name in TRIGGERED else []), program.path]
        which = [word for path in in_turn for word in ("--object", path)]
        amount = ("--rounds", rounds, "--repeat", repeat)
        over: tuple[object, ...] = ("--flows", flows)
        if name in TRIGGERED:
            packets = ",".join(map(str, TRIGGER_PACKETS))
            over = ("--flow-packets", FLOW_PACKETS, "--trigger-packets", packets)
        said = [agent.call("bench", *which, *map(str, (*over, *amount)), timeout=None) for _ in range(loads)]
        empty, *flow, timed = _joined([load["results"] for load in said])
        of_empty.append(empty["ns_per_packet"])
        results.append(_result(name, flows, timed, program) | _beside_flow(timed, flow))
    first = {"ns_per_packet": round(median(of_empty), 2), "ratio": 1.0}
    return [_result(EMPTY, flows, first, objects[EMPTY]), *results]


def _ratio(timed: dict[str, Any], beside: dict[str, Any]) -> float:
    pairs = zip(timed["rounds_ns"], beside["rounds_ns"], strict=True)
    middle: float = median(own / other for own, other in pairs)
    return round(middle, 3)


def _joined(loads: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The results of several loads of the same programs as those of one with all their rounds."""
    joined: list[dict[str, Any]] = [
        {"rounds_ns": [ns for result in same for ns in result["rounds_ns"]]}
        for same in zip(*loads, strict=True)
    ]
    for result in joined:
        result["ratio"] = _ratio(result, joined[0])
        result["ns_per_packet"] = round(median(result["rounds_ns"]), 2)
    return joined


def _result(name: str, flows: int, timed: dict[str, Any], program: Compiled) -> dict[str, Any]:
    figures = {"ns_per_packet": timed["ns_per_packet"], "ratio": timed["ratio"]}
    rounds = {"rounds_ns": timed["rounds_ns"]} if "rounds_ns" in timed else {}
    return {"program": name, "flows": flows, **figures, **program.facts, **rounds}


def _beside_flow(timed: dict[str, Any], flow: list[dict[str, Any]]) -> dict[str, Any]:
    """What a triggered program's result says more. flow: of flow extraction alone, in the same rounds."""
    if not flow:
        return {}
    return {
        "flow_packets": FLOW_PACKETS,
        "trigger_packets": list(TRIGGER_PACKETS),
        "flow_ns_per_packet": flow[0]["ns_per_packet"],
        "ratio_to_flow": _ratio(timed, flow[0]),
    }


def show(report: dict[str, Any]) -> None:
    """A table: a row a program, the flows side by side. Another of the triggered ones."""
    machine.show(report["machine"])
    triggered = [result for result in report["results"] if result["program"] in TRIGGERED]
    results = [result for result in report["results"] if result["program"] not in TRIGGERED]
    flows = list(dict.fromkeys(result["flows"] for result in results))
    print(f"\n{'ns/packet, ratio':<24}", *(f"{f'{n:,} flows':>15}" for n in flows), end="")
    print(f"  {'shape':<10} {'insns':>6} {'verified':>8} {'load ms':>7}")
    for name in dict.fromkeys(result["program"] for result in results):
        cells = [result for result in results if result["program"] == name]
        print(f"{name:<24}", *(f"{c['ns_per_packet']:>8.1f} {c['ratio']:>6.2f}" for c in cells), end="")
        size = "{shape:<10} {instructions:>6} {verified_instructions:>8} {load_ms:>7.1f}"
        print(f"  {size.format(**cells[0])}")
    if triggered:
        asked = ", ".join(map(str, TRIGGER_PACKETS))
        print(f"\nflows of {FLOW_PACKETS} packets, the model asked at {asked} of each:")
        print(f"{'ns/packet, ratio':<24} {'to empty':>15} {'to ' + FLOW:>20}")
    figures = "{ns_per_packet:>8.1f} {ratio:>6.2f} {ratio_to_flow:>20.2f}"
    for result in triggered:
        print(f"{TRIGGERED[result['program']]:<24} {figures.format(**result)}")


def _parser() -> argparse.ArgumentParser:
    description = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m bench.kernel", description=description)
    add, at_least_one = parser.add_argument, at_least(1)
    add("--output", type=Path, default=Path("build/bench/kernel.json"), metavar="FILE", help="[%(default)s]")
    add("--program", action="append", choices=_NAMES, help="only this, beside empty; repeatable")
    add("--flows", type=at_least_one, action="append", metavar="N", help=f"repeatable {list(FLOWS)}")
    add(
        "--loads",
        type=at_least_one,
        metavar="N",
        help=f"of each program [{_LOADS}; 2 over {max(FLOWS):,} flows]",
    )
    add("--rounds", type=at_least_one, default=7, metavar="N", help="after each load [%(default)s]")
    add("--repeat", type=at_least(1000), metavar="N", help="packets a round [200000, or one a flow]")
    add("--keep", action="store_true", help="keep a copy in bench/results, named after date and machine")
    return parser


if __name__ == "__main__":
    sys.exit(main())
