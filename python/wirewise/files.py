# SPDX-License-Identifier: Apache-2.0
"""Reading and writing whole files: errors a user can act on, and no half-written file ever."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from wirewise.errors import InputError


def read_bytes(path: str | Path, *, what: str, limit: int) -> bytes:
    """Content of a file of at most `limit` bytes. what: its kind, for the error. Raises InputError."""
    path = Path(path)
    try:
        if not path.is_file():
            kind = "is not a file" if path.exists() else "does not exist"
            raise InputError(str(path), kind, f"give the path of a {what}")
        if path.stat().st_size > limit:
            raise InputError(str(path), f"is larger than {limit >> 20} MiB", f"that is no {what}")
        return path.read_bytes()
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror}", "check its permissions") from error


def read_text(path: str | Path, *, what: str, limit: int = 16 << 20) -> str:
    """As `read_bytes`, UTF-8 text."""
    try:
        return read_bytes(path, what=what, limit=limit).decode()
    except UnicodeDecodeError as error:
        raise InputError(str(path), f"is not UTF-8 text (byte {error.start})", f"give a {what}") from error


@contextmanager
def replacing(path: str | Path, suffix: str = "") -> Iterator[Path]:
    """Yields a temporary path beside `path`; renamed onto it at the end, removed if the block fails.

    suffix : that the temporary name has, for who reads it.

    The folder is made if need be. Raises InputError where it cannot be written.
    """
    path = Path(path)
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise InputError(str(path), "is a folder", "give the path of a file to write")
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=suffix, dir=path.parent)
        os.fchmod(handle, 0o666 & ~_umask())
        os.close(handle)
        temporary = Path(name)
        yield temporary
        temporary.replace(path)
    except OSError as error:
        if error.filename is not None and str(error.filename) not in (
            str(path),
            str(path.parent),
            str(temporary),
        ):
            raise
        raise InputError(str(path), f"cannot be written: {error.strerror}", "give another place") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def write_atomically(path: str | Path, data: bytes) -> None:
    """Writes a file in one step: whoever reads it sees the old content or all of the new."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def describe_validation_error(error: ValidationError) -> str:
    """The first of pydantic's findings on one line: where, and what."""
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{where}: {message}{more}" if where else f"{message}{more}"


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
