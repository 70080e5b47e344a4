# SPDX-License-Identifier: Apache-2.0
"""What the programs of this example have in common: they say `ready`, run until SIGTERM, and then say in one
line of JSON what they saw.
"""

from __future__ import annotations

import ctypes
import gc
import json
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

_PR_SET_PDEATHSIG, _PR_SET_TIMERSLACK = 1, 29


class _Told(Exception):
    pass


def run(loop: Callable[[], None], report: Callable[[], Any]) -> None:
    """Run a loop until SIGTERM or Ctrl-C, or until it ends."""

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)
        raise _Told

    control = ctypes.CDLL(None).prctl
    control(_PR_SET_PDEATHSIG, signal.SIGTERM)  # not without who has started it
    control(_PR_SET_TIMERSLACK, 1)  # ns; sleeps are 50 us longer otherwise
    gc.disable()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    print("ready", flush=True)
    try:
        loop()
    except _Told:
        pass
    print(json.dumps(report()), flush=True)
