# SPDX-License-Identifier: Apache-2.0
"""The ceiling of the DPDK plane: packets a second that one core classifies when they cost next to nothing to
receive. What hara2026 (Table 4) has from a server with a network card.

    python -m bench.dpdk --output build/bench/dpdk.json

The agent runs on a virtual device of DPDK's that hands out the same packets again and again from memory
(`net_pcap` with `infinite_rx`): 64 bytes of UDP, of 256 flows in turn, copied into a buffer each time. That
is DPDK's cheapest device with packets that a model can judge: those of `net_null` are zeros, which no parser
takes for IP. What it does with them is shown beside, as what receiving alone costs. The agent has one CPU,
its own counters are read twice, some seconds apart, and a second is one of its CPU time.
"""

from __future__ import annotations

import argparse
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import files, machine
from bench.planes import PROGRAMS
from bench.programs import bundled
from wirewise import agent
from wirewise.errors import MissingFeatureError

PLANE = "dpdk"
FLOWS = 256
EMPTY = "net_null0,size=64"
SECONDS = 3.0
_SETTLE = 0.5  # seconds until caches and counters are what they will be
_SOURCE_PORT = 34  # offset in a frame


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives the exit code."""
    return files.report_on(_parser().parse_args(arguments), measure, show, keep_as="-dpdk")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Compiles what has changed, then measures each program on both devices."""
    if PLANE not in (plane["name"] for plane in agent.call("planes")["planes"]):
        raise MissingFeatureError(
            f"{agent.find()} was built without DPDK; build it as docs/planes/dpdk.md says, and name it with "
            "WIREWISED"
        )
    facts, clang_path = machine.begin()
    folder = options.output.parent / "bundles"
    folder.mkdir(parents=True, exist_ok=True)
    capture = folder.resolve() / "udp.pcap"
    write_capture(capture)
    results = []
    for name in options.program or PROGRAMS:
        bundle = bundled(name, folder, clang_path)
        devices = (f"net_pcap0,rx_pcap={capture},infinite_rx=1", EMPTY)
        results += [{"program": name, **rates(bundle, device, options.seconds)} for device in devices]
    return {"machine": facts, "results": results}


def udp_frame() -> bytes:
    """64 bytes of IPv4 with UDP, with the checksum of the header left out: nobody looks at it."""
    ethernet = bytes((2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1)) + b"\x08\x00"
    ip = bytes((0x45, 0, 0, 50, 0, 0, 0, 0, 64, 17, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2))
    return ethernet + ip + bytes((0x0F, 0xA0, 0, 53, 0, 30, 0, 0)) + bytes(22)


def write_capture(path: Path) -> None:
    """A frame of each flow."""
    frame = bytearray(udp_frame())
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for flow in range(FLOWS):
            struct.pack_into(">H", frame, _SOURCE_PORT, 1024 + flow)
            file.write(struct.pack("<IIII", 0, flow, len(frame), len(frame)) + frame)


def rates(bundle: Path, device: str, seconds: float) -> dict[str, Any]:
    """Packets in a second of the agent's CPU time, judged and classified; classified are those that the model
    ran for. share : of the CPU that the agent had.
    """
    name = device.split(",")[0]
    with running(bundle, device) as process:
        time.sleep(_SETTLE)
        begin, spent, before = time.monotonic(), cpu_time(process), counted(name)
        time.sleep(seconds)
        took, spent, after = time.monotonic() - begin, cpu_time(process) - spent, counted(name)
    judged, classified = (round((new - old) / spent) for old, new in zip(before, after, strict=True))
    return {"device": name, "share": round(spent / took, 3), "judged": judged, "classified": classified}


def cpu_time(process: int) -> float:
    """Seconds, of all its threads (proc(5))."""
    words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def counted(device: str) -> tuple[int, int]:
    """Packets with any status, and those that were classified."""
    rows = agent.call("stats", "--interface", device)["status"]
    classified = sum(int(row["packets"]) for row in rows if row["status"] == "classified")
    return sum(int(row["packets"]) for row in rows), classified


@contextmanager
def running(bundle: Path, device: str) -> Iterator[int]:
    """The agent on the last CPU; yields its process."""
    pinned = ["taskset", "--cpu-list", str(max(os.sched_getaffinity(0)))]
    run = ["run", "--bundle", str(bundle), "--plane", PLANE, "--interface", device, "--json"]
    carrier = subprocess.Popen(
        [*pinned, agent.find(), *run], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert carrier.stdout is not None and carrier.stderr is not None
        if not carrier.stdout.readline():
            raise MissingFeatureError(f"{device}: {carrier.stderr.read().strip()}")
        yield carrier.pid
    finally:
        carrier.terminate()
        carrier.communicate(timeout=30)


def show(report: dict[str, Any]) -> None:
    """A line for each program and device."""
    machine.show(report["machine"])
    print(f"\n{'program':<15} {'device':<10} {'judged/s':>12} {'classified/s':>13}  ns/packet  of the CPU")
    for row in report["results"]:
        each = 1e9 / row["judged"] if row["judged"] else 0.0
        shown = f"{row['judged']:>12,} {row['classified']:>13,} {each:10.1f} {row['share']:11.0%}"
        print(f"{row['program']:<15} {row['device']:<10} {shown}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.dpdk",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--output", type=Path, default=Path("build/bench/dpdk.json"), metavar="FILE")
    parser.add_argument("--keep", action="store_true", help="keep the result in bench/results")
    parser.add_argument("--program", action="append", choices=PROGRAMS, help="only this one")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="with each program and device")
    return parser


if __name__ == "__main__":
    sys.exit(main())
