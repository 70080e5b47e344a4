# SPDX-License-Identifier: Apache-2.0
"""One bundle on one interface: attach, send, count, detach."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, Progress, TextColumn

from wirewise import agent
from wirewise.console import note, progress_console
from wirewise.demo.counters import Counters
from wirewise.demo.kernel_stats import program_runs, run_time_statistics
from wirewise.demo.network import Wire, inside_namespace, within
from wirewise.demo.sender import Sent, open_sender, send


@dataclass(frozen=True)
class Played:
    """What came of the packets that were sent.

    passed : packets that arrived, by tag. status, stats : what the agent says, before detaching. run_time_ns,
    runs : the kernel's own count of the program.
    """

    sent: Sent
    passed: list[int]
    status: dict[str, Any]
    stats: dict[str, Any]
    run_time_ns: int
    runs: int

    @property
    def seen(self) -> int:
        """Packets that reached the program."""
        return sum(int(row["packets"]) for row in self.stats["status"])


def play(
    wire: Wire, bundle: Path, policy: Path, packets: Sequence[tuple[int, bytes]], tags: int, *, watch: bool
) -> Played:
    """Attach a bundle natively and enforce a policy, send packets through it, and detach.

    packets : (time_ns, frame with its tag). watch : show the agent's live view meanwhile, on this terminal.
    """
    interface = ["--interface", wire.receiver]
    there = within(wire.inside)
    sender = inside_namespace(wire.outside, lambda: open_sender(wire.sender))
    counters = inside_namespace(wire.inside, lambda: Counters(wire.receiver, tags))
    try:
        run: list[str | Path] = [
            "run",
            "--bundle",
            bundle,
            *interface,
            "--plane",
            "xdp-native",
            "--mode",
            "enforce",
            "--yes",
            "--policy",
            policy,
        ]
        attached = agent.call(*run, within=there)
        if attached["mounts"]:
            note(f"mounted a BPF file system at {attached['mounts']}, as there was none; it stays")
        try:
            status = attached["status"]
            with run_time_statistics(), _view(wire, len(packets), watch) as progress:
                sent = send(sender, packets, progress)
                run_time_ns, runs = program_runs(Path(status["pins"]) / "prog")
            stats = agent.call("stats", *interface, within=there)
        finally:
            agent.call("detach", *interface, within=there)
        return Played(sent, counters.read(), status, stats, run_time_ns, runs)
    finally:
        counters.close()
        sender.close()


@contextmanager
def _view(wire: Wire, packets: int, watch: bool) -> Iterator[Any]:
    """The live view of the agent, or a progress bar where there is no terminal for it; yields what is told
    the progress.
    """
    if watch and sys.stdout.isatty():
        command = [*within(wire.inside), str(agent.find()), "stats", "--interface", wire.receiver, "--watch"]
        view = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=agent.environment())
        try:
            yield lambda sent: None
        finally:
            view.send_signal(signal.SIGINT)  # it puts the terminal back in order
            try:
                view.wait(timeout=5)
            except subprocess.TimeoutExpired:
                view.kill()
                view.wait()
        return
    columns = (TextColumn("sending"), BarColumn(), TextColumn("{task.completed:,.0f} packets"))
    with Progress(
        *columns, console=progress_console, transient=True, disable=not progress_console.is_terminal
    ) as progress:
        task = progress.add_task("sending", total=packets)
        yield lambda sent: progress.update(task, completed=sent)
