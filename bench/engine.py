# SPDX-License-Identifier: Apache-2.0
"""Nanoseconds a packet costs in the kernel, in the engine, in the engine caged, and as native C.

    python -m bench.engine --output build/bench/engine.json

Each program runs in every plane in turn, in one process and on one CPU, over the TCP segment of bench.kernel:
the kernel runs it over and over and rewrites its address for each flow; in the other planes the same packets
lie in memory, one a flow. All have the same flow tables (seed, size) and read the same kind of clock. Figures
are medians of the rounds; the ratios are to the kernel, and to `native`, the same C compiled by clang -O2 for
this processor (bench/native), in the same rounds.

Before that, every plane runs generated traffic at its own times, and must come to the same features and
verdict for each packet. Programs with a model are compared with scikit-learn's `predict` of the same trees,
called from Python with one packet or with 10,000; it computes no features.

Then: trained models, their C alone beside the libraries they come from, a packet a call; from a capture file
to a Parquet file of features by `wirewised features`, and by a pandas group-by that comes to the same; two
engines on shared maps beside one; and the agent's peak memory on a capture of 10 MB and one of 2 GB.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from bench import estimator, files, inference, machine, memory, native, tables, workers
from bench.files import at_least
from bench.programs import (
    EMPTY,
    FORESTS,
    NETWORKS,
    PACKETS,
    PROGRAMS,
    SEED,
    Compiled,
    compiled,
    feature_rows,
    forest,
)  # fmt: skip
from wirewise.datasets import write_capture
from wirewise.errors import MissingFeatureError, WirewiseError
from wirewise.traffic import generate

PARTS = ("planes", "inference", "tables", "workers", "memory")
FLOWS = (1, 10_000)
PLANES = ("kernel", "engine", "engine-caged", *native.OPTIMISED, "estimator", "estimator-batch")
LIMITS = {"engine": 1.15, "engine-caged": 1.25}
"""Plane -> the ratio to native that it should not exceed."""
_BASE = next(iter(native.OPTIMISED))
_SMALLEST_TABLE = 65_536
_HOW_TO_BUILD = "cargo build --release --locked -p wirewised --example planes"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives the exit code."""
    return files.report_on(_parser().parse_args(arguments), measure, show, keep_as="-engine")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Compiles what has changed, checks that the planes agree, then times."""
    facts, clang_path = machine.begin()
    folder = options.output.parent / "objects"
    folder.mkdir(parents=True, exist_ok=True)
    report: dict[str, Any] = {"machine": facts}
    parts = options.part or PARTS
    if "planes" in parts:
        report |= planes(folder, clang_path, options)
    if "inference" in parts:
        report["inference"] = inference.measure(folder, clang_path, options.rounds)
    if "tables" in parts:
        print("timing a capture to Parquet, wirewised and pandas", file=sys.stderr)
        extracting = compiled(tables.PROGRAM, folder, clang_path)
        report["tables"] = tables.measure(extracting, options.table_packets, options.python_rounds)
    if "workers" in parts:
        print("timing two engines on shared maps", file=sys.stderr)
        report["workers"] = workers.measure(
            folder,
            clang_path,
            options.rounds,
            partial(call, options.planes),
            options.program or workers.NAMES,
        )
    if "memory" in parts:
        print("measuring memory over captures of several sizes", file=sys.stderr)
        extracting = compiled(tables.PROGRAM, folder, clang_path)
        report["memory"] = memory.measure(extracting, options.output.parent)
    return report


def planes(folder: Path, clang_path: str, options: argparse.Namespace) -> dict[str, Any]:
    """The programs in every plane: `checks`, and figures as `results`."""
    traffic = folder / f"traffic-{SEED}-{PACKETS}.pcap"
    if not traffic.is_file():
        write_capture(traffic, ((p.time_ns, p.frame) for p in generate(SEED, packets=PACKETS)))
    results, checks = [], []
    for name in options.program or PROGRAMS:
        print(f"compiling {name}", file=sys.stderr)
        program = compiled(name, folder, clang_path)
        if name != EMPTY:  # which is no data path, and looks at no packet
            checks.append(check(name, program, folder, clang_path, traffic, options.planes))
        base = 0.0
        for flows in options.flows or FLOWS:
            print(f"timing {name}, {flows} flows", file=sys.stderr)
            timed = over_flows(name, program, folder, clang_path, flows, options)
            results += timed
            base = base or next(row["ns_per_packet"] for row in timed if row["plane"] == _BASE)
        if name in FORESTS:
            print(f"timing {name}, scikit-learn", file=sys.stderr)
            results += in_python(name, base, options.python_rounds)
    return {"checks": checks, "results": results}


def check(
    name: str, program: Compiled, folder: Path, clang_path: str, traffic: Path, planes: Path
) -> dict[str, Any]:
    """Runs traffic through every plane. Raises WirewiseError at the first packet on which two differ."""
    so = native.compiled(
        PROGRAMS[name](), folder / name, clang_path, _BASE, seed=SEED, table_size=_SMALLEST_TABLE, check=True
    )
    said = call(
        planes, "check", "--object", program.path, "--native", f"{_BASE}={so}", "--seed", SEED,
        "--table-size", _SMALLEST_TABLE, "--capture", traffic,
    )  # fmt: skip
    return {"program": name, **said}


def over_flows(
    name: str, program: Compiled, folder: Path, clang_path: str, flows: int, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Results of one program over one number of flows, a plane each."""
    table_size = max(_SMALLEST_TABLE, 1 << (2 * flows - 1).bit_length())
    sources = PROGRAMS[name]()
    natives: list[str | Path] = []
    for plane in native.OPTIMISED:
        so = native.compiled(
            sources, folder / name, clang_path, plane, seed=SEED, table_size=table_size, check=False
        )
        natives += ["--native", f"{plane}={so}"]
    said = call(
        options.planes, "time", "--object", program.path, *natives, "--seed", SEED,
        "--table-size", table_size, "--flows", flows, "--rounds", options.rounds, "--repeat", options.repeat,
    )  # fmt: skip
    base = next(row["rounds_ns"] for row in said["results"] if row["plane"] == _BASE)
    kernel = next(row["rounds_ns"] for row in said["results"] if row["plane"] == "kernel")
    _agree(name, said["results"])
    return [_result(name, flows, row, base, kernel) for row in said["results"]]


