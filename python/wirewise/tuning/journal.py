# SPDX-License-Identifier: Apache-2.0
"""The journal of a search: a line for each finished job, so that a search that was stopped goes on.

JSON lines. The first says what the search was asked; the others, by a job's key, what it found. A line that
was cut off by the end of the process is left out, and its job done again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from wirewise.errors import InputError
from wirewise.files import check_place, read_text, write_atomically

VERSION = 1
MOST_BYTES = 256 << 20
_KEY = "wirewise-search"


class Journal:
    """What jobs have found. Without a path it is forgotten in the end."""

    def __init__(self, path: Path | None, asked: Mapping[str, Any]) -> None:
        """A new journal, or one to go on with. asked : JSON values, by name.

        Raises InputError for a file that is no journal, or that of another search.
        """
        self._path = path
        self._found: dict[str, Any] = {}
        self._file = None
        if path is None:
            return
        check_place(path)
        head = {_KEY: VERSION, "asked": json.loads(json.dumps(asked))}
        if path.exists():
            self._read(path, head)
        kept = [json.dumps(head)] + [json.dumps(pair) for pair in self._found.items()]
        write_atomically(path, "".join(f"{line}\n" for line in kept).encode())
        self._file = path.open("a", encoding="utf-8")

    def _read(self, path: Path, head: dict[str, Any]) -> None:
        lines = read_text(path, what="journal of a search", limit=MOST_BYTES).splitlines()
        first = _parsed(lines[0]) if lines else None
        if (
            not isinstance(first, dict)
            or first.get(_KEY) != VERSION
            or not isinstance(first.get("asked"), dict)
        ):
            raise InputError(str(path), "is no journal of a search", "give another place")
        asked, before = head["asked"], first["asked"]
        if differ := sorted(name for name in {*asked, *before} if asked.get(name) != before.get(name)):
            raise InputError(
                str(path), f"is of a search with another {', '.join(differ)}",
                "ask the same again to go on with it, or give another place",
            )  # fmt: skip
        for line in lines[1:]:
            pair = _parsed(line)
            if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str):
                self._found[pair[0]] = pair[1]

    def __contains__(self, key: str) -> bool:
        return key in self._found

    def __getitem__(self, key: str) -> Any:
        return self._found[key]

    def __len__(self) -> int:
        return len(self._found)

    def add(self, key: str, found: Any) -> None:
        """Keep what a job found, in JSON values; it is in the file when this returns."""
        self._found[key] = found
        if self._file:
            self._file.write(json.dumps([key, found]) + "\n")
            self._file.flush()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file:
            self._file.close()


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
