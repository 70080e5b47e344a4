# SPDX-License-Identifier: Apache-2.0
"""The process that `isolated` starts: reads one model file, then predicts for the process that started it."""

from __future__ import annotations

import os
import select
import threading
import traceback
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

from wirewise.errors import InputError, WirewiseError
from wirewise.importers import original
from wirewise.importers.dispatch import read_file
from wirewise.importers.registry import FORMATS
from wirewise.importers.request import Imported, Original, Request
from wirewise.importers.saved import try_out
from wirewise.importers.task import Limits, Task


def main(end: int) -> None:
    """Serves the process at the other end of a socket until that closes it."""
    threading.Thread(target=_leave_with, args=(end,), daemon=True).start()
    connection = Connection(end)
    try:
        limits: Limits = connection.recv()
        limits.set()
        connection.send(None)
        task: Task = connection.recv()
        request = task.request
        for entry in task.formats:
            if entry.key not in FORMATS:
                FORMATS.add(entry)
        read = {"import": read_file, "try": try_out, "ask": original.read}[task.use]
        result = _result(request, limits, read, task.path, request)
        answer: Callable[..., Any]
        if isinstance(result, Imported):
            answer, result = result.predict, replace(result, predict=_elsewhere)
        elif isinstance(result, Original):
            answer, result = result.probabilities, replace(result, probabilities=_elsewhere)
        else:
            connection.send(result)
            return
        connection.send(result)
        while True:
            rows = connection.recv()
            if task.use == "ask":
                limits.grant()
            connection.send(_result(request, limits, answer, rows))
    except (EOFError, OSError):
        pass  # the other end is closed
    finally:
        os._exit(0)


def _result(request: Request, limits: Limits, work: Callable[..., Any], *arguments: Any) -> Any:
    """What a piece of work gives, or the error that it ends with."""
    try:
        return work(*arguments)
    except WirewiseError as error:
        return error
    except MemoryError:
        return request.refuse(
            f"needs more than {limits.memory >> 20} MiB of memory to read", "it is damaged, or too large"
        )
    except Exception as error:
        if os.environ.get("WIREWISE_DEBUG"):
            traceback.print_exc()
        return _unforeseen(request, error)


def _unforeseen(request: Request, error: Exception) -> InputError:
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return request.refuse(
        f"cannot be read as a model ({type(error).__name__}{': ' if text else ''}{text})",
        "it is damaged, or made by other versions of its library: save it again",
    )


def _elsewhere(rows: Any) -> Any:
    raise AssertionError("the process that read the file predicts")


def _leave_with(end: int) -> None:
    """Ends this process when the other end is closed, also in the middle of native code."""
    watched = select.poll()
    watched.register(end, select.POLLRDHUP)
    watched.poll()
    os._exit(1)
