# SPDX-License-Identifier: Apache-2.0
"""What the programs of this example have in common: they say `ready`, run until SIGTERM, and then say in one
line of JSON what they saw.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

_PR_SET_PDEATHSIG, _PR_SET_TIMERSLACK = 1, 29


class _Told(Exception):
    pass


def run(loop: Callable[[], None], report: Callable[[], Any], *, first: bool = True) -> None:
    """Run a loop until SIGTERM or Ctrl-C, or until it ends.

    first : before all that is no part of the network, so that what is measured is the network and not the
    scheduler. All of these programs wait for packets, or until one is due.
    """

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)
        raise _Told

    control = ctypes.CDLL(None).prctl
    control(_PR_SET_PDEATHSIG, signal.SIGTERM)  # not without who has started it
    control(_PR_SET_TIMERSLACK, 1)  # ns; sleeps are 50 us longer otherwise
    gc.disable()
    if first:
        with suppress(OSError):  # a container may not be allowed to
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    print("ready", flush=True)
    with suppress(_Told):
        loop()
    print(json.dumps(report()), flush=True)