def _agree(name: str, rows: list[dict[str, Any]]) -> None:
    """All planes got as many packets; with a model, it ran on every one of them in every plane."""
    for row in rows:
        expected = row["packets"] if name in FORESTS or name in NETWORKS else 0
        if (row["packets"], row["inferred"]) != (rows[0]["packets"], expected):
            raise WirewiseError(
                f"{name}: plane {row['plane']} ran {row['packets']} packets, and its model on "
                f"{row['inferred']}; plane {rows[0]['plane']} ran {rows[0]['packets']}"
            )


def _result(
    name: str, flows: int, row: dict[str, Any], base: Sequence[float], kernel: Sequence[float]
) -> dict[str, Any]:
    rounds = row["rounds_ns"]
    ns = median(rounds)
    return {
        "program": name,
        "plane": row["plane"],
        "flows": flows,
        "ns_per_packet": round(ns, 2),
        # What disturbs a round disturbs all planes of it.
        "ratio": round(median(own / other for own, other in zip(rounds, base, strict=True)), 3),
        "ratio_to_kernel": round(median(own / other for own, other in zip(rounds, kernel, strict=True)), 3),
        "packets_per_second": round(1e9 / ns),
        "compile_ms": row["compile_ms"] and round(row["compile_ms"], 2),
        "rounds_ns": [round(value, 1) for value in rounds],
    }


def in_python(name: str, base: float, rounds: int) -> list[dict[str, Any]]:
    """Results of the same model in scikit-learn. base : ns a packet takes natively, to compare with."""
    rows = estimator.measure(forest(*FORESTS[name]), feature_rows(), rounds, calls=20)
    return [
        {
            "program": name,
            "plane": plane,
            "flows": None,
            "ns_per_packet": round(median(values), 1),
            "ratio": round(median(values) / base, 3),
            "packets_per_second": round(1e9 / median(values)),
            "compile_ms": None,
            "rounds_ns": [round(value, 1) for value in values],
        }
        for plane, values in rows.items()
    ]


