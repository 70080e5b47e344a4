# SPDX-License-Identifier: Apache-2.0
"""The limits and the task of the process that reads a model file."""

from __future__ import annotations

import resource
import signal
import time
from dataclasses import dataclass
from math import ceil
from typing import Literal

from wirewise.importers.registry import Format
from wirewise.importers.request import Request


@dataclass(frozen=True)
class Task:
    """A model file. formats: those known to the process that asks. use: import it; `try`: load and predict;
    `ask`: keep it as it is, for its probabilities.
    """

    path: str
    request: Request
    formats: list[Format]
    use: Literal["import", "try", "ask"] = "import"


@dataclass(frozen=True)
class Limits:
    """memory: bytes of data. seconds: of processor time."""

    memory: int
    seconds: int

    def set(self) -> None:
        """Sets them for this process, for good."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asks
        for kind, most in (
            (resource.RLIMIT_DATA, self.memory),
            (resource.RLIMIT_CPU, self.seconds),
            (resource.RLIMIT_CORE, 0),
        ):
            _limit(kind, most)

    def grant(self) -> None:
        """Allows as many seconds again, for the next request: requests may come for days."""
        _limit(resource.RLIMIT_CPU, ceil(time.process_time()) + self.seconds)


def _limit(kind: int, most: int) -> None:
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
