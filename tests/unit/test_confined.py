# SPDX-License-Identifier: Apache-2.0
"""clang reads and writes nothing but its own, whatever the sources say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from wirewise.errors import WirewiseError
from wirewise.targets.ebpf import confined
from wirewise.targets.ebpf.clang import compile_sources, find_clang

HARMLESS = "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\nint x = 1;\n"
WAYS = {
    "include": '#include "{path}"\n',
    "incbin": 'asm(".section .rodata\\n.incbin \\"{path}\\"\\n.text");\nint x = 1;\n',
    "assembler include": 'asm(".include \\"{path}\\"");\nint x = 1;\n',
    "embed": 'const char x[] = {{\n#embed "{path}"\n}};\n',
}


@pytest.mark.parametrize("way", WAYS)
def test_a_secret_does_not_come_into_an_object(way: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret.h"
    secret.write_text("int hushed_up;\n")
    assert compile_sources({"main.bpf.c": HARMLESS}).object
    inside = {"main.bpf.c": WAYS[way].format(path="near.h"), "near.h": "int near_secret;\n"}
    if way == "include":  # of the same folder it works: what keeps it from the other is not the syntax
        assert compile_sources(inside).object
    with pytest.raises(WirewiseError) as caught:
        compile_sources({"main.bpf.c": WAYS[way].format(path=secret)})
    assert "hushed_up" not in str(caught.value) and "\n" not in str(caught.value)


def test_only_one_folder_is_written(tmp_path: Path) -> None:
    writable, other = tmp_path / "writable", tmp_path / "other"
    writable.mkdir()
    other.mkdir()
    (other / "file").write_text("kept")
    for target, works in ((writable / "x", True), (other / "x", False), (other / "file", False)):
        command = [
            sys.executable,
            "-I",
            "-S",
            confined.__file__,
            str(writable),
            "--",
            "/bin/sh",
            "-c",
            f"echo y >{target}",
        ]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
        assert (done.returncode == 0) == works, done.stderr
    assert (other / "file").read_text() == "kept" and not (other / "x").exists()


def test_a_compiler_elsewhere_may_read_what_it_was_installed_with(tmp_path: Path) -> None:
    (tmp_path / "llvm" / "bin").mkdir(parents=True)
    clang = tmp_path / "llvm" / "bin" / "clang"
    clang.write_text(f'#!/bin/sh\ncat "{tmp_path}/llvm/lib/note" >&2\nexec {find_clang()} "$@"\n')
    clang.chmod(0o755)
    (tmp_path / "llvm" / "lib" / "clang").mkdir(parents=True)
    (tmp_path / "llvm" / "lib" / "note").write_text("a note\n")
    assert compile_sources({"main.bpf.c": HARMLESS}, clang=str(clang)).object


def test_what_cannot_be_run_is_said_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-I", "-S", confined.__file__, str(tmp_path), "--", str(tmp_path / "nothing")]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert (
        done.returncode == confined.CANNOT
        and done.stderr.count("\n") == 1
        and "cannot be kept from files of others" in done.stderr
    )


def test_without_landlock_what_was_generated_here_is_compiled() -> None:
    """As on an older kernel: a seccomp filter answers ENOSYS to landlock_create_ruleset."""
    program = (
        "import ctypes, struct\n"
        "filters = b''.join(struct.pack('HBBI', *one) for one in "
        "((0x20, 0, 0, 0), (0x15, 0, 1, 444), (6, 0, 0, 0x50026), (6, 0, 0, 0x7fff0000)))\n"
        "held = ctypes.create_string_buffer(filters)\n"
        "libc = ctypes.CDLL(None)\n"
        "assert libc.prctl(38, 1, 0, 0, 0) == 0\n"
        "table = struct.pack('HxxxxxxQ', 4, ctypes.addressof(held))\n"
        "assert libc.prctl(22, 2, table, 0, 0) == 0\n"
        "from wirewise.targets.ebpf.clang import compile_sources\n"
        f"print(len(compile_sources({{'main.bpf.c': {HARMLESS!r}}}).object))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0 and int(done.stdout) > 0, done.stderr
