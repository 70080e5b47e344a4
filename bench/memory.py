# SPDX-License-Identifier: Apache-2.0
"""What the agent takes of memory on a small and on a huge capture: it must be the same."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

from bench.programs import HARA2023, SEED, Compiled, forest
from wirewise import agent
from wirewise.compiler import compile
from wirewise.errors import WirewiseError
from wirewise.traffic import generate

SIZES = (10_000_000, 2_000_000_000)
_RECORD = struct.Struct("<IIII")
# A process begins with the peak of the one that started it, so a small one starts the agent.
_LAUNCHER = """
import os, resource, sys
code = os.spawnv(os.P_WAIT, sys.argv[1], sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(code if code >= 0 else 1)
"""
_BLOCK = 20_000  # packets that are repeated, later each time


def measure(program: Compiled, folder: Path, sizes: tuple[int, ...] = SIZES) -> list[dict[str, Any]]:
    """Peak resident memory of `wirewised features` and `replay` by size of capture.

    folder : for the captures, which are deleted.
    """
    folder.mkdir(parents=True, exist_ok=True)
    results = []
    with tempfile.TemporaryDirectory(prefix="captures-", dir=folder) as name:
        features, bundle, capture, table = (
            Path(name) / file for file in ("f.json", "b.wirewise", "c.pcap", "t.parquet")
        )
        features.write_text(json.dumps(HARA2023.to_dict()))
        compile(forest(1, 5), HARA2023, name="tree-5", classes=["a", "b"], verify="never").bundle.write(
            bundle
        )
        commands: dict[str, list[str | Path]] = {
            "features": ["--object", program.path, "--feature-set", features, "-o", table],
            "replay": ["--bundle", bundle],
            "replay --verdicts": ["--bundle", bundle, "--verdicts", table],
        }
        for size in sizes:
            packets = write(capture, size)
            for what, options in commands.items():
                command = [agent.find(), what.partition(" ")[0], capture, *options, "--json"]
                said, peak, seconds = measured(list(map(str, command)))
                if said["packets"] != packets:
                    raise WirewiseError(f"{what}: read {said['packets']} of {packets} packets")
                results.append(
                    {
                        "command": what,
                        "capture_bytes": capture.stat().st_size,
                        "packets": packets,
                        "peak_rss_mib": round(peak / 1024, 1),
                        "seconds": round(seconds, 2),
                    }
                )
    return results


def write(path: Path, size: int) -> int:
    """Writes a capture of at least `size` bytes: generated traffic, again and again. Gives its packets."""
    block = [(packet.time_ns, packet.frame) for packet in islice(generate(SEED, packets=_BLOCK), _BLOCK)]
    duration = block[-1][0] + 1_000_000
    written = packets = 0
    with path.open("wb", buffering=1 << 20) as file:
        written += file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1))
        for start in _times(duration):
            for time_ns, frame in block:
                seconds, nanoseconds = divmod(start + time_ns, 1_000_000_000)
                written += file.write(_RECORD.pack(seconds, nanoseconds, len(frame), len(frame)))
                written += file.write(frame)
            packets += len(block)
            if written >= size:
                return packets
    raise AssertionError("time has no end")


def _times(duration: int) -> Iterator[int]:
    start = 0
    while True:
        yield start
        start += duration


def measured(command: list[str]) -> tuple[dict[str, Any], int, float]:
    """What a command says as JSON, its peak resident memory in KiB, and the seconds it took."""
    start = perf_counter()
    launcher = [sys.executable, "-I", "-S", "-c", _LAUNCHER, *command]
    done = subprocess.run(launcher, capture_output=True, text=True, check=False)
    seconds = perf_counter() - start
    if done.returncode:
        raise WirewiseError(done.stderr.strip()[-500:])
    said: dict[str, Any] = json.loads(done.stdout)
    return said, int(done.stderr.splitlines()[-1]), seconds


def show(rows: list[dict[str, Any]]) -> None:
    """A line for each."""
    print("\npeak memory:")
    for row in rows:
        size = f"{row['capture_bytes'] / 1e6:,.0f} MB, {row['packets']:,} packets"
        print(f"  {row['command']:<18} {size:<32} {row['peak_rss_mib']:>8.1f} MiB  {row['seconds']:>7.2f} s")
