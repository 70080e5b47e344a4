# SPDX-License-Identifier: Apache-2.0
"""The machine a measurement was made on, and what may disturb it."""

from __future__ import annotations

import os
import platform
import re
import sys
import textwrap
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from wirewise import agent
from wirewise.targets.ebpf import clang

_VULNERABILITIES = Path("/sys/devices/system/cpu/vulnerabilities")
_UNAFFECTED = "Not affected"
FIRST = ("setsid", "sh", "-c", 'echo -20 >/proc/self/autogroup; exec nice -n -20 "$@"', "sh")
"""Runs a command before all others, in a session of its own: where the kernel shares a CPU between sessions,
niceness holds within one, and that file is about the session."""


def begin() -> tuple[dict[str, object], str]:
    """Facts of the machine, and the path of its compiler; warns of what disturbs.

    To be called before anything is compiled, which is load of our own.
    """
    disturbed = disturbances()
    for line in disturbed:
        print(f"warning: {line}", file=sys.stderr)
    clang_path = clang.find_clang()
    return {**describe(clang.clang_version(clang_path)), "disturbances": disturbed}, clang_path


def describe(clang_version: str) -> dict[str, object]:
    """Facts that a figure means nothing without."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "clang": clang_version,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "mitigations": {path.name: _line(path) for path in sorted(_VULNERABILITIES.glob("*"))},
        "bpf_jit": {
            name: _line(Path("/proc/sys/net/core") / name) for name in ("bpf_jit_enable", "bpf_jit_harden")
        },
        "load_average": round(os.getloadavg()[0], 2),
    }


def show(facts: dict[str, Any]) -> None:
    """What a reader of the figures wants to know first. Some mitigations make each call slower."""
    lines = [f"{facts['cpu']}, {facts['cores']} cores, Linux {facts['kernel']}, clang {facts['clang']}"]
    lines += [f"{name}: {line}" for name, line in facts["mitigations"].items() if line != _UNAFFECTED]
    print(*map(wrapped, lines), sep="\n")


def wrapped(line: str) -> str:
    """A line that may be long, in 80 columns."""
    return textwrap.fill(line, 80, subsequent_indent="  ")


def disturbances() -> list[str]:
    """What makes the figures worse than they are, a line each."""
    found = []
    load = os.getloadavg()[0]
    if load > 1:
        found.append(f"the load average is {load:.1f}: something else runs; figures will be too high")
    if _line(Path("/proc/sys/kernel/bpf_stats_enabled")) == "1":
        found.append("kernel.bpf_stats_enabled is 1: every run of a program reads a clock twice")
    if (path := agent.find()).parent.name == "debug":
        found.append(f"the agent is {path}, compiled without optimisation")
    agents = [p.parent.name for p in Path("/proc").glob("[0-9]*/comm") if _line(p) == "wirewised"]
    return [*found, *(f"another wirewised runs: process {number}" for number in agents)]


def short_name(facts: dict[str, object]) -> str:
    """A name for files of results, such as `amd-epyc-6-18`."""
    kernel = ".".join(str(facts["kernel"]).split(".")[:2])
    return re.sub(r"[^a-z0-9]+", "-", f"{facts['cpu']} {kernel}".lower()).strip("-")


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _line(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:  # not on this kernel, or a process that has just ended
        return "unknown"
