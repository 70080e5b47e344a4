# SPDX-License-Identifier: Apache-2.0
"""Reading and writing whole files: errors a user can act on, and no half-written file ever."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, get_args

import yaml
from pydantic import BaseModel, ValidationError

from wirewise import ending
from wirewise.errors import InputError, choose
from wirewise.places import Place, find_place, keep_attributes

ELEMENTS = 1 << 22  # of a JSON document: values and keys; a forest of 100 trees of depth 10 has 200,000
CONTAINERS = 1 << 20  # lists and objects, which take 64 bytes and more each
NODES = 1 << 18  # of a YAML document; each alias counts as the nodes it repeats
DEPTH = 64
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_DIGITS = 100
_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def files_below(folder: Path) -> list[Path]:
    """The files of a folder and those in it, sorted; without what may not be read or is removed meanwhile."""
    found = (Path(place, name) for place, _, names in os.walk(folder) for name in names)
    return sorted(path for path in found if os.path.isfile(path))  # noqa: PTH113  (is false where stat fails)


def open_file(path: str | Path, *, what: str, pipe: bool = False) -> BinaryIO:
    """A file, open for reading; never waits for one: what is neither a file nor, with `pipe`, a pipe (such as
    `<(zcat rows.csv.gz)`) is refused. what: its kind, for the error. Raises InputError.
    """
    path = Path(path)
    try:
        # Opening a device may have side effects, so check before opening; check again what was opened.
        mode = path.stat().st_mode
        _admit(path, mode, what, pipe)
        # A FIFO that was put there meanwhile does not hold us up.
        flags = os.O_NONBLOCK | os.O_NOCTTY if stat.S_ISREG(mode) else 0
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    except FileNotFoundError as error:
        raise InputError(str(path), "does not exist", f"give the path of a {what}") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(str(path), f"cannot be read: {reason}", "check its name and permissions") from error
    file = os.fdopen(descriptor, "rb")
    try:
        _admit(path, os.fstat(descriptor).st_mode, what, pipe)
    except InputError:
        file.close()
        raise
    return file


def _admit(path: Path, mode: int, what: str, pipe: bool) -> None:
    if stat.S_ISREG(mode) or (pipe and stat.S_ISFIFO(mode)):
        return
    kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "something else")
    raise InputError(str(path), f"is {kind}, not a file", f"give the path of a {what}")


def read_bytes(path: str | Path, *, what: str, limit: int) -> bytes:
    """Content of a file of at most `limit` bytes. what: its kind, for the error. Raises InputError."""
    with open_file(path, what=what) as file:
        try:
            if os.fstat(file.fileno()).st_size <= limit and len(data := file.read(limit + 1)) <= limit:
                return data
        except OSError as error:
            raise InputError(str(path), f"cannot be read: {error.strerror}", "check its disk") from error
    raise InputError(str(path), f"is larger than {_size(limit)}", f"which no {what} is; give the right file")


def _size(count: int) -> str:
    return f"{count >> 20} MiB" if count >= 1 << 20 else f"{count >> 10} KiB"


def read_text(path: str | Path, *, what: str, limit: int = 16 << 20) -> str:
    """As `read_bytes`, UTF-8 text."""
    try:
        return read_bytes(path, what=what, limit=limit).decode()
    except UnicodeDecodeError as error:
        raise InputError(str(path), f"is not UTF-8 text (byte {error.start})", f"give a {what}") from error


def parse_json(data: bytes, *, elements: int = ELEMENTS, containers: int = CONTAINERS, **how: Any) -> Any:
    """A JSON document, measured before it is built, which may take a hundred times its bytes.

    elements, containers : how many brackets, commas and colons, and brackets alone, it may have; those in
    texts count too. how : see json.loads. Raises ValueError, also for texts that are not Unicode.
    """
    opened = data.count(b"[") + data.count(b"{")
    if opened > containers:
        raise ValueError(f"it has more than the {containers:,} lists and objects that it may have")
    if opened + data.count(b",") + data.count(b":") > elements:
        raise ValueError(f"it has more than the {elements:,} values that it may have")
    try:
        document = json.loads(data.decode(), **how)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if re.search(rb"\\u[dD][89a-fA-F]", data):  # half of a character, which cannot be written anywhere
        json.dumps(document, ensure_ascii=False).encode()
    return document


class _Measured:
    """Mix-in for YAML loaders that bounds the composed document: one alias may repeat a million nodes."""

    nodes = NODES

    def compose_node(self, parent: Any, index: Any) -> Any:
        before = vars(self).setdefault("count", 0)
        depth = vars(self).setdefault("depth", 0) + 1
        vars(self).update(count=before + 1, depth=depth)
        if depth > DEPTH:
            raise yaml.YAMLError(f"it is nested more than {DEPTH} deep")
        sizes = vars(self).setdefault("sizes", {})
        is_alias = self.check_event(yaml.AliasEvent)  # type: ignore[attr-defined]
        node = super().compose_node(parent, index)  # type: ignore[misc]
        if isinstance(node, yaml.ScalarNode) and node.tag in _NUMBERS and len(node.value) > _DIGITS:
            raise yaml.YAMLError(f"it has a number of more than {_DIGITS} digits")
        if is_alias:
            if id(node) not in sizes:
                raise yaml.YAMLError("an alias is inside the value that it repeats")
            vars(self)["count"] += sizes[id(node)]
        else:
            sizes[id(node)] = vars(self)["count"] - before
        vars(self)["depth"] -= 1
        if vars(self)["count"] > self.nodes:
            raise yaml.YAMLError(f"it has more than the {self.nodes:,} values that it may have")
        return node


def parse_yaml(text: str, *, nodes: int = NODES) -> Any:
    """A YAML document of at most `nodes` nodes. Raises ValueError, one line with the place."""
    measured = type("Measured", (_Measured, yaml.SafeLoader), {"nodes": nodes})
    try:
        return yaml.load(text, measured)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError) as error:
        # PyYAML's own constructors raise the others, such as for `!!bool x`.
        raise ValueError(" ".join(str(error).split())) from error


def check_place(path: str | Path) -> None:
    """Raises InputError unless a file can be written here: before the work, rather than behind it."""
    find_place(path)


def check_folder(path: str | Path) -> None:
    """Raises InputError unless the folder is there, or can be made in one that is."""
    path = Path(path)
    if path.exists() and not path.is_dir():
        raise InputError(str(path), "is not a folder", "give another place, or remove it")
    if not path.exists():
        check_place(path)


@contextmanager
def replacing(path: str | Path, suffix: str = "") -> Iterator[Path]:
    """Every output: yields a path beside it; renamed onto it at the end, removed if the block fails.

    It keeps owner and mode of the file that it replaces. Links are followed; what is written for a device or
    a pipe is copied into it at the end. suffix : of the temporary name, for readers that go by it.

    Raises InputError where it cannot be written; no folder is made.
    """
    path = Path(path)
    place = find_place(path)
    if place.is_stream:
        with ending.temporary_folder() as folder:
            temporary = folder / f"output{suffix}"
            yield temporary
            # A reader may keep it waiting, which a signal is to end.
            _copy(temporary, path, place)
        return
    hidden: Path | None = None
    try:
        hidden = _hidden(place, suffix)
        yield hidden
        ending.complete(path)
        hidden.replace(place.path)
    except OSError as error:
        own = (path, place.path, place.path.parent, hidden)
        if error.filename is not None and str(error.filename) not in map(str, own):
            raise
        raise InputError(str(path), f"cannot be written: {error.strerror}", "give another place") from error
    finally:
        if hidden is not None:
            hidden.unlink(missing_ok=True)
            ending.keep(hidden)


def _hidden(place: Place, suffix: str) -> Path:
    """A new file beside the place, with the attributes of the file that is there."""
    with ending.deferred():
        handle, name = tempfile.mkstemp(f"{suffix}", f".{place.path.name[:64]}.", place.path.parent)
        ending.remove_at_end(name)
    try:
        if place.status:
            keep_attributes(handle, place)
        else:
            os.fchmod(handle, 0o666 & ~_umask())
    except OSError as error:
        Path(name).unlink()
        raise InputError(
            str(place.path), f"its owner or mode cannot be kept ({error.strerror})",
            "give another name, or remove it",
        ) from error  # fmt: skip
    finally:
        os.close(handle)
    return Path(name)


def _copy(content: Path, path: Path, place: Place) -> None:
    try:
        with content.open("rb") as source, os.fdopen(place.open(), "wb") as stream:
            shutil.copyfileobj(source, stream, 1 << 20)
    except BrokenPipeError as error:
        raise InputError(str(path), "was closed by what reads from it", "let it read to the end") from error
    except OSError as error:
        raise InputError(str(path), f"cannot be written: {error.strerror}", "give another place") from error


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
