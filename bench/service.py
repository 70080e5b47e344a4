# SPDX-License-Identifier: Apache-2.0
"""What the service takes while packets of a million flows pass and it is scraped each second.

    python -m bench.service --output build/bench/service.json

UDP packets of 60 bytes, one of each flow in turn, go through a veth pair into a forest that the service keeps
there. Its processor time, memory and descriptors are what the kernel counts.
"""

from __future__ import annotations

import argparse
import http.client
import json
import math
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench import files, machine
from bench.programs import HARA2023, forest
from bench.sender import BURST, Sender
from wirewise import agent
from wirewise.compiler import compile
from wirewise.demo.network import Wire, wire
from wirewise.errors import WirewiseError

_FRAME = 60
_TICKS = os.sysconf("SC_CLK_TCK")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--flows", type=files.at_least(BURST), default=1_000_000, help="default: %(default)s")
    parser.add_argument(
        "--rate", type=files.at_least(1), default=200_000, help="packets/s; default: %(default)s"
    )
    parser.add_argument("--seconds", type=files.at_least(5), default=600, help="default: %(default)s")
    parser.add_argument("--output", type=Path, default=Path("build/bench/service.json"))
    parser.add_argument("--keep", action="store_true", help="also keep the result in bench/results")
    return files.report_on(parser.parse_args(arguments), measure, show, keep_as="-service")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Starts everything, waits until all flows are known, then counts for `seconds`."""
    facts, _ = machine.begin()
    size = 1 << math.ceil(math.log2(2 * options.flows))
    with tempfile.TemporaryDirectory() as name, wire() as made, serving(Path(name), made, size) as service:
        with flood(made, options.flows, options.rate) as sender:
            print("filling the flow table", file=sys.stderr)
            while sender.sent < 2 * options.flows:
                sender.check()
                time.sleep(0.1)
            print(f"measuring for {options.seconds} s", file=sys.stderr)
            sent, start = sender.sent, time.monotonic()
            samples = [service.sample()]
            for second in range(1, options.seconds + 1):
                time.sleep(max(0, start + second - time.monotonic()))
                sender.check()
                samples.append(service.sample())
            seconds, rate = time.monotonic() - start, (sender.sent - sent)
        last = samples[-1]
    scrapes = sorted(it["scrape_ms"] for it in samples)
    return {
        "machine": facts,
        "conditions": {
            "flows": options.flows, "packets_per_second": round(rate / seconds), "seconds": round(seconds),
            "flow_table_size": size, "frame_bytes": _FRAME,
        },
        "core_percent": round(100 * (last["cpu_s"] - samples[0]["cpu_s"]) / seconds, 2),
        "rss_mib": course([it["rss_mib"] for it in samples]),
        "descriptors": course([it["descriptors"] for it in samples]),
        "scrape_ms": {
            "median": median(scrapes), "p99": scrapes[len(scrapes) * 99 // 100], "most": scrapes[-1],
        },
        "flow_entries": last["flow_entries"],
        "packets_judged": last["packets"] - samples[0]["packets"],
    }  # fmt: skip


def course(values: Sequence[float]) -> dict[str, float]:
    """How something went over time."""
    return {"first": values[0], "median": median(values), "most": max(values), "last": values[-1]}


class Service:
    """A service that runs, and what it takes."""

    def __init__(self, process: subprocess.Popen[bytes], control: Path) -> None:
        self.process, self.control = process, control

    def sample(self) -> dict[str, float]:
        """One scrape, and what the kernel counts of the process and of the commands that it ran."""
        begin = time.perf_counter()
        metrics = self.metrics()
        scrape = time.perf_counter() - begin
        folder = Path("/proc", str(self.process.pid))
        times = (folder / "stat").read_text().rpartition(")")[2].split()[11:15]
        pages = int((folder / "statm").read_text().split()[1])
        return {
            "scrape_ms": round(1000 * scrape, 2),
            "cpu_s": sum(map(int, times)) / _TICKS,
            "rss_mib": round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1),
            "descriptors": len(list((folder / "fd").iterdir())),
            "packets": total(metrics, "wirewise_packets_total"),
            "flow_entries": total(metrics, "wirewise_flow_entries_total"),
        }

    def metrics(self) -> list[str]:
        """The lines of /metrics. Raises WirewiseError if the service does not answer."""
        connection = http.client.HTTPConnection("localhost", timeout=60)
        connection.sock = socket.socket(socket.AF_UNIX)
        try:
            connection.sock.settimeout(60)
            connection.sock.connect(str(self.control))
            connection.request("GET", "/metrics")
            answer = connection.getresponse()
            if answer.status != 200:
                raise WirewiseError(f"the service answers /metrics with {answer.status}")
            return answer.read().decode().splitlines()
        finally:
            connection.close()


def total(metrics: Sequence[str], name: str) -> int:
    """The sum of the samples of a metric."""
    return sum(int(line.rpartition(" ")[2]) for line in metrics if line.startswith((f"{name}{{", f"{name} ")))


@contextmanager
def serving(folder: Path, made: Wire, table_size: int) -> Iterator[Service]:
    """A service that keeps a forest on the inner end of the wire."""
    bundle = compile(forest(10, 8), HARA2023, name="forest", classes=["a", "b"], verify="never").bundle
    bundle.write(folder / "forest.wirewise")
    config, control = folder / "wirewised.yaml", folder / "control.sock"
    place = {
        "interface": made.receiver,
        "netns": made.inside,
        "bundle": "forest.wirewise",
        "flow_table_size": table_size,
    }
    config.write_text(json.dumps({"version": 1, "interfaces": [place], "socket": {"path": str(control)}}))
    program = Path(agent.find()).with_name("wirewised-serve")
    process = subprocess.Popen([program, "--config", config], stderr=subprocess.PIPE)
    try:
        service = Service(process, control)
        _wait(process, lambda: total(service.metrics(), "wirewise_attached") == 1)
        yield service
    finally:
        process.terminate()
        process.wait()
        subprocess.run(
            [agent.find(), "detach", "--interface", made.receiver, "--netns", made.inside],
            check=False, capture_output=True,
        )  # fmt: skip


def _wait(process: subprocess.Popen[bytes], attached: Callable[[], bool]) -> None:
    for _ in range(600):
        if process.poll() is not None:
            assert process.stderr
            raise WirewiseError(f"the service ended: {process.stderr.read().decode()[-500:]}")
        with suppress(OSError):
            if attached():
                return
        time.sleep(0.1)
    raise WirewiseError("the service did not attach the program within a minute")


def flood(made: Wire, flows: int, rate: int) -> Sender:
    """Sends one packet of each flow in turn."""
    head = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, _FRAME - 14, 0, 0, 0, 0, 64, 17, 0, 0]
    ends = [10, 0, 0, 0, 192, 0, 2, 1, 0x9C, 0x40, 0, 53, 0, _FRAME - 34]
    frame = bytes(head + ends).ljust(_FRAME, b"\0")
    sources = np.arange(flows, dtype=">u4") + (10 << 24)

    def vary(frames: np.ndarray, number: int) -> None:
        begin = number % (flows // BURST) * BURST
        frames[:, 26:30] = sources[begin : begin + BURST].view(np.uint8).reshape(BURST, 4)

    return Sender(made.outside, made.sender, frame, vary, rate)


def show(report: dict[str, Any]) -> None:
    """What was measured, a line each."""
    machine.show(report["machine"])
    at, memory, scrape = report["conditions"], report["rss_mib"], report["scrape_ms"]
    load = f"{at['flows']:,} flows, {at['packets_per_second']:,} packets/s"
    print(f"{load}, a scrape each second for {at['seconds']} s")
    print(f"  processor    {report['core_percent']} % of a core")
    print(
        f"  memory       {memory['first']} MiB at first, {memory['most']} at most, {memory['last']} at last"
    )
    print(f"  scrape       {scrape['median']} ms, 99th percentile {scrape['p99']}, at most {scrape['most']}")
    print(
        f"  descriptors  {report['descriptors']['first']} at first, {report['descriptors']['most']} at most"
    )


if __name__ == "__main__":
    sys.exit(main())
