# SPDX-License-Identifier: Apache-2.0
"""The real tools: p4c compiles a program, bmv2's simple_switch runs it over capture files.

    program = compile_program(tools, text, folder)
    left = run(tools, program, commands, {1: frames}, folder)

simple_switch reads PREFIX_in.pcap of each port some seconds after its start, in which its command line writes
tables and registers, and writes what leaves to PREFIX_out.pcap.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import dpkt

from tests.patience import PATIENCE_S
from tests.ports import free_port
from wirewise.datasets import write_capture

PORTS = 4
FIRST_WAIT_S = 4
COMMANDS_PER_S = 100
ATTEMPTS = 3
QUIET_S = 3.0
"""Nothing has left the switch for so long: it is done."""


class ToolError(Exception):
    """A tool refused something; what it said."""


class TooSlow(Exception):
    """The tables were not written before the first packet."""


@dataclass(frozen=True)
class Tools:
    """Paths of p4c (the driver, or p4c-bm2-ss), simple_switch and its command line."""

    p4c: str
    switch: str
    cli: str


def find() -> Tools | str:
    """The tools that WIREWISE_P4C and WIREWISE_BMV2 name (`make test-p4 P4C=... BMV2=...`), else those on the
    path; or what is missing.
    """
    p4c = _program(os.environ.get("WIREWISE_P4C"), "p4c-bm2-ss", "p4c")
    if p4c is None:
        return _missing("p4c", "P4C", os.environ.get("WIREWISE_P4C"))
    switch = _program(os.environ.get("WIREWISE_BMV2"), "simple_switch")
    if switch is None:
        return _missing("simple_switch", "BMV2", os.environ.get("WIREWISE_BMV2"))
    beside = Path(switch).parent / "simple_switch_CLI"
    cli = str(beside) if beside.exists() else shutil.which("simple_switch_CLI")
    return Tools(p4c, switch, cli) if cli else f"simple_switch_CLI is neither beside {switch} nor on the path"


def _program(given: str | None, *names: str) -> str | None:
    return next((found for name in ([given] if given else names) if (found := shutil.which(name))), None)


def _missing(what: str, variable: str, given: str | None) -> str:
    where = f"{given} is no program" if given else f"{what} is not on the path"
    return f"{where}; install it (p4.org has packages) or run `make test-p4 {variable}=PATH`"


def compile_program(tools: Tools, program: str, folder: Path) -> Path:
    """JSON for simple_switch. Raises ToolError with what p4c says, warnings included."""
    source, made = folder / "wirewise.p4", folder / "wirewise.json"
    source.write_text(program)
    if "bm2" in Path(tools.p4c).name:
        command = [tools.p4c, "--std", "p4-16", "-o", str(made), str(source)]
    else:
        command = [tools.p4c, "--target", "bmv2", "--arch", "v1model", "--std", "p4-16"]
        command += ["-o", str(folder), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    if done.returncode or not made.exists():
        raise ToolError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return made


def run(
    tools: Tools, program: Path, commands: Sequence[str], frames: dict[int, list[bytes]], folder: Path
) -> dict[int, list[bytes]]:
    """What leaves each port, in order. frames : what comes by each port. Raises ToolError."""
    wait = FIRST_WAIT_S + len(commands) // COMMANDS_PER_S
    for attempt in range(ATTEMPTS):
        with suppress(TooSlow):
            return _run(tools, program, commands, frames, folder, wait << attempt)
    raise ToolError(f"{tools.cli} did not write {len(commands)} commands in {wait << ATTEMPTS - 1} s")


def _run(
    tools: Tools,
    program: Path,
    commands: Sequence[str],
    frames: dict[int, list[bytes]],
    folder: Path,
    wait: int,
) -> dict[int, list[bytes]]:
    interfaces = []
    for port in range(PORTS):
        write_capture(folder / f"port{port}_in.pcap", ((0, frame) for frame in frames.get(port, [])))
        (folder / f"port{port}_out.pcap").unlink(missing_ok=True)
        interfaces += ["-i", f"{port}@port{port}"]
    thrift = free_port()
    command = [
        tools.switch, "--use-files", str(wait), "--thrift-port", str(thrift), "--device-id", str(thrift),
        "--notifications-addr", f"ipc://{folder}/notifications.ipc", *interfaces, str(program),
    ]  # fmt: skip
    with (folder / "switch.log").open("w") as log:
        started = time.monotonic()
        switch = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        try:
            _write(tools, thrift, commands, switch, folder, started + wait)
            _until_quiet(switch, folder, started + wait, sum(map(len, frames.values())))
        finally:
            switch.terminate()
            try:
                switch.wait(timeout=PATIENCE_S)
            except subprocess.TimeoutExpired:
                switch.kill()
                switch.wait()
    return {port: _frames(folder / f"port{port}_out.pcap") for port in range(PORTS)}


def _write(
    tools: Tools,
    thrift: int,
    commands: Sequence[str],
    switch: subprocess.Popen[bytes],
    folder: Path,
    deadline: float,
) -> None:
    while not _listens(thrift):
        if switch.poll() is not None:
            raise ToolError(f"simple_switch ended: {(folder / 'switch.log').read_text()}")
        if time.monotonic() > deadline:
            raise TooSlow
        time.sleep(0.1)
    text = "".join(f"{line}\n" for line in ["set_queue_depth 100000", *commands])
    done = subprocess.run(
        [tools.cli, "--thrift-port", str(thrift)],
        input=text,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    said = done.stdout + done.stderr
    refused = [line for line in said.splitlines() if "error" in line.lower() or "invalid" in line.lower()]
    if done.returncode or refused:
        raise ToolError("simple_switch_CLI: " + ("\n".join(refused[:10]) or said))
    if time.monotonic() > deadline:
        raise TooSlow


def _until_quiet(switch: subprocess.Popen[bytes], folder: Path, start: float, expected: int) -> None:
    """Waits until as many packets have left as came, or none has for a while (those that are dropped)."""
    seen, since = 0, start
    while (now := time.monotonic()) < max(start, since) + QUIET_S:
        if switch.poll() is not None:
            raise ToolError(f"simple_switch ended: {(folder / 'switch.log').read_text()}")
        left = sum(len(_frames(folder / f"port{port}_out.pcap")) for port in range(PORTS))
        if left >= expected:
            return
        if left > seen:
            seen, since = left, now
        time.sleep(0.2)


def _frames(path: Path) -> list[bytes]:
    """Of a capture that may still be written to: its whole packets."""
    found = []
    if path.exists() and path.stat().st_size >= 24:
        with path.open("rb") as file, suppress(dpkt.NeedData):
            found += [bytes(frame) for _, frame in dpkt.pcap.Reader(file)]
    return found


def _listens(port: int) -> bool:
    with socket.socket() as one:
        one.settimeout(1)
        return one.connect_ex(("127.0.0.1", port)) == 0
