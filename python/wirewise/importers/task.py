# SPDX-License-Identifier: Apache-2.0
"""The limits and the task of the process that reads a model file."""

from __future__ import annotations

import resource
import signal
from dataclasses import dataclass

from wirewise.importers.registry import Format
from wirewise.importers.request import Request


@dataclass(frozen=True)
class Task:
    """A file to import. formats: those known to the process that asks. only_try: load and predict."""

    path: str
    request: Request
    formats: list[Format]
    only_try: bool = False


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
            _, hard = resource.getrlimit(kind)
            resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
