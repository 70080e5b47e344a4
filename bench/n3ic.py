# SPDX-License-Identifier: Apache-2.0
"""What siracusano-n3ic measures of binary networks (Figures 13 to 15, 17, 18 and 3), of wirewise.

    python -m bench.n3ic --output build/bench/n3ic.json

The same networks run in the kernel (BPF_PROG_TEST_RUN) and in the engine, packet by packet with parsing, flow
table and features; on rows in batches (`wirewised infer`, the role of the paper's bnn-exec); and as circuits
in simulation, whose cycles count at the paper's 200 MHz. Kernel and engine take turns, as do the sizes of a
batch. Before anything is timed, each way's classes are compared with the others', and those of rows and
circuits with the reference. Where PyTorch has a CUDA device, a batch goes to it and back too.

Prints the tables of docs/n3ic.md and draws its figures; --keep writes both into docs/.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import polars as pl

from bench import engine, files, gpu, machine, n3ic_tables
from bench.files import at_least
from bench.n3ic_plots import plot
from bench.programs import (
    FLOW,
    HARA2023,
    PACKETS,
    SEED,
    binary_network,
    bundle_of,
    compiled,
    compiled_from,
    feature_rows,
)
from tests.verilog import bench as circuits
from wirewise import agent
from wirewise.datasets import write_capture
from wirewise.errors import WirewiseError
from wirewise.models import BinaryMlp
from wirewise.targets import ebpf, verilog
from wirewise.traffic import generate

PARTS = ("packets", "batches", "circuits", "gpu")
MHZ = 200
FLOW_PACKETS = 10
"""Of a flow, of which the last is judged: 1.8 million flows/s are 18.1 million packets/s in the paper."""
PARALLEL = (1, 8)
"""Neurons that a circuit computes at once."""
_TABLE_SIZE = 65_536
_ALONE = 20_000  # packets by themselves, in all rounds
_DOCS = Path(__file__).parents[1] / "docs"


@dataclass(frozen=True)
class Subject:
    """A network of the paper's. inputs : bits. layers : hidden ones; two classes follow."""

    figure: str
    inputs: int
    layers: tuple[int, ...]

    @property
    def name(self) -> str:
        return "-".join(map(str, (self.inputs, *self.layers, 2)))

    def model(self) -> BinaryMlp:
        return binary_network(self.inputs, *self.layers)


TRAFFIC = Subject("traffic", 256, (32, 16))
SUBJECTS = (
    TRAFFIC,
    *(Subject("tomography", 152, layers) for layers in ((32, 16), (64, 32), (128, 64))),
    *(Subject("size", 256, (neurons,)) for neurons in (32, 64, 128)),
)

Rows = list[dict[str, Any]]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives the exit code."""
    options = _parser().parse_args(arguments)

    def shown(report: dict[str, Any]) -> None:
        n3ic_tables.show(report)
        plot(report["results"], options.output.parent)
        if options.keep:
            plot(report["results"], _DOCS)
            files.fill(_DOCS / "n3ic.md", n3ic_tables.tables(report))

    return files.report_on(options, measure, shown, keep_as="-n3ic")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Compiles what has changed, checks that all ways agree, then times."""
    facts, clang_path = machine.begin()
    folder: Path = options.output.parent / "n3ic"
    folder.mkdir(parents=True, exist_ok=True)
    parts = options.part or PARTS
    skipped = [f"Figure 3: {why}" for why in [gpu.missing()] if why and "gpu" in parts]
    if "circuits" in parts and not shutil.which("iverilog"):
        skipped.append("circuits: iverilog is not installed; run `make setup`")
    results: Rows = []
    for subject in SUBJECTS:
        if options.network and subject.name not in options.network:
            continue
        found: list[Rows] = []
        print(f"measuring {subject.name}", file=sys.stderr)
        if "packets" in parts:
            found.append(list(packets(subject, folder, clang_path, options)))
        if "batches" in parts:
            found.append(batches(subject, folder, clang_path, options))
        if "circuits" in parts and shutil.which("iverilog"):
            found.append(list(in_circuits(subject, options.circuit_rows)))
        if "gpu" in parts and gpu.missing() is None:
            found.append(on_gpu(subject, options))
        results += [
            {"figure": subject.figure, "network": subject.name, **row} for rows in found for row in rows
        ]
    for line in skipped:
        print(f"skipped: {line}", file=sys.stderr)
    return {"machine": facts, "skipped": skipped, "results": results}


