# SPDX-License-Identifier: Apache-2.0
"""The network of network.sh while it is needed, the programs in it, and what the machine spends on them."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import wirewise as ww
from wirewise import agent
from wirewise.demo.network import inside_namespace, within
from wirewise.errors import WirewiseError

HERE = Path(__file__).resolve().parent
UPF = "5g-upf"
_PATIENCE_S = 60
_LOCK = Path("/run/wirewise-5g.lock")


@contextmanager
def network() -> Iterator[None]:
    """Made, and removed with all that runs there, whatever happens; by one process at a time."""
    with _LOCK.open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            script("up")
            yield
        finally:
            for interface in ("n3", "n6"):
                detach(interface)
            script("down")


def script(*arguments: str) -> None:
    """A command of network.sh. Raises WirewiseError with what it said."""
    done = subprocess.run([HERE / "network.sh", *arguments], check=False, capture_output=True, text=True)
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise WirewiseError(f"network.sh {' '.join(arguments)}: {said[-1]}")


@contextmanager
def limited(rate: str) -> Iterator[None]:
    """N6 sends no more than `rate`."""
    script("limit", rate)
    try:
        yield
    finally:
        script("unlimit")


@contextmanager
def attached(
    bundle: Path, policy: Path, mode: str, plane: str = "xdp-native", interface: str = "n3"
) -> Iterator[Path]:
    """The bundle at an interface of the UPF; yields where its program is pinned."""
    attachment = ww.run(
        bundle, interface, policy, mode=mode, plane=plane, offloads_off=plane != "xdp-native", yes=True,
        netns=UPF,
    )  # fmt: skip
    with attachment:
        yield Path(attachment.said["status"]["pins"]) / "prog"


def detach(interface: str) -> None:
    """What an end in between has left; of an interface without a program there is nothing to say."""
    command = [str(agent.find()), "detach", "--netns", UPF, "--interface", interface]
    subprocess.run(command, check=False, capture_output=True)


class Program:
    """A program of this folder in one of the namespaces, from when it is ready."""

    def __init__(self, space: str, name: str, *arguments: str | Path) -> None:
        self.name = name
        # What is only here is found, wherever this is run from; and numpy needs no threads for single rows.
        path = os.pathsep.join(filter(None, [*sys.path, os.environ.get("PYTHONPATH")]))
        self.process = subprocess.Popen(
            [*within(f"5g-{space}"), sys.executable, str(HERE / f"{name}.py"), *map(str, arguments)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
            env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip

    def ready(self) -> None:
        assert self.process.stdout is not None
        if self.process.stdout.readline() != "ready\n":
            raise WirewiseError(f"{self.name}.py: {self._last_words()}")

    def end(self) -> dict[str, Any]:
        """Tell it to end; gives its report."""
        self.process.terminate()
        try:
            said, errors = self.process.communicate(timeout=_PATIENCE_S)
        except subprocess.TimeoutExpired as error:
            raise WirewiseError(f"{self.name}.py did not end within {_PATIENCE_S} s") from error
        try:
            report: dict[str, Any] = json.loads(said)
        except ValueError as error:
            raise WirewiseError(f"{self.name}.py: {errors.strip().splitlines()[-1:] or said}") from error
        return report

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def _last_words(self) -> str:
        self.process.kill()
        lines = self.process.communicate()[1].strip().splitlines()
        return lines[-1] if lines else "ended at once"


class Traffic:
    """All programs of the user plane, with so many devices of each slice. `ended` has their reports."""

    def __init__(self, urllc: int, embb: int, *, seed: int, beside: Sequence[str | Path] = ()) -> None:
        self.devices = {"urllc": urllc, "embb": embb}
        self.seed, self.beside = seed, beside
        self.ended: dict[str, dict[str, Any]] = {}

    def __enter__(self) -> Traffic:
        self.stack = ExitStack()
        self.running: dict[str, Program] = {}
        with ExitStack() as stack:
            self._start(stack, {name: (name, name, ()) for name in ("dn", "upf", "gnb")})
            if self.beside:
                self._start(stack, {"classifier": ("upf", "classifier", self.beside)})
            self._start(
                stack,
                {
                    slice_: ("ue", "ue", (slice_, "--devices", str(count), "--seed", str(self.seed)))
                    for slice_, count in self.devices.items()
                    if count
                },
            )
            self.stack = stack.pop_all()
        return self

    def _start(self, stack: ExitStack, programs: dict[str, tuple[str, str, Sequence[str | Path]]]) -> None:
        for name, (space, file, arguments) in programs.items():
            self.running[name] = Program(space, file, *arguments)
            stack.callback(self.running[name].kill)
        for name in programs:
            self.running[name].ready()

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def end(self) -> None:
        """Senders first, so that what they have sent arrives."""
        for name in reversed(list(self.running)):
            if name == "classifier":
                time.sleep(0.3)
            self.ended[name] = self.running[name].end()
            if name == "urllc":
                time.sleep(0.5)


@dataclass
class Usage:
    """In each second: percent of all CPUs in user space, kernel and softirqs; context switches a second."""

    usr: list[float]
    sys: list[float]
    soft: list[float]
    switches: list[float]


def usage(seconds: float, every: float = 1.0) -> Usage:
    """Of the machine, for so long."""
    found = Usage([], [], [], [])
    before, then = _counters(), time.monotonic()
    for _ in range(max(1, round(seconds / every))):
        time.sleep(max(0.0, then + every - time.monotonic()))
        now, at = _counters(), time.monotonic()
        ticks = [a - b for a, b in zip(now[0], before[0], strict=True)]
        whole = max(1, sum(ticks))
        found.usr.append(100 * (ticks[0] + ticks[1]) / whole)
        found.sys.append(100 * ticks[2] / whole)
        found.soft.append(100 * (ticks[5] + ticks[6]) / whole)
        found.switches.append((now[1] - before[1]) / (at - then))
        before, then = now, at
    return found


def _counters() -> tuple[list[int], int]:
    """Ticks of all CPUs: user, nice, system, idle, iowait, irq, softirq, steal. And context switches."""
    ticks, switches = list[int](), 0
    for line in Path("/proc/stat").read_text(encoding="ascii").splitlines():
        name, *values = line.split()
        if name == "cpu":
            ticks = [int(value) for value in values[:8]]
        elif name == "ctxt":
            switches = int(values[0])
    return ticks, switches


class Sniffer:
    """Keeps what comes in at N3, with the kernel's time, while the block runs."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.packets: list[tuple[int, bytes]] = []

    def __enter__(self) -> Sniffer:
        import socket

        def opened() -> socket.socket:
            way = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            way.setsockopt(socket.SOL_SOCKET, 33, 1 << 26)  # SO_RCVBUFFORCE
            way.setsockopt(socket.SOL_SOCKET, 35, 1)  # SO_TIMESTAMPNS
            way.bind(("n3", 0x0800))
            way.settimeout(0.2)
            return way

        self.way = inside_namespace(UPF, opened)
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._keep, daemon=True)
        self.thread.start()
        return self

    def _keep(self) -> None:
        while not self.over.is_set() and len(self.packets) < self.most:
            try:
                frame, ancillary, _, _ = self.way.recvmsg(65536, 64)
            except TimeoutError:
                continue
            seconds, nanoseconds = memoryview(ancillary[0][2]).cast("q")
            self.packets.append((seconds * 1_000_000_000 + nanoseconds, frame))

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()
        self.way.close()
