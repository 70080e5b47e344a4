# SPDX-License-Identifier: Apache-2.0
"""What the kernel says a loaded program costs: its own run-time statistics.

They are switched on by a file descriptor, and off again by the kernel when that is closed, however this
process ends. While they are on, each run also reads a clock twice; the figure includes a part of that.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from wirewise.errors import MissingFeatureError

_BPF_CALL = {"x86_64": 321, "aarch64": 280, "riscv64": 280}
_OBJ_GET, _TEST_RUN, _ENABLE_STATS = 7, 10, 32
_TEST_RUN_BYTES = 80
_STATS_RUN_TIME = 0


def bpf(command: int, attributes: bytes) -> int:
    """The bpf system call; gives its file descriptor."""
    return _call(command, ctypes.create_string_buffer(attributes, len(attributes)))


def _call(command: int, buffer: ctypes.Array[ctypes.c_char]) -> int:
    """Likewise, on memory that it may write to."""
    number = _BPF_CALL.get(platform.machine())
    if number is None:
        raise MissingFeatureError(
            f"the number of the bpf system call on {platform.machine()} is not known here"
        )
    result = int(ctypes.CDLL(None, use_errno=True).syscall(number, command, buffer, len(buffer)))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def open_program(pin: Path) -> int:
    """A descriptor of a pinned program; the caller closes it."""
    path = ctypes.create_string_buffer(bytes(pin))
    return bpf(_OBJ_GET, struct.pack("QII", ctypes.addressof(path), 0, 0))


@contextmanager
def run_time_statistics() -> Iterator[None]:
    """Let the kernel measure every BPF program while the block runs (Linux 5.8 and newer)."""
    handle = bpf(_ENABLE_STATS, struct.pack("I", _STATS_RUN_TIME))
    try:
        yield
    finally:
        os.close(handle)


def time_runs(pin: Path, frames: Iterable[bytes]) -> list[int]:
    """Nanoseconds that a pinned program takes for each frame, run by hand (BPF_PROG_TEST_RUN), one after the
    other; frames are asked for when it is their turn.
    """
    handle = open_program(pin)
    try:
        return [run_program(handle, frame)[1] for frame in frames]
    finally:
        os.close(handle)


def run_program(handle: int, frame: bytes, repeat: int = 1) -> tuple[int, int]:
    """What a program answers for a frame, run by hand, and the nanoseconds that a run took on average."""
    data = ctypes.create_string_buffer(frame, len(frame))
    fields = (handle, 0, len(frame), 0, ctypes.addressof(data), 0, repeat, 0)
    attributes = ctypes.create_string_buffer(struct.pack("IIIIQQII", *fields), _TEST_RUN_BYTES)
    _call(_TEST_RUN, attributes)
    said = struct.unpack("IIIIQQII", attributes.raw[:40])
    return said[1], said[-1]


def program_runs(pin: Path) -> tuple[int, int]:
    """Nanoseconds and runs of a pinned program since the statistics were switched on."""
    handle = open_program(pin)
    try:
        text = Path("/proc/self/fdinfo", str(handle)).read_text(encoding="utf-8")
    finally:
        os.close(handle)
    facts = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    return int(facts["run_time_ns"]), int(facts["run_cnt"])
