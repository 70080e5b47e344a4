# SPDX-License-Identifier: Apache-2.0
"""Where an output goes: resolve its name, and refuse inputs and other unsafe targets.

The agent's files/place.rs does the same.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shlex
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from wirewise.errors import InputError

_MOST_LINKS = 40  # as the kernel's MAXSYMLINKS
_SHARED = stat.S_ISVTX | stat.S_IWOTH

Identity = tuple[int, int]
"""A file, whatever it is called."""

_inputs: set[Identity] | None = None
"""What the command that runs reads. None: no command, but a program that may well write what it has read."""


@contextmanager
def reading(paths: Iterable[str | Path]) -> Iterator[None]:
    """For the block, outputs must not replace these files, nor those that `note_inputs` adds."""
    global _inputs
    before, _inputs = _inputs, set()
    try:
        note_inputs(paths)
        yield
    finally:
        _inputs = before


def note_inputs(paths: Iterable[str | Path]) -> None:
    for path in paths:
        with suppress(OSError, ValueError):
            status = Path("/dev/stdin" if str(path) == "-" else path).stat()
            if _inputs is not None and _is_one_file(status):
                _inputs.add((status.st_dev, status.st_ino))


def _is_one_file(status: os.stat_result) -> bool:
    """Not a terminal or /dev/null, which may well be read and written."""
    return any(kind(status.st_mode) for kind in (stat.S_ISREG, stat.S_ISFIFO, stat.S_ISBLK))


@dataclass(frozen=True)
class Place:
    """path : links followed. status : of what is there. descriptor : of this process, where it is one."""

    path: Path
    status: os.stat_result | None
    descriptor: int | None = None

    @property
    def is_stream(self) -> bool:
        """Whether it is written into rather than replaced."""
        return self.descriptor is not None or (
            self.status is not None and not stat.S_ISREG(self.status.st_mode)
        )

    @property
    def keys(self) -> set[tuple[int, int, str]]:
        """What two outputs must not have in common."""
        found = set()
        if not self.is_stream:
            folder = self.path.parent.stat()
            found.add((folder.st_dev, folder.st_ino, self.path.name))
        if self.status and _is_one_file(self.status):
            found.add((self.status.st_dev, self.status.st_ino, ""))
        return found

    def open(self) -> int:
        """A stream, to write into; waits until somebody reads from a pipe."""
        if self.descriptor is not None:
            return os.dup(self.descriptor)
        return os.open(self.path, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC)


def find_place(path: str | Path) -> Place:
    """Raises InputError for what cannot be written, and for an input of the command that runs."""
    path = Path(path)
    try:
        place = _follow(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(str(path), f"cannot be written: {reason}", "give another place") from error
    mode = place.status.st_mode if place.status else 0
    if stat.S_ISDIR(mode):
        raise InputError(str(path), "is a folder", "give the path of a file to write")
    if stat.S_ISSOCK(mode) and place.descriptor is None:
        raise InputError(str(path), "is a socket", "give a file or a pipe")
    if place.status and _inputs and (place.status.st_dev, place.status.st_ino) in _inputs:
        raise InputError(str(path), "is also an input, which the output would replace", "give another name")
    if place.status and not place.is_stream and not os.access(place.path, os.W_OK, effective_ids=True):
        raise InputError(str(path), "is read-only", "give another name, or remove it")
    if not place.is_stream:
        _check_parent(path, place.path.parent)
    return place


def _check_parent(path: Path, folder: Path) -> None:
    if not folder.is_dir():
        rule = "is not a folder" if folder.exists() else "does not exist"
        way_out = f"give another place, or make the folder: mkdir -p {shlex.quote(str(folder))}"
        raise InputError(str(path), f"cannot be written: the folder {folder} {rule}", way_out)
    if not os.access(folder, os.W_OK, effective_ids=True):
        raise InputError(
            str(path),
            f"cannot be written: the folder {folder} is not yours to write to",
            "give another place",
        )


def _follow(path: Path) -> Place:
    at = path
    for _ in range(_MOST_LINKS):
        if (found := _descriptor(at)) is not None:
            return found
        try:
            status = at.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return Place(at, None)
        if not stat.S_ISLNK(status.st_mode):
            return Place(at, status)
        folder = at.parent.stat()
        # The kernel's rule for links that others may have laid (fs.protected_symlinks).
        if folder.st_mode & _SHARED == _SHARED and status.st_uid not in (os.geteuid(), folder.st_uid):
            raise PermissionError(
                errno.EACCES,
                f"it is a link of user {status.st_uid} in a folder where everybody may make one",
            )
        at = at.parent / at.readlink()
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _descriptor(path: Path) -> Place | None:
    """An open file that is named by its number (/dev/fd/5, /dev/stdout, /proc/7/fd/5)."""
    if not path.name.isascii() or not path.name.isdigit():
        return None
    folder = Path(os.path.realpath(path.parent))
    if folder.name != "fd" or folder.parts[:2] != ("/", "proc"):
        return None
    if folder.parts[2] != str(Path("/proc/self").readlink()):
        return Place(path, path.stat(), os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC))
    number = int(path.name)
    if fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        raise PermissionError(errno.EBADF, "it is open for reading only")
    return Place(path, os.fstat(number), number)


def check_outputs(paths: Iterable[Path]) -> None:
    """Raises InputError for an output that cannot be written, is also an input, or is given twice."""
    known = set[tuple[int, int, str]]()
    for path in paths:
        keys = find_place(path).keys
        if keys & known:
            raise InputError(str(path), "is the same file as another output", "give each a file of its own")
        known |= keys


def keep_attributes(descriptor: int, place: Place) -> None:
    """Gives a new file owner, mode and extended attributes (so the access list) of the one that it replaces.

    Raises OSError where owner or mode cannot be kept.
    """
    assert place.status is not None
    new = os.fstat(descriptor)
    if (new.st_uid, new.st_gid) != (place.status.st_uid, place.status.st_gid):
        os.fchown(descriptor, place.status.st_uid, place.status.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(place.status.st_mode))
    with suppress(OSError):  # as far as the file system and our privileges allow
        for name in os.listxattr(place.path):
            os.setxattr(descriptor, name, os.getxattr(place.path, name))