def call(planes: Path, *arguments: str | Path | int) -> dict[str, Any]:
    """What crates/wirewised/examples/planes says."""
    if not planes.is_file():
        raise MissingFeatureError(f"{planes}: not there; run `{_HOW_TO_BUILD}`, or give --planes FILE")
    done = subprocess.run([str(planes), *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise WirewiseError(done.stderr.strip().removeprefix("error: ")[-1000:] or f"{planes} failed")
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def add_planes(parser: argparse.ArgumentParser) -> None:
    """The option that says where crates/wirewised/examples/planes is."""
    built = Path("target/release/examples/planes")
    parser.add_argument(
        "--planes", type=Path, default=built, metavar="FILE", help=f"made by `{_HOW_TO_BUILD}` [%(default)s]"
    )


def show(report: dict[str, Any]) -> None:
    """Tables of what was measured."""
    machine.show(report["machine"])
    if "results" in report:
        show_planes(report["results"], report["checks"])
    if "inference" in report:
        inference.show(report["inference"])
    if "tables" in report:
        tables.show(report["tables"])
    if "workers" in report:
        workers.show(report["workers"])
    if "memory" in report:
        memory.show(report["memory"])


def show_planes(results: list[dict[str, Any]], checks: list[dict[str, Any]]) -> None:
    """A row a program and number of flows, the planes side by side; `*`: above its limit. The last column is
    the engine's time in the kernel's.
    """
    names = [plane for plane in PLANES if any(row["plane"] == plane for row in results)]
    print(
        "\n" + f"{'ns/packet, ratio to native':<28}",
        *(f"{plane:>18}" for plane in names),
        f"{'engine/kernel':>14}",
    )
    lines: dict[tuple[str, int | None], dict[str, dict[str, Any]]] = {}
    for row in results:
        lines.setdefault((row["program"], row["flows"]), {})[row["plane"]] = row
    for (name, flows), cells in lines.items():
        title = f"{name}, predict" if flows is None else f"{name}, {flows:,} flows"
        beside = f"{cells['engine']['ratio_to_kernel']:>14.2f}" if "engine" in cells else ""
        print(f"{title:<28}", *(f"{_cell(cells.get(plane)):>18}" for plane in names), beside)
    for said in checks:
        verdicts = ", ".join(f"{count:,} {what}" for what, count in said["verdicts"].items())
        print(f"{said['program']}: all planes agree on {said['packets']:,} packets ({verdicts})")


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    mark = "*" if row["ratio"] > LIMITS.get(row["plane"], float("inf")) else " "
    return f"{row['ns_per_packet']:,.1f} {row['ratio']:>6.2f}{mark}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.engine",
        description=__doc__,
        epilog="Example: python -m bench.engine --program flow-hara2023 --flows 10000 --rounds 5",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add, at_least_one = parser.add_argument, at_least(1)
    add("--output", type=Path, default=Path("build/bench/engine.json"), metavar="FILE", help="[%(default)s]")
    add("--part", action="append", choices=PARTS, help="only this; repeatable [all]")
    add("--program", action="append", choices=list(PROGRAMS), help="only this; repeatable [all]")
    add("--flows", type=at_least_one, action="append", metavar="N", help=f"repeatable {list(FLOWS)}")
    add("--rounds", type=at_least_one, default=15, metavar="N", help="over all planes [%(default)s]")
    add("--repeat", type=at_least(1000), default=200_000, metavar="N", help="packets a round [%(default)s]")
    add(
        "--python-rounds",
        type=at_least_one,
        default=3,
        metavar="N",
        help="of scikit-learn and pandas [%(default)s]",
    )
    add(
        "--table-packets",
        type=at_least(1000),
        default=1_000_000,
        metavar="N",
        help="of the capture [%(default)s]",
    )
    add_planes(parser)
    add("--keep", action="store_true", help="keep a copy in bench/results, named after date and machine")
    return parser


if __name__ == "__main__":
    sys.exit(main())
