# SPDX-License-Identifier: Apache-2.0
"""Sends packets faster than Python can: many frames a system call."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from ctypes import CDLL, POINTER, Structure, c_int, c_size_t, c_uint, c_void_p, get_errno
from types import TracebackType

import numpy as np

from wirewise.demo.network import inside_namespace
from wirewise.demo.sender import open_sender
from wirewise.errors import WirewiseError

BURST = 64
"""Frames of one system call; the queue of a veth holds 256."""


class _Part(Structure):
    _fields_ = (("base", c_void_p), ("length", c_size_t))


class _Head(Structure):
    _fields_ = (
        ("name", c_void_p), ("name_length", c_uint), ("parts", POINTER(_Part)), ("count", c_size_t),
        ("control", c_void_p), ("control_length", c_size_t), ("flags", c_int),
    )  # fmt: skip


class _Message(Structure):
    _fields_ = (("head", _Head), ("length", c_uint))


class Sender(threading.Thread):
    """Sends from an interface until it is left.

    frame : all packets, before they are varied. vary : told the frames of a burst, shape (BURST, bytes),
    and its number. rate : packets/s; without it, as fast as it can.
    """

    def __init__(
        self,
        namespace: str,
        interface: str,
        frame: bytes,
        vary: Callable[[np.ndarray, int], None],
        rate: int | None = None,
    ) -> None:
        super().__init__(daemon=True)
        self.namespace, self.interface, self.vary, self.rate = namespace, interface, vary, rate
        self.frames = np.tile(np.frombuffer(frame, np.uint8), (BURST, 1))
        self.sent, self.failure, self.over = 0, "", False

    def __enter__(self) -> Sender:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.over = True
        self.join()

    def check(self) -> None:
        """Raises WirewiseError if nothing is sent any more."""
        if not self.is_alive():
            raise WirewiseError(f"{self.interface}: {self.failure or 'nothing is sent any more'}")

    def run(self) -> None:
        try:
            inside_namespace(self.namespace, self._send)
        except OSError as error:
            self.failure = str(error)

    def _send(self) -> None:
        libc = CDLL(None, use_errno=True)
        size = self.frames.shape[1]
        parts = (_Part * BURST)(*(_Part(frame.ctypes.data, size) for frame in self.frames))
        heads = (_Head(parts=POINTER(_Part)(part), count=1) for part in parts)
        messages = (_Message * BURST)(*map(_Message, heads))
        with open_sender(self.interface) as opened:
            start, number = time.monotonic(), 0
            while not self.over:
                if self.rate is not None:
                    time.sleep(max(0, start + number * BURST / self.rate - time.monotonic()))
                self.vary(self.frames, number)
                count = libc.sendmmsg(opened.fileno(), messages, BURST, 0)
                if count < 0:
                    raise OSError(get_errno(), os.strerror(get_errno()))
                self.sent += count
                number += 1
