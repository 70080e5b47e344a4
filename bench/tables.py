# SPDX-License-Identifier: Apache-2.0
"""From a capture to a table of features: `wirewised features` beside a pandas group-by doing the same."""

from __future__ import annotations

import json
import resource
import struct
import tempfile
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from statistics import median
from time import perf_counter
from types import ModuleType
from typing import Any

import numpy as np
import polars as pl

from bench.programs import HARA2023, SEED, Compiled
from wirewise import agent
from wirewise.datasets import read_capture, write_capture
from wirewise.errors import MissingFeatureError, WirewiseError
from wirewise.traffic import generate

PROGRAM = "flow-hara2023"
# Long flows, so few for the table that none loses its entry (but under 17 of 1,000 seeds), for pandas
# forgets none.
_MIX = {"bulk": 0.5, "web": 0.25, "quic": 0.25}
_TABLE_SIZE = 1 << 19
_KEPT = 96  # bytes of a frame: what `tcpdump -s 96` keeps, enough for every header here
_FLOWS = 10_000  # of 64-byte segments


def measure(program: Compiled, packets: int, rounds: int) -> list[dict[str, Any]]:
    """Seconds from captures of generated traffic to a Parquet file, and of what pandas' are made.

    Raises WirewiseError if the tables differ, MissingFeatureError without pandas.
    """
    try:
        from bench import by_pandas
    except ImportError as error:
        raise MissingFeatureError(f"{error}; run `pip install 'wirewise[bench]'`") from error
    with tempfile.TemporaryDirectory(prefix="wirewise-bench-") as folder:
        return [
            row
            for what, capture, total in _captures(Path(folder), packets)
            for row in _measure(by_pandas, program, what, capture, total, rounds)
        ]


def _captures(folder: Path, packets: int) -> Iterator[tuple[str, Path, int]]:
    """What, where, and how many packets; a capture is there until the next is asked for."""
    path, whole = folder / "capture.pcap", folder / "whole.pcap"
    yield "64-byte segments", path, write_capture(path, _segments(packets))
    traffic = ((p.time_ns, p.frame) for p in generate(SEED, packets=packets, mix=_MIX))
    total = write_capture(whole, traffic)
    yield "whole frames", whole, total
    write_capture(path, ((p.time_ns, p.frame[:_KEPT]) for p in read_capture(whole)))
    yield f"{_KEPT} bytes a frame", path, total


def _segments(packets: int) -> Iterator[tuple[int, bytes]]:
    """TCP segments in 64 bytes, the size that bench.kernel runs, of flows that take turns."""
    ethernet = bytes(12) + b"\x08\x00"
    ip = struct.pack("!BxHIBBxx4x4s", 0x45, 50, 0, 64, 6, bytes([192, 0, 2, 1]))
    tcp = struct.pack("!HHIIBBHxxxx", 40_000, 443, 1, 1, 0x50, 0x10, 1024) + bytes(10)
    frames = [
        ethernet + ip[:12] + bytes([10, 0, flow >> 8, flow & 255]) + ip[16:] + tcp for flow in range(_FLOWS)
    ]
    gaps = np.random.default_rng(SEED).integers(100, 1000, packets)
    return zip(np.cumsum(gaps).tolist(), cycle(frames), strict=False)


def _measure(
    by_pandas: ModuleType, program: Compiled, what: str, capture: Path, total: int, rounds: int
) -> list[dict[str, Any]]:
    """total: packets of the capture."""
    features, table, by_group = (capture.with_suffix(end) for end in (".json", ".parquet", ".pandas"))
    features.write_text(json.dumps(HARA2023.to_dict()))
    ours, streamed, ours_cpu = [], [], []
    steps, steps_cpu = [], []
    for index in range(rounds):
        start, start_cpu = perf_counter(), _cpu(resource.RUSAGE_CHILDREN)
        said = agent.call(
            "features", capture, "--object", program.path, "--feature-set", features,
            "--table-size", str(_TABLE_SIZE), "--seed", str(SEED), "-o", table, timeout=None,
        )  # fmt: skip
        ours.append(perf_counter() - start)
        ours_cpu.append(_cpu(resource.RUSAGE_CHILDREN) - start_cpu)
        streamed.append(said["seconds"])
        if said["packets"] != total or said["flows"]["evicted"] or said["flows"]["refused"]:
            raise WirewiseError(f"not every packet kept its flow: {said['packets']}, {said['flows']}")
        times, own_cpu = [perf_counter()], _cpu(resource.RUSAGE_SELF)
        frame = by_pandas.read(capture)
        times.append(perf_counter())
        grouped = by_pandas.features(frame)
        times.append(perf_counter())
        grouped.to_parquet(by_group)
        times.append(perf_counter())
        steps.append(np.diff(times).tolist())
        steps_cpu.append(_cpu(resource.RUSAGE_SELF) - own_cpu)
        if index == 0:
            _same(table, {column: grouped[column].to_numpy() for column in grouped})
    size = capture.stat().st_size

    def row(step: str, seconds: list[float], cpu: list[float] | None = None) -> dict[str, Any]:
        middle = median(seconds)
        return {
            "what": step,
            "capture": what,
            "packets": total,
            "capture_bytes": size,
            "seconds": round(middle, 4),
            "cpu_seconds": cpu and round(median(cpu), 4),
            "packets_per_second": round(total / middle),
            # How many times as long as wirewised, process start and verification included.
            "ratio": round(median(a / b for a, b in zip(seconds, ours, strict=True)), 2),
            "rounds_s": [round(value, 4) for value in seconds],
        }

    return [
        row("wirewised features", ours, ours_cpu),
        row("wirewised features, once loaded", streamed),
        row("pandas", [sum(step) for step in steps], steps_cpu),
        row("pandas: parsing", [step[0] for step in steps]),
        row("pandas: group-by", [step[1] for step in steps]),
        row("pandas: writing Parquet", [step[2] for step in steps]),
    ]


def _cpu(whose: int) -> float:
    """Seconds on a CPU so far, of this process or of the ended ones that it started."""
    usage = resource.getrusage(whose)
    return usage.ru_utime + usage.ru_stime


def _same(table: Path, expected: dict[str, Any]) -> None:
    """Raises WirewiseError at the first value in which the two tables differ."""
    ours = pl.read_parquet(table, glob=False)
    for column, values in expected.items():
        own = ours[column].to_numpy()
        if len(own) != len(values):
            raise WirewiseError(f"pandas has {len(values)} packets, the table of wirewised {len(own)}")
        differing = np.flatnonzero(own != values)
        if differing.size:
            first = differing[0]
            raise WirewiseError(
                f"packet {first + 1}: {column} is {values[first]} by pandas, {own[first]} by wirewised"
            )


def show(rows: list[dict[str, Any]]) -> None:
    """A line for each; the packets are the same."""
    kept = None
    for row in rows:
        if row["capture"] != kept:
            kept = row["capture"]
            size = f"{row['packets']:,} packets, {kept} ({row['capture_bytes'] / 1e6:,.0f} MB)"
            print(f"\nfrom a capture of {size} to a Parquet file of hara2023, the same by both:")
        rate = f"{row['packets_per_second'] / 1e6:.2f} million packets/s"
        cpu = "" if row["cpu_seconds"] is None else f"{row['cpu_seconds']:.3f} s of CPU"
        print(f"  {row['what']:<32} {row['seconds']:>9.3f} s  {rate:>24}  x{row['ratio']:<6} {cpu}")
