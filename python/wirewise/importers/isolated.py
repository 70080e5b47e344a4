# SPDX-License-Identifier: Apache-2.0
"""Reads model files in a process of their own, which also makes the estimator's predictions.

Native code of other libraries aborts, crashes or never returns on files that are damaged. That then ends the
reading process, and the caller gets one line. Limits of memory and time hold for the same process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Mapping
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from wirewise.errors import MissingFeatureError
from wirewise.importers.registry import FORMATS
from wirewise.importers.request import Imported, Original, Request, Rows
from wirewise.importers.task import Limits, Task
from wirewise.parallel import processors

PACKAGE_ROOM = 1 << 30
"""Memory that the libraries themselves may take."""
ROOM_PER_BYTE = 40
"""Memory per byte of the file and of the rows: JSON numbers become Python objects."""
SECONDS, SECONDS_PER_MIB, SECONDS_TO_QUANTISE = 120, 2, 3600
LOOK_EVERY, MOST_IDLE = 5, 60
"""Seconds: how often its processor time is looked at, and how long it may stay the same."""
ROWS_AT_ONCE = 1 << 16
MOST_THREADS = 4
"""Threads of a library: each reserves memory, and the limit of memory counts it."""

_MAIN = "import sys; sys.path[:] = {path!a}; from wirewise.importers.reading import main; main({end})"


def import_isolated(path: str, request: Request) -> Imported:
    """As `dispatch.import_file`, from another process. Raises InputError if that process does not survive."""
    reader = _Reader(path, request)
    answer = reader.ask(Task(path, request, list(FORMATS.values())))
    assert isinstance(answer, Imported)
    return replace(answer, predict=reader.predict)


def try_out(path: str, request: Request) -> None:
    """Loads a saved estimator elsewhere and has it predict. Raises InputError if that ends in a crash."""
    _Reader(path, request).ask(Task(path, request, [], use="try"))


def ask_isolated(path: str, request: Request) -> Original:
    """As `original.read`, from another process, which answers for as long as the result is kept. Raises
    InputError if that process does not survive.
    """
    reader = _Reader(path, request)
    answer = reader.ask(Task(path, request, [], use="ask"))
    assert isinstance(answer, Original)
    return replace(answer, probabilities=reader.predict)


def start(program: str, end: int, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """A Python that runs `program`, with file `end` open."""
    quiet = None if os.environ.get("WIREWISE_DEBUG") else subprocess.DEVNULL
    return subprocess.Popen(
        [sys.executable, "-X", f"utf8={sys.flags.utf8_mode}", "-c", program],
        stdin=subprocess.DEVNULL, stdout=quiet, stderr=quiet, pass_fds=[end], env=environment,
    )  # fmt: skip


class _Reader:
    """The process, until nobody can ask it anything any more."""

    def __init__(self, path: str, request: Request) -> None:
        self._request = request
        self._lock = Lock()
        size = Path(path).stat().st_size + (0 if request.rows is None else request.rows.nbytes)
        seconds = SECONDS + SECONDS_PER_MIB * (size >> 20)
        self._limits = Limits(
            memory=PACKAGE_ROOM + ROOM_PER_BYTE * size,
            seconds=seconds if request.rows is None else seconds + SECONDS_TO_QUANTISE,
        )
        self._connection, theirs = Pipe()
        threads = str(min(processors(), MOST_THREADS))
        environment = {"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads, **os.environ}
        try:
            self._process = start(
                _MAIN.format(path=sys.path, end=theirs.fileno()), theirs.fileno(), environment
            )
        except OSError as error:
            self._connection.close()
            raise MissingFeatureError(
                f"cannot start {sys.executable} to read {path} ({error.strerror})"
            ) from None
        finally:
            theirs.close()
        weakref.finalize(self, _end, self._process, self._connection)
        self.ask(self._limits)

    def predict(self, x: Rows) -> Any:
        parts = range(0, max(len(x), 1), ROWS_AT_ONCE)
        return np.concatenate([self.ask(x[start : start + ROWS_AT_ONCE]) for start in parts])

    def ask(self, message: object) -> object:
        """The answer to a message; an error that is the answer is raised."""
        with self._lock:
            try:
                self._connection.send(message)
                self._wait()
                answer = self._connection.recv()
            except (OSError, EOFError):
                raise self._died() from None
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _wait(self) -> None:
        """Until there is an answer, or the process is gone. Raises InputError if it does nothing for long."""
        idle, spent = 0, self._spent()
        while not self._connection.poll(LOOK_EVERY):
            now = self._spent()
            idle, spent = (idle + LOOK_EVERY if now == spent else 0), now
            if idle >= MOST_IDLE:
                self._process.kill()
                raise self._request.refuse(
                    f"has not been read for {idle} seconds in which nothing happened",
                    "it waits for something else: save the model again",
                )

    def _spent(self) -> int:
        """Processor time so far, in ticks of the kernel's clock."""
        with contextlib.suppress(OSError):
            stat = Path(f"/proc/{self._process.pid}/stat").read_bytes()
            fields = stat.rpartition(b")")[2].split()
            return int(fields[11]) + int(fields[12])
        return 0

    def _died(self) -> Exception:
        code = self._process.wait()
        if -code == signal.SIGXCPU:
            rule = f"takes more than {self._limits.seconds} seconds to read"
        elif code < 0:
            rule = f"crashes the library that reads it ({signal.Signals(-code).name})"
        else:
            rule = f"ends the library that reads it, with exit code {code}"
        return self._request.refuse(rule, "it is damaged, save the model again")


def _end(process: subprocess.Popen[bytes], connection: Connection) -> None:
    process.kill()  # it keeps nothing, and a library that read a damaged file may crash at its regular end
    with contextlib.suppress(KeyboardInterrupt):  # a second Ctrl-C, while the first ends us
        process.wait()
    connection.close()
