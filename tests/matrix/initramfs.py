# SPDX-License-Identifier: Apache-2.0
"""The virtual machine's root file system: a cpio archive ("newc") that the kernel unpacks into memory."""

from __future__ import annotations

import shutil
import stat
import subprocess
from collections.abc import Iterable
from pathlib import Path

from wirewise import agent
from wirewise.errors import MissingFeatureError
from wirewise.files import write_atomically

HERE = Path(__file__).parent
FOLDERS = ("bin", "dev", "proc", "sys", "tmp", "run", "modules", "files")
_MAGIC, _TRAILER = b"070701", "TRAILER!!!"
_CONSOLE = (5, 1)


def write(
    path: Path, busybox: Path, files: dict[str, bytes | Path], modules: Iterable[bytes], steps: str
) -> None:
    """Write the archive. files: name under /files -> content or where it is. steps: the script /steps."""
    init = (HERE / "guest.sh").read_bytes()
    programs = {"busybox": busybox, "wirewised": agent.find(), "frames": frames(path.parent)}
    for program in programs.values():
        _check_static(program)
    parts = [_entry(name, stat.S_IFDIR | 0o755) for name in FOLDERS]
    parts.append(_entry("dev/console", stat.S_IFCHR | 0o600, device=_CONSOLE))
    parts.append(_entry("init", stat.S_IFREG | 0o755, init))
    parts += [
        _entry(f"bin/{name}", stat.S_IFREG | 0o755, file.read_bytes()) for name, file in programs.items()
    ]
    # The order of names is the order in which they are inserted.
    parts += [_entry(f"modules/{n:02}.ko", stat.S_IFREG | 0o644, data) for n, data in enumerate(modules)]
    for name, content in files.items():
        data = content if isinstance(content, bytes) else content.read_bytes()
        parts.append(_entry(f"files/{name}", stat.S_IFREG | 0o644, data))
    parts += [_entry("steps", stat.S_IFREG | 0o644, steps.encode()), _entry(_TRAILER, 0)]
    write_atomically(path, b"".join(parts))


def frames(folder: Path) -> Path:
    """The program that sends a capture, static. Raises MissingFeatureError without a compiler."""
    source, program = HERE / "frames.c", folder / "frames"
    if not program.is_file() or program.stat().st_mtime < source.stat().st_mtime:
        compiler = shutil.which("cc")
        if compiler is None:
            raise MissingFeatureError("no C compiler (cc): apt-get install build-essential")
        command = [compiler, "-O2", "-Wall", "-Wextra", "-Werror", "-static", str(source), "-o", str(program)]
        subprocess.run(command, check=True)
    return program


def _check_static(path: Path) -> None:
    """Raises MissingFeatureError for a program that needs a loader."""
    with path.open("rb") as file:
        if b"/ld-linux" in file.read(1 << 12):
            raise MissingFeatureError(f"{path}: needs libraries, which the machine has not; run `make setup`")


def _entry(name: str, mode: int, data: bytes = b"", device: tuple[int, int] = (0, 0)) -> bytes:
    """One member: a header of hexadecimal numbers, name and content, both padded to 4 bytes."""
    inode = abs(hash(name)) & 0xFFFFFFFF
    encoded = name.encode() + b"\0"
    fields = (inode, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(encoded), 0)
    head = _MAGIC + b"".join(b"%08X" % field for field in fields) + encoded
    return head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4)
