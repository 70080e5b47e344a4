# SPDX-License-Identifier: Apache-2.0
"""Reading and writing whole files: errors a user can act on, and no half-written file ever."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from wirewise.errors import InputError, choose


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


def check_place(path: str | Path) -> None:
    """Raises InputError unless a file can be written here: before the work, rather than behind it."""
    path = Path(path)
    if path.is_dir():
        raise InputError(str(path), "is a folder", "give the path of a file to write")
    if not path.parent.is_dir():
        rule = "is no folder" if path.parent.exists() else "does not exist"
        way_out = f"give another place, or make the folder: mkdir -p {shlex.quote(str(path.parent))}"
        raise InputError(str(path), f"cannot be written: the folder {path.parent} {rule}", way_out)
    if not os.access(path.parent, os.W_OK):
        raise InputError(
            str(path), f"cannot be written: the folder {path.parent} is not yours to write to",
            "give another place",
        )  # fmt: skip


def check_folder(path: str | Path) -> None:
    """Raises InputError unless the folder is there, or can be made in one that is."""
    path = Path(path)
    if path.exists() and not path.is_dir():
        raise InputError(str(path), "is not a folder", "give another place, or remove it")
    if not path.exists():
        check_place(path)


@contextmanager
def replacing(path: str | Path, suffix: str = "") -> Iterator[Path]:
    """Yields a temporary path beside `path`; renamed onto it at the end, removed if the block fails.

    suffix : of the temporary name, for readers that go by it.

    Raises InputError where it cannot be written; no folder is made.
    """
    path = Path(path)
    check_place(path)
    temporary: Path | None = None
    try:
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


def describe_validation_error(error: ValidationError, model: type[BaseModel] | None = None) -> str:
    """The first of pydantic's findings on one line: where, and what. model : what was read, whose keys are
    named where one is unknown.
    """
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden" and first["loc"]:
        known = _keys_at(model, first["loc"][:-1]) if model else []
        message = f"unknown key; {choose(first['loc'][-1], known)}" if known else "unknown key"
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{where}: {message}{more}" if where else f"{message}{more}"


def _keys_at(model: type[BaseModel], place: tuple[int | str, ...]) -> list[str]:
    """The keys that a place in a document may have."""
    for part in place:
        if field := model.model_fields.get(str(part)):
            model = next(_models(field.annotation), model)
    return [field.alias or name for name, field in model.model_fields.items()]


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models in the type of a field, such as that of the items of a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
