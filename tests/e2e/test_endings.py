# SPDX-License-Identifier: Apache-2.0
"""SIGINT, SIGTERM and SIGHUP at random moments: exit code 128 + the signal, one line, no process, no file."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.unit.test_search import numbered_table
from wirewise import agent

pytestmark = pytest.mark.xdist_group("endings")

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
LIMIT_S = 10.0
# Signals of `make test` arrive in the first seconds of a command's run, those of `make test-slow` also later.
BEGINNING_S, LONG_S = 2.5, 6.0
"""Two seconds on a machine that does nothing else."""
CACHE = "cache"
WIREWISE = [sys.executable, "-m", "wirewise"]

COMMANDS = {
    "features": "features day.pcap -f hara2026 -l day.flows -o out.parquet",
    "features --augment": "features day.pcap -f hara2026 -l day.flows --augment ports,pace -o out.parquet",
    "features --reference": "features day.pcap -f hara2026 --reference -o out.parquet",
    "traffic": "traffic syn-flood --rate 50000 --duration 600s -o out.pcap",
    "train": "train table.parquet -e forest --trees 400 -o out.pkl",
    "compile": "compile model.pkl --table table.parquet -o out.wirewise",
    "evaluate": "evaluate model.wirewise day.pcap --labels labels.yaml --report out.html",
    "importance": "importance table.parquet --eliminate -j 2 -o out.yaml",
    "search": "search table.parquet -j 2 --trials 500 --method random -o out.pkl",
    "search -j 1": "search table.parquet -j 1 --trials 500 -e forest --trees 100-200 -o out.pkl",
}
# The others go the same ways through the code; fifty signals each meet all of them in `make test-slow`.
USUAL = ("features", "train", "compile", "search")
AGENT = {
    "replay": "replay day.pcap --bundle model.wirewise --workers 2 --passed out.pcap --verdicts out.parquet",
    "features": "features day.pcap --bundle model.wirewise -o out.jsonl",
    "trace": "trace day.pcap --bundle model.wirewise --plane engine -o out.jsonl --write-packets out.pcap",
    "verify --rebuild": "verify --bundle model.wirewise --rebuild --no-load",
}


@dataclass
class Folder:
    path: Path

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "TMPDIR": str(self.path), "XDG_CACHE_HOME": f"{self.path}/{CACHE}"}

    def files(self) -> set[str]:
        names = {str(path.relative_to(self.path)) for path in self.path.rglob("*")}
        return {name for name in names if Path(name).parts[0] != CACHE}  # what it costs to run is kept

    def processes(self) -> list[str]:
        """Command lines of the processes that were started in this folder."""
        found = []
        for process in Path("/proc").iterdir():
            if process.name.isdigit():
                try:
                    if f"TMPDIR={self.path}".encode() in (process / "environ").read_bytes():
                        found.append((process / "cmdline").read_text().replace("\0", " "))
                except OSError:  # it has ended, or is another user's
                    pass
        return found

    def clear(self, kept: set[str]) -> None:
        for name in sorted(self.files() - kept, reverse=True):
            path = self.path / name
            path.rmdir() if path.is_dir() else path.unlink()


@pytest.fixture(scope="module")
def folder() -> Iterator[Folder]:
    with tempfile.TemporaryDirectory(prefix="endings-") as name:
        Path(name).chmod(0o755)  # `verify --rebuild` compiles as another user
        yield filled(Folder(Path(name)))


def filled(made: Folder) -> Folder:
    numbered_table().write(made.path / "table.parquet")
    labels = (
        "version: 1\nrules: [{label: flood, src: 0.0.0.0/1}]\notherwise: benign\n"  # classes of the table
    )
    (made.path / "labels.yaml").write_text(labels)
    commands = (
        "traffic syn-flood --rate 20000 --duration 10s -o day.pcap",
        "train table.parquet -e forest --trees 5 -o model.pkl",
        "compile model.pkl --table table.parquet -o model.wirewise",
    )
    for command in commands:
        done = subprocess.run(
            [*WIREWISE, *command.split()], cwd=made.path, env=made.environment,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    return made


def handles(process: subprocess.Popen[str], number: int) -> bool:
    """Whether a signal of this number would not just kill a process."""
    try:
        status = Path("/proc", str(process.pid), "status").read_text()
    except OSError:
        return False
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def press(folder: Folder, command: list[str], number: int, delay_s: float, *, terminal: bool) -> float | None:
    """Seconds until the command had ended; None if it was done before. terminal : as Ctrl-C reaches a process
    and those that it started.
    """
    before = folder.files()
    process = subprocess.Popen(
        command, cwd=folder.path, env=folder.environment, start_new_session=True, text=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        limit = time.monotonic() + PATIENCE_S
        while not handles(process, signal.SIGHUP) and process.poll() is None:
            assert time.monotonic() < limit, "it does not begin"
            time.sleep(0.002)
        time.sleep(delay_s)
        start = time.monotonic()
        if process.poll() is None:
            (os.killpg if terminal else os.kill)(process.pid, number)
        said = process.communicate(timeout=PATIENCE_S)[1]
        took = time.monotonic() - start
        if process.returncode == 0:
            return None
        lines = [line for line in said.splitlines() if not line.startswith(("note: ", "warning: "))]
        assert (process.returncode, len(lines)) == (128 + number, 1), f"{process.returncode}: {said}"
        assert lines[0].startswith("error: ") and took < LIMIT_S, f"{took:.1f} s: {said}"
        while (left := folder.processes()) and time.monotonic() - start < LIMIT_S:
            time.sleep(0.05)  # an orphan that was killed may take a moment
        assert not left, left
        assert folder.files() == before, folder.files() - before
        return took
    finally:
        process.kill()
        process.wait()
        folder.clear(before)


def pressed(folder: Folder, command: list[str], times: int, within_s: float) -> list[float]:
    """At moments of its run, or of its first seconds, that are the same in every test."""
    before = folder.files()
    start = time.monotonic()
    whole = subprocess.Popen(
        command, cwd=folder.path, env=folder.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        whole.wait(timeout=within_s)
    except subprocess.TimeoutExpired:
        pass
    finally:
        whole.kill()
        whole.wait()
        while folder.processes():
            time.sleep(0.05)
        folder.clear(before)
    assert whole.returncode in (0, -signal.SIGKILL), f"{command} cannot be done at all"
    length = time.monotonic() - start
    draw = random.Random(" ".join(command[1:]))
    took = [
        press(folder, command, SIGNALS[index % 3], draw.uniform(0, length), terminal=index % 2 == 0)
        for index in range(times)
    ]
    return [each for each in took if each is not None]


@pytest.mark.parametrize("name", USUAL)
def test_a_signal_ends_the_toolkit_and_leaves_nothing(folder: Folder, name: str) -> None:
    pressed(folder, [*WIREWISE, *COMMANDS[name].split()], 3, BEGINNING_S)


@pytest.mark.parametrize("name", AGENT)
def test_a_signal_ends_the_agent_and_leaves_nothing(folder: Folder, name: str) -> None:
    pressed(folder, [str(agent.find()), *AGENT[name].split()], 6, BEGINNING_S)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*COMMANDS, *(f"agent {name}" for name in AGENT)])
def test_fifty_signals(folder: Folder, name: str) -> None:
    words = AGENT[name[6:]] if name.startswith("agent ") else COMMANDS[name]
    program = [str(agent.find())] if name.startswith("agent ") else WIREWISE
    took = pressed(folder, [*program, *words.split()], 50, LONG_S)
    print(f"{name}: {len(took)} of 50 while it ran, at most {max(took, default=0):.2f} s")


def test_the_agent_ends_with_the_toolkit_that_is_killed(folder: Folder) -> None:
    before = folder.files()
    process = subprocess.Popen(
        [*WIREWISE, *COMMANDS["features"].split()], cwd=folder.path, env=folder.environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        limit = time.monotonic() + PATIENCE_S
        while not any("wirewised" in command for command in folder.processes()):
            assert process.poll() is None and time.monotonic() < limit, "no agent was started"
            time.sleep(0.01)
        process.kill()
        process.wait()
        while folder.processes() and time.monotonic() < limit:
            time.sleep(0.05)
        assert not folder.processes()
        assert not (folder.path / "out.parquet").exists()
    finally:
        process.kill()
        process.wait()
        folder.clear(before)


def test_a_signal_that_the_caller_ignores_stays_ignored(folder: Folder) -> None:
    """Of `nohup`, and of a shell that starts a job in the background."""
    command = "trap '' HUP INT; exec \"$@\""
    for program in ([*WIREWISE, "features"], [str(agent.find()), "planes"]):
        process = subprocess.Popen(
            ["sh", "-c", command, "sh", *program],
            env=folder.environment,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        while not handles(process, signal.SIGTERM) and process.poll() is None:
            time.sleep(0.002)
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=PATIENCE_S) == 0
