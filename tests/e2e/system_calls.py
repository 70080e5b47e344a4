# SPDX-License-Identifier: Apache-2.0
"""The system calls that a unit for systemd admits; as a program, it runs a command with no others.

    python -m tests.e2e.system_calls UNIT COMMAND...

A process that makes another one is killed, where the unit only lets it fail: a test should not miss one.
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

from wirewise.targets.ebpf.clang import find_clang

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, KILL = 0x7FFF0000, 0x80000000


def _names(word: str) -> set[str]:
    """One system call, or those of one of systemd's sets, such as `@process`."""
    if not word.startswith("@"):
        return {word}
    listed = subprocess.run(
        ["systemd-analyze", "syscall-filter", word], check=True, capture_output=True, text=True
    )
    words = [line.strip() for line in listed.stdout.splitlines()[1:]]
    return {name for each in words if each and not each.startswith("#") for name in _names(each)}


def admitted(unit: Path) -> list[int]:
    """Their numbers on this machine."""
    (words,) = re.findall(r"^SystemCallFilter=(.*)$", unit.read_text(), re.MULTILINE)
    command = [find_clang(), "-E", "-dM", "-include", "sys/syscall.h", "-x", "c", os.devnull]
    defined = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    numbers = dict(re.findall(r"^#define __NR_(\w+) (\d+)$", defined, re.MULTILINE))
    # systemd's sets also have calls of other machines.
    return sorted({int(numbers[name]) for word in words.split() for name in _names(word) if name in numbers})


def confine(numbers: list[int]) -> None:
    """This process and those that it starts."""
    program = [(LOAD, 0, 0, 0)]  # the number
    for number in numbers:
        program += [(JUMP_IF_EQUAL, 0, 1, number), (RETURN, 0, 0, ALLOW)]
    program.append((RETURN, 0, 0, KILL))
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *each) for each in program))
    filter = ctypes.create_string_buffer(struct.pack("@HP", len(program), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    for call in ((PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filter, 0, 0)):
        if libc.prctl(*call):
            raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    admitted_here = admitted(Path(sys.argv[1]))
    confine(admitted_here)
    os.execv(sys.argv[2], sys.argv[2:])
