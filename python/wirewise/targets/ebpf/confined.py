# SPDX-License-Identifier: Apache-2.0
"""Runs a program that can read only the system's programs and headers and the folders named, and write one.

    python confined.py FOLDER-TO-WRITE FOLDER-TO-READ ... -- PROGRAM ARGUMENT ...

It uses Landlock (Linux 5.13), and runs nothing on a kernel without. A process of its own, because Landlock
confines for good, and because Python should not run between fork and exec of a process with threads.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
PR_SET_NO_NEW_PRIVS = 38
CANNOT = 125
"""Exit status if the program did not run."""
# linux/landlock.h
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REMOVE_FILE, MAKE_REG, TRUNCATE = 1 << 5, 1 << 8, 1 << 14
READ = EXECUTE | READ_FILE | READ_DIR
WRITE = READ | WRITE_FILE | REMOVE_FILE | MAKE_REG | TRUNCATE
OF_A_FILE = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE
# As in the agent (trust/rebuild/landlock.rs): where compilers, their libraries and headers are on Linux, and
# what the loader and clang read of their settings.
SYSTEM = (
    "/bin", "/lib", "/lib32", "/lib64", "/usr/bin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libexec",
    "/usr/include", "/usr/local/bin", "/usr/local/lib", "/usr/local/include", "/nix/store", "/gnu/store",
    "/etc/clang", "/etc/ld.so.cache", "/etc/ld.so.preload",
)  # fmt: skip
INSTALLED = ("bin", "lib", "lib64", "libexec", "include")
RIGHTS_OF_VERSION = {1: 13, 2: 14, 3: 15, 4: 15}

_libc = ctypes.CDLL(None, use_errno=True)


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


def _call(number: int, *arguments: object) -> int:
    result: int = _libc.syscall(ctypes.c_long(number), *arguments)
    return result


def version() -> int:
    """The version of this kernel's Landlock; below 1: it is missing or off."""
    return _call(CREATE_RULESET, ctypes.c_void_p(), ctypes.c_size_t(0), ctypes.c_uint32(1))


def confine(writable: str, readable: list[str]) -> None:
    """Gives up all other files, for good. Raises OSError, also if this kernel does not have Landlock."""
    if version() < 1:
        raise OSError("Landlock (Linux 5.13) is missing or off in this kernel")
    handled = (1 << RIGHTS_OF_VERSION.get(version(), 16)) - 1
    attributes = ctypes.c_uint64(handled)
    ruleset = _call(
        CREATE_RULESET,
        ctypes.byref(attributes),
        ctypes.c_size_t(ctypes.sizeof(attributes)),
        ctypes.c_uint32(0),
    )
    if ruleset < 0:
        _fail("landlock_create_ruleset")
    rules = [*((path, READ) for path in (*SYSTEM, *readable)), (writable, WRITE)]
    for path, allowed in [*rules, ("/dev/null", READ_FILE | WRITE_FILE)]:
        try:
            folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        allowed &= handled if Path(path).is_dir() else handled & OF_A_FILE
        rule = _PathBeneath(allowed, folder)
        if _call(ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(1), ctypes.byref(rule), ctypes.c_uint32(0)):
            _fail(f"landlock_add_rule {path}")
        os.close(folder)
    if _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        _fail("PR_SET_NO_NEW_PRIVS")
    if _call(RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0)):
        _fail("landlock_restrict_self")
    os.close(ruleset)


def _fail(what: str) -> None:
    raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def parts_of(program: str) -> list[str]:
    """What a compiler outside of SYSTEM reads of itself: its file, and the folders it was installed with."""
    file = Path(program).resolve()
    prefix = file.parent.parent
    parts = [prefix / part for part in INSTALLED] if (prefix / "lib" / "clang").is_dir() else []
    return [str(path) for path in (file, *parts)]


if __name__ == "__main__":
    at = sys.argv.index("--")
    (to_write, *to_read), command = sys.argv[1:at], sys.argv[at + 1 :]
    try:
        confine(to_write, [*to_read, *parts_of(command[0])])
        os.execv(command[0], command)
    except OSError as problem:
        print(f"{command[0]} cannot be kept from files of others: {problem}", file=sys.stderr)
        sys.exit(CANNOT)
