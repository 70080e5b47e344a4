# SPDX-License-Identifier: Apache-2.0
"""Processes of Python that need not import anything first.

    done = WARM.run(["features", "day.pcap", ...], folder, environment)  # `python -m wirewise`

`WARM.start` takes the place of `isolated.start`, whose processes read model files.

A process imports the package and its libraries once, uses none of them, and forks for every request. That
saves one to three seconds of imports for each. A refusal, or reading a model, takes little else.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
REQUEST_BYTES = 1 << 20


class Warm:
    """The process that forks, from the first request on."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None

    def run(
        self, words: Sequence[str], folder: Path, environment: Mapping[str, str], *, timeout_s: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """The command with nothing to read, in a folder; as `subprocess.run` with its output as text."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            request = {"words": list(words), "folder": str(folder), "environment": dict(environment)}
            code = self._started(request, [out.fileno(), err.fileno()]).wait(timeout_s)
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read().decode())
        return subprocess.CompletedProcess(["wirewise", *words], code, *texts)

    def start(self, program: str, end: int, environment: Mapping[str, str]) -> Started:
        """A process that does what `program` says, with file `end` open; what it prints is lost."""
        request = {
            "program": program,
            "end": end,
            "folder": str(Path.cwd()),
            "environment": dict(environment),
        }
        with Path(os.devnull).open("wb") as nothing:
            return self._started(request, [nothing.fileno(), nothing.fileno(), end])

    def _started(self, request: dict[str, Any], files: list[int]) -> Started:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            socket.send_fds(self._channel(), [json.dumps(request).encode()], [theirs.fileno(), *files])
        return Started(ours)

    def _channel(self) -> socket.socket:
        if self._socket is None:
            self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            paths = os.pathsep.join([str(ROOT / "python"), str(ROOT)])
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.warm", str(other.fileno())],
                env={**os.environ, "PYTHONPATH": paths}, pass_fds=[other.fileno()], stdin=subprocess.DEVNULL,
            )  # fmt: skip
            other.close()
            # At exit, finalizers run last to first. Those of our children ask how they ended.
            weakref.finalize(self, _end, process, self._socket)
        return self._socket


def _end(process: subprocess.Popen[bytes], channel: socket.socket) -> None:
    channel.close()
    process.wait()


WARM = Warm()


class Started:
    """A process of `Warm`, asked like one of subprocess. answers : says its number, then how it ended."""

    def __init__(self, answers: socket.socket) -> None:
        self._answers = answers
        self._code: int | None = None
        self.pid = int(answers.recv(64))

    def wait(self, timeout_s: float | None = None) -> int:
        """The exit code, or the signal below zero. Raises TimeoutError."""
        if self._code is None:
            self._answers.settimeout(timeout_s)
            self._code = int(self._answers.recv(64))
            self._answers.close()
        return self._code

    def poll(self) -> int | None:
        """The same, None while it runs."""
        with contextlib.suppress(BlockingIOError):
            return self.wait(0)
        return None

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


def serve(channel: socket.socket) -> Callable[[], object] | None:
    """Forks for every request, and says how the children end, until the other side is gone. In a child: what
    it is to do.
    """
    children: dict[int, tuple[int, socket.socket]] = {}
    while True:
        ready, _, _ = select.select([channel, *children], [], [])
        for ended in set(ready) - {channel}:
            pid, answers = children.pop(ended)
            os.close(ended)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            with answers, contextlib.suppress(BrokenPipeError):  # nobody wants to know
                answers.send(str(code).encode())
        if channel not in ready:
            continue
        request, (*files,), _, _ = socket.recv_fds(channel, REQUEST_BYTES, 4)
        if not request:
            return None
        answers = socket.socket(fileno=files.pop(0))
        child = os.fork()
        if not child:
            channel.close()
            answers.close()
            for descriptor, (_, other) in children.items():
                os.close(descriptor)
                other.close()
            return _task(json.loads(request), files)
        for file in files:
            os.close(file)
        answers.send(str(child).encode())
        children[os.pidfd_open(child)] = child, answers


def _task(wanted: dict[str, Any], files: list[int]) -> Callable[[], object]:
    """What the child is to do, with its files and surroundings in place."""
    for number, file in enumerate(files[:2], 1):
        os.dup2(file, number)
    if len(files) > 2 and files[2] != wanted["end"]:
        os.dup2(files[2], wanted["end"])
    for file in files:
        if file != wanted.get("end"):
            os.close(file)
    os.environ.clear()
    os.environ.update(wanted["environment"])
    os.chdir(wanted["folder"])
    if "program" in wanted:
        sys.argv = ["-c"]
        return lambda: exec(wanted["program"], {"__name__": "__main__"})
    sys.argv = ["wirewise", *wanted["words"]]
    # As the interpreter does, with all that happens at its end.
    return lambda: runpy.run_module("wirewise", run_name="__main__", alter_sys=True)


def import_all() -> None:
    """What the commands and the reading of models import when they need it."""

    import sklearn.ensemble  # noqa: F401
    import sklearn.linear_model  # noqa: F401
    import sklearn.neural_network  # noqa: F401
    import sklearn.pipeline  # noqa: F401

    import wirewise.datasets.published  # noqa: F401
    import wirewise.importers.reading  # noqa: F401
    import wirewise.tuning  # noqa: F401


if __name__ == "__main__":
    import_all()
    gc.collect()
    gc.freeze()  # so that no collection in a child touches, and copies, all that was imported
    if task := serve(socket.socket(fileno=int(sys.argv[1]))):
        task()
