# SPDX-License-Identifier: Apache-2.0
"""Nanoseconds a packet costs in the kernel.

    python -m bench.kernel --output build/bench/kernel.json

Programs take turns in short rounds (`wirewised bench`), by BPF_PROG_TEST_RUN over a TCP segment in 64 bytes
(`dns`: a query), on one CPU: each with the empty one, which counts and drops; those with a model or more
features also with flow extraction alone; and those with a counterpart in the published style
(bench/published) also with that. Figures are medians of the rounds, as are differences and ratios to the
others of the same rounds. Before a counterpart is timed, 100,000 packets of generated traffic must get the
same verdicts from both.

Where the kernel puts a program's code is chance and worth 4 % either way, so each is loaded several times.
Over many flows the program rewrites the packet's source address, which the empty one does not do. Triggered
programs meet one flow of 100 packets after the other.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from operator import sub, truediv
from pathlib import Path
from statistics import median
from typing import Any

from bench import files, machine, published
from bench.files import at_least
from bench.programs import (
    AGGREGATES,
    CLOCK,
    EMPTY,
    FLOW,
    FLOW_BOTH_WAYS,
    FLOW_PACKETS,
    FORESTS,
    FRAMES,
    GROUPS,
    NETWORKS,
    PROGRAMS,
    TRIGGER_PACKETS,
    TRIGGERED,
    Compiled,
    compiled,
)
from wirewise import agent
from wirewise.datasets import write_capture

FLOWS = (1, 10_000, 1_000_000)
_LOADS = 5
_NAMES = tuple(dict.fromkeys([EMPTY, CLOCK, *PROGRAMS, *TRIGGERED, *published.COUNTERPART]))
_PUBLISHED = {ours: name for name, ours in published.COUNTERPART.items()}
_EXTRACTION = {
    **dict.fromkeys((*AGGREGATES, *FORESTS, *NETWORKS, *TRIGGERED, *published.COUNTERPART), FLOW),
    **dict.fromkeys(GROUPS, FLOW_BOTH_WAYS),
}
"""Program -> what it does beside something else, alone."""

Timed = dict[str, list[float]]
"""Program -> its rounds, in ns a packet."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives the exit code."""
    return files.report_on(_parser().parse_args(arguments), measure, show, keep_as="")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Compiles what has changed, checks the verdicts of what is compared by them, then times."""
    facts, clang_path = machine.begin()
    folder = options.output.parent / "objects"
    # A counterpart is timed beside ours, so either name stands for both.
    chosen = dict.fromkeys(published.COUNTERPART.get(name, name) for name in options.program or _NAMES)
    beside = [_EXTRACTION[name] for name in chosen if name in _EXTRACTION]
    objects: dict[str, Compiled] = {}
    for name in dict.fromkeys([EMPTY, *beside, *chosen]):
        print(f"compiling and verifying {name}", file=sys.stderr)
        objects[name] = compiled(TRIGGERED.get(name, name), folder, clang_path)
    compared = [_PUBLISHED[name] for name in chosen if name in _PUBLISHED]
    checks = []
    for name in compared:
        print(f"comparing the verdicts of {name} and {published.COUNTERPART[name]}", file=sys.stderr)
        checks.append(published.check(name, folder, clang_path, options.check_packets))
    results = []
    for flows in options.flows or FLOWS:
        room = published.room_for(flows)
        others = {name: published.compiled(name, room, folder, clang_path) for name in compared}
        results += over_flows(
            objects | others, list(chosen), flows, options.loads, options.rounds, options.repeat
        )
    return {"machine": facts, "checks": checks, "results": results}


def over_flows(
    objects: dict[str, Compiled],
    chosen: Sequence[str],
    flows: int,
    loads: int | None,
    rounds: int,
    repeat: int | None,
) -> list[dict[str, Any]]:
    """Results of programs and their counterparts for one number of flows, the empty program's first.

    loads: times each program is loaded; None: as many as is good. rounds: after each load. repeat: packets a
    round; None: enough to meet each flow.
    """
    repeat = repeat or max(200_000, flows)
    # Over so many flows memory decides, not where the code lies.
    loads = loads or (_LOADS if flows < max(FLOWS) else 2)
    names = [name for name in chosen if name != EMPTY and not (name in TRIGGERED and flows > 1)]
    results, of_empty = [], []
    for name in names or [EMPTY]:
        beside = [*([_EXTRACTION[name]] if name in _EXTRACTION else []), *_counterparts(name)]
        print(f"timing {name}, {_title(flows)}", file=sys.stderr)
        over: tuple[object, ...] = ("--flows", flows)
        if name in TRIGGERED:
            packets = ",".join(map(str, TRIGGER_PACKETS))
            over = ("--flow-packets", FLOW_PACKETS, "--trigger-packets", packets)
        paths = {of: objects[of].path for of in (EMPTY, *beside, name)}
        if name in FRAMES:
            frame = paths[name].with_suffix(".pcap")
            write_capture(frame, [(0, FRAMES[name]())])
            over = (*over, "--frame", frame)
        timed = _time(paths, (*over, "--rounds", rounds, "--repeat", repeat), loads)
        of_empty.append(median(timed[EMPTY]))
        if name != EMPTY:
            results += [_result(of, flows, timed, objects[of]) for of in (name, *_counterparts(name))]
    first = {"ns_per_packet": round(median(of_empty), 2), "ratio": 1.0}
    return [{"program": EMPTY, "flows": flows, **first, **objects[EMPTY].facts}, *results]


def _counterparts(name: str) -> list[str]:
    return [_PUBLISHED[name]] if name in _PUBLISHED else []


def _time(paths: dict[str, Path], options: Sequence[object], loads: int) -> Timed:
    """The rounds of programs that take turns. options : of `wirewised bench`."""
    given = [word for path in paths.values() for word in ("--object", path)]
    timed: Timed = {name: [] for name in paths}
    for _ in range(loads):
        said = agent.call("bench", *given, *map(str, options), timeout=None)
        for rounds, result in zip(timed.values(), said["results"], strict=True):
            rounds += result["rounds_ns"]
    return timed


def _result(name: str, flows: int, timed: Timed, program: Compiled) -> dict[str, Any]:
    """What is said of one program, beside those that took turns with it."""

    def beside(other: str, compare: Callable[[float, float], float], of: str = name) -> float:
        # What disturbs a round disturbs all programs of it.
        return median(map(compare, timed[of], timed[other]))

    result: dict[str, Any] = {
        "program": name,
        "flows": flows,
        "ns_per_packet": round(median(timed[name]), 2),
        "above_empty_ns": round(beside(EMPTY, sub), 2),
        "ratio": round(beside(EMPTY, truediv), 3),
    }
    if flow := _EXTRACTION.get(name):
        result |= {
            "flow_ns_per_packet": round(median(timed[flow]), 2),
            "above_flow_ns": round(beside(flow, sub), 2),
            "ratio_to_flow": round(beside(flow, truediv), 3),
        }
    if counterparts := _counterparts(name):
        result["times_faster"] = round(beside(name, truediv, of=counterparts[0]), 3)
    if name in TRIGGERED:
        result |= {"flow_packets": FLOW_PACKETS, "trigger_packets": list(TRIGGER_PACKETS)}
    return result | program.facts | {"rounds_ns": timed[name]}


def show(report: dict[str, Any]) -> None:
    """A table for each number of flows, one of the triggered programs, and one of sizes; in 80 columns."""
    machine.show(report["machine"])
    for said in report["checks"]:
        verdicts = ", ".join(f"{count:,} {what}" for what, count in said["verdicts"].items())
        same = f"{said['published']} and {said['program']} agree on {said['packets']:,} packets"
        print(machine.wrapped(f"{same} ({verdicts})"))
    triggered = [result for result in report["results"] if result["program"] in TRIGGERED]
    results = [result for result in report["results"] if result["program"] not in TRIGGERED]
    for flows in dict.fromkeys(result["flows"] for result in results):
        print(f"\n{_title(flows):<22} {'ns/':>10} {'above':>10} {'above flow':>12} {'times faster than':>20}")
        print(f"{'':<22} {'packet':>10} {'empty':>10} {'extraction':>12} {'published design':>20}")
        for result in results:
            if result["flows"] == flows:
                _show_times(result["program"], result)
    if triggered:
        asked = ", ".join(map(str, TRIGGER_PACKETS))
        print(f"\nflows of {FLOW_PACKETS} packets, the model asked at {asked} of each:")
    for result in triggered:
        _show_times(TRIGGERED[result["program"]], result)
    print(f"\n{'':<22} {'shape':<12} {'instructions':>12} {'verified':>12} {'load ms':>10}")
    for result in results:
        if result["flows"] == results[0]["flows"]:
            size = "{shape:<12} {instructions:>12,} {verified_instructions:>12,} {load_ms:>10,.1f}"
            print(f"{result['program']:<22} {size.format(**result)}")


def _title(flows: int) -> str:
    return "1 flow" if flows == 1 else f"{flows:,} flows"


def _show_times(name: str, result: dict[str, Any]) -> None:
    cells = [
        f"{result[key]:,.{digits}f}".rjust(width) if key in result else " " * width
        for key, digits, width in (
            ("ns_per_packet", 1, 10),
            ("above_empty_ns", 1, 10),
            ("above_flow_ns", 1, 12),
            ("times_faster", 2, 20),
        )
    ]
    print(" ".join([f"{name:<22}", *cells]).rstrip())


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
    add(
        "--check-packets",
        type=at_least(1000),
        default=published.CHECK_PACKETS,
        metavar="N",
        help="on which verdicts are compared [%(default)s]",
    )
    add("--keep", action="store_true", help="keep a copy in bench/results, named after date and machine")
    return parser


if __name__ == "__main__":
    sys.exit(main())