# -- packet by packet


def packets(
    subject: Subject, folder: Path, clang_path: str, options: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Kernel and engine: the network on every packet; that for traffic also once a flow of ten packets."""
    sources = ebpf.emit(subject.model(), HARA2023)
    program = compiled_from(sources, f"bnn-{subject.name}", folder, clang_path)
    traffic = folder / f"traffic-{SEED}-{PACKETS}.pcap"
    if not traffic.is_file():
        write_capture(traffic, ((p.time_ns, p.frame) for p in generate(SEED, packets=PACKETS)))
    own = ("--object", program.path, "--seed", SEED, "--table-size", _TABLE_SIZE)
    engine.call(options.planes, "check", *own, "--capture", traffic)
    given = (*own, "--rounds", options.rounds, "--repeat", options.repeat)
    alone = ("--alone", -(-_ALONE // options.rounds))
    yield from _planes(engine.call(options.planes, "time", *given, *alone), 1, 1)
    if subject == TRAFFIC:
        # Flows of ten packets keep their entries for a while, so there must be room for all.
        repeat = max(1000, options.repeat // 10)
        flows = options.rounds * repeat // FLOW_PACKETS
        by_flow = (
            "--object", program.path, "--seed", SEED, "--table-size", 1 << (8 * flows).bit_length(),
            "--rounds", options.rounds, "--repeat", repeat,
            "--flow-packets", FLOW_PACKETS, "--trigger-packet", FLOW_PACKETS,
        )  # fmt: skip
        yield from _planes(engine.call(options.planes, "time", *by_flow), FLOW_PACKETS, FLOW_PACKETS)
        extraction = compiled(FLOW, folder, clang_path)
        given = ("--object", extraction.path, *given[2:])
        yield from _planes(engine.call(options.planes, "time", *given, *alone), 1, None)


def _planes(
    said: dict[str, Any], packets_a_flow: int, packets_a_network: int | None
) -> Iterator[dict[str, Any]]:
    """packets_a_network : of how many packets the network ran on one; None: it has none."""
    for row in said["results"]:
        if row["plane"] not in ("kernel", "engine"):
            continue
        expected = 0 if packets_a_network is None else row["packets"] // packets_a_network
        # Few flows find no place in their full bucket, and so never come to their tenth packet.
        if not expected * (1 if packets_a_flow == 1 else 0.98) <= row["inferred"] <= expected:
            raise WirewiseError(
                f"plane {row['plane']}: the network ran on {row['inferred']} packets, not {expected}"
            )
        ns = median(row["rounds_ns"]) * packets_a_flow
        yield {
            "where": row["plane"],
            "what": "flow extraction alone" if packets_a_network is None else None,
            "packets_a_flow": packets_a_flow,
            "ns": round(ns, 2),
            "per_second": round(1e9 / ns),
            "latency": row["latency"] if row["latency"]["calls"] else None,
            "rounds_ns": [round(value, 2) for value in row["rounds_ns"]],
        }


# -- on rows


def batches(subject: Subject, folder: Path, clang_path: str, options: argparse.Namespace) -> Rows:
    """The executor on rows in memory, by sizes of a batch and sets of instructions."""
    model, rows = subject.model(), feature_rows()
    with tempfile.TemporaryDirectory(prefix="wirewise-bench-") as name:
        place = Path(name)
        np.save(place / "rows.npy", rows)
        (place / "model.json").write_text(json.dumps(model.to_dict()))
        bundle = bundle_of(model, f"bnn-{subject.name}", folder, clang_path)
        agent.call("infer", place / "rows.npy", "--bundle", bundle, "-o", place / "said.parquet")
        _same(subject.name, pl.read_parquet(place / "said.parquet", glob=False), model, rows)
        said = engine.call(
            options.planes, "batches", "--model", place / "model.json", "--rows", place / "rows.npy",
            "--sizes", ",".join(map(str, options.batch or n3ic_tables.BATCHES)),
            "--rounds", options.rounds, "--repeat", options.repeat,
        )  # fmt: skip
    return [
        {
            "where": "batch",
            "batch": row["batch"],
            "instructions": row["instructions"],
            "ns": round(median(row["rounds_ns"]), 2),
            "per_second": round(1e9 / median(row["rounds_ns"])),
            "latency": row["latency"],
            "rounds_ns": [round(value, 2) for value in row["rounds_ns"]],
        }
        for row in said["results"]
    ]


def _same(name: str, said: pl.DataFrame, model: BinaryMlp, rows: Any) -> None:
    """Raises WirewiseError at the first row that the executor and the reference differ on."""
    classes, scores = model.predict(rows)
    own = said.select(pl.exclude("class")).to_numpy()
    named = np.array(["one", "two"])[classes]
    differing = np.flatnonzero((own != scores).any(axis=1) | (said["class"].to_numpy() != named))
    if len(said) != len(rows) or differing.size:
        raise WirewiseError(f"{name}: `wirewised infer` is not the model: they differ on row {differing[:1]}")


# -- in simulation


def in_circuits(subject: Subject, rows: int) -> Iterator[dict[str, Any]]:
    """Cycles in simulation, at the paper's clock. Raises WirewiseError if a result is wrong."""
    for parallel in PARALLEL:
        options = verilog.Options(input="bits", parallel=parallel)
        with tempfile.TemporaryDirectory(prefix="wirewise-bench-") as name:
            circuits.build(subject.model(), options, Path(name), rows=rows)
            said = circuits.simulate(Path(name))
        if said.wrong or said.results != rows:
            raise WirewiseError(f"{subject.name} as a circuit is not the model: {said.text[-300:]}")
        cycles = said.cycles / (said.results - 1)
        ns = said.latency * 1000 / MHZ
        yield {
            "where": "circuit",
            "parallel": parallel,
            "cycles": round(cycles, 2),
            "latency_cycles": said.latency,
            "mhz": MHZ,
            "per_second": round(MHZ * 1e6 / cycles),
            # The same for every record: nothing in a circuit waits.
            "latency": {"calls": rows, "median_ns": ns, "p95_ns": ns, "p99_ns": ns},
        }


# -- on a GPU


def on_gpu(subject: Subject, options: argparse.Namespace) -> Rows:
    """Copies to the GPU, inference and copies back."""
    found = gpu.measure(subject.model(), feature_rows(), options.batch or n3ic_tables.BATCHES, options.rounds)
    return [{"where": "gpu", **row} for row in found]


def _parser() -> argparse.ArgumentParser:
    description = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m bench.n3ic", description=description)
    add, at_least_one = parser.add_argument, at_least(1)
    add("--output", type=Path, default=Path("build/bench/n3ic.json"), metavar="FILE", help="[%(default)s]")
    add("--part", action="append", choices=PARTS, help="only this; repeatable [all]")
    names = [subject.name for subject in SUBJECTS]
    add("--network", action="append", choices=names, help="only this; repeatable [all]")
    add("--batch", type=at_least_one, action="append", metavar="N", help=f"repeatable {n3ic_tables.BATCHES}")
    add("--rounds", type=at_least_one, default=15, metavar="N", help="[%(default)s]")
    add(
        "--repeat",
        type=at_least(1000),
        default=200_000,
        metavar="N",
        help="packets or rows a round [%(default)s]",
    )
    add("--circuit-rows", type=at_least(2), default=100, metavar="N", help="that are simulated [%(default)s]")
    engine.add_planes(parser)
    add("--keep", action="store_true", help="keep the result in bench/results, tables and figures in docs")
    return parser


if __name__ == "__main__":
    sys.exit(main())
