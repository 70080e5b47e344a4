# SPDX-License-Identifier: Apache-2.0
"""`python -m wirewise` as a process of its own that need not import anything first.

    with Warm() as warm:
        done = warm.run(["features", "day.pcap", ...], folder, environment)

A process imports the package and its libraries once, uses none of them, and forks for every command. That
saves a second and a half of imports for each, most of the time that a refusal takes.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import runpy
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).parents[2]
REQUEST_BYTES = 1 << 20


class Warm:
    """The process that forks, from the first command on."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    def __enter__(self) -> Warm:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process and self._socket:
            self._socket.close()
            self._process.wait()

    def run(
        self, words: Sequence[str], folder: Path, environment: Mapping[str, str], *, timeout_s: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """The command with nothing to read, in a folder; as `subprocess.run` with its output as text."""
        with (
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
            Path(os.devnull).open("rb") as nothing,
        ):
            request = {"words": list(words), "folder": str(folder), "environment": dict(environment)}
            channel = self._started()
            socket.send_fds(
                channel, [json.dumps(request).encode()], [f.fileno() for f in (nothing, out, err)]
            )
            channel.settimeout(timeout_s)
            code = int(channel.recv(64))
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read().decode())
        return subprocess.CompletedProcess(["wirewise", *words], code, *texts)

    def _started(self) -> socket.socket:
        if self._socket is None:
            self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            paths = os.pathsep.join([str(ROOT / "python"), str(ROOT)])
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.warm", str(other.fileno())],
                env={**os.environ, "PYTHONPATH": paths}, pass_fds=[other.fileno()], stdin=subprocess.DEVNULL,
            )  # fmt: skip
            other.close()
        return self._socket


def serve(channel: socket.socket) -> bool:
    """Answers requests with exit codes until the other side is gone: false. True: run what sys.argv says."""
    while True:
        request, files, _, _ = socket.recv_fds(channel, REQUEST_BYTES, 3)
        if not request:
            return False
        child = os.fork()
        if not child:
            channel.close()
            for number, file in enumerate(files):
                os.dup2(file, number)
                os.close(file)
            wanted = json.loads(request)
            os.environ.clear()
            os.environ.update(wanted["environment"])
            os.chdir(wanted["folder"])
            sys.argv = ["wirewise", *wanted["words"]]
            return True
        for file in files:
            os.close(file)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with contextlib.suppress(BrokenPipeError):
            channel.send(str(code).encode())


def import_all() -> None:
    """What the commands import when they need it."""

    import wirewise.datasets.published  # noqa: F401
    import wirewise.tuning  # noqa: F401


if __name__ == "__main__":
    import_all()
    gc.collect()
    gc.freeze()  # so that no collection in a child touches, and copies, all that was imported
    if serve(socket.socket(fileno=int(sys.argv[1]))):
        # As the interpreter does, with all that happens at its end.
        runpy.run_module("wirewise", run_name="__main__", alter_sys=True)
