# SPDX-License-Identifier: Apache-2.0
"""Packets from the kernel itself: a frame is sent again and again by BPF_PROG_TEST_RUN with live frames,
without a socket buffer, so that the sender is not what limits a measurement.
"""

from __future__ import annotations

import ctypes
import os
import platform
import socket
import struct
import time
from collections.abc import Callable

from wirewise.errors import WirewiseError

_BPF = {"x86_64": 321, "aarch64": 280}.get(platform.machine())  # number of the system call
_PROG_LOAD, _PROG_TEST_RUN = 5, 10
_XDP, _LIVE_FRAMES, _XDP_TX = 6, 2, 3
_BATCH = 64
_SLICE_S = 0.01


def _bpf(command: int, attributes: bytes) -> int:
    if _BPF is None:
        raise WirewiseError(f"live frames: bpf(2) has no number here for {platform.machine()}")
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    result = libc.syscall(_BPF, command, buffer, len(attributes))
    if result < 0:
        error = ctypes.get_errno()
        raise WirewiseError(f"live frames: {os.strerror(error)}; they need Linux 5.18 and root")
    return int(result)


def _sending_program() -> int:
    """A program that sends every frame out of the interface it is said to have come in by."""
    code = struct.pack("<BBhi", 0xB7, 0, 0, _XDP_TX) + struct.pack("<BBhi", 0x95, 0, 0, 0)
    instructions, licence = ctypes.create_string_buffer(code, len(code)), ctypes.create_string_buffer(b"GPL")
    places = ctypes.addressof(instructions), ctypes.addressof(licence)
    attributes = struct.pack("<IIQQIIQII16s", _XDP, 2, *places, 0, 0, 0, 0, 0, b"send")
    return _bpf(_PROG_LOAD, attributes)


class Sender:
    """Sends one frame out of an interface of the network namespace of the thread that makes it."""

    def __init__(self, interface: str, frame: bytes) -> None:
        self._program = _sending_program()
        self._frame = ctypes.create_string_buffer(frame, len(frame))
        context = struct.pack("<IIIIII", 0, len(frame), 0, socket.if_nametoindex(interface), 0, 0)
        self._context = ctypes.create_string_buffer(context, len(context))

    def send(self, count: int) -> None:
        """As fast as it goes."""
        attributes = struct.pack(
            "<IIIIQQIIIIQQIII",
            self._program, 0, len(self._frame), 0, ctypes.addressof(self._frame), 0, count, 0,
            len(self._context), 0, ctypes.addressof(self._context), 0, _LIVE_FRAMES, 0, _BATCH,
        )  # fmt: skip
        _bpf(_PROG_TEST_RUN, attributes)

    def send_at(self, rate: float | None, seconds: float, now: Callable[[], float] = time.monotonic) -> int:
        """Packets sent in that time. rate: packets a second; None: as many as go."""
        begin, sent = now(), 0
        while (passed := now() - begin) < seconds:
            due = 20_000 if rate is None else int(rate * (passed + _SLICE_S)) - sent
            if due > 0:
                self.send(due)
                sent += due
            if rate is not None:
                time.sleep(max(0.0, begin + sent / rate - now()))
        return sent

    def close(self) -> None:
        os.close(self._program)
