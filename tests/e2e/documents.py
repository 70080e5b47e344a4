# SPDX-License-Identifier: Apache-2.0
"""The commands and files that a page of documentation shows, in their order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = (
    "wirewise", "wirewised", "make", "sudo", "pip", "python", "python3", "podman", "source", ".venv/", "~/",
    "cscli",
)  # fmt: skip
"""What the first word of a command is, or begins with if it ends in a slash: other indented text is code."""

_FENCE = re.compile(r"```(\w*)$")
_FILE = re.compile(r"`([\w.-]+\.(?:yaml|csv|json))`")


@dataclass(frozen=True)
class Command:
    """A command as written, with the line it stands on. fails: the output shown below it is an error."""

    page: str
    line: int
    text: str
    fails: bool = False


@dataclass(frozen=True)
class File:
    """A file that the page shows; its name is the last one that the text before it has between backquotes."""

    name: str
    content: str


@dataclass(frozen=True)
class Script:
    """Python that the page shows."""

    line: int
    content: str


Step = Command | File | Script


def steps(page: str, text: str) -> list[Step]:
    """What a reader of the page does, in order."""
    lines = text.splitlines()
    found: list[Step] = []
    at, prose = 0, ""
    while at < len(lines):
        if fence := _FENCE.match(lines[at]):
            end = lines.index("```", at + 1)
            found += _fenced(page, fence[1], at + 1, lines[at + 1 : end], prose)
            at = end + 1
        elif lines[at].startswith("    ") and not (at and lines[at - 1].strip()):
            end = at
            while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
                end += 1
            found += _indented(page, at, [line[4:] for line in lines[at:end]])
            at = end
        else:
            prose += lines[at] + "\n"
            at += 1
    return found


def _fenced(page: str, language: str, at: int, block: list[str], prose: str) -> Iterator[Step]:
    if language in ("yaml", "csv"):
        names = [name for name in _FILE.findall(prose) if name.endswith(language)]
        if names:
            yield File(names[-1], "\n".join(block) + "\n")
    elif language == "python":
        yield Script(at, "\n".join(block) + "\n")
    elif not language:
        for index, line in enumerate(block):
            if line.startswith("$ "):
                shown = block[index + 1] if index + 1 < len(block) else ""
                yield Command(page, at + index + 1, line[2:].strip(), shown.startswith("error:"))


def _indented(page: str, at: int, block: list[str]) -> Iterator[Command]:
    if not any(is_command(line) for line in block):
        return
    text, begun = "", 0
    for index, line in enumerate(block):
        begun = begun if text else at + index + 1
        text += line
        if text.endswith("\\"):
            text = text[:-1]
        elif text.strip():
            yield Command(page, begun, " ".join(text.split()))
            text = ""


def is_command(line: str) -> bool:
    """Whether a line of an indented block is one."""
    word = line.split(" ")[0]
    return word in PROGRAMS or any(word.startswith(start) for start in PROGRAMS if start.endswith("/"))


def pages(root: Path) -> list[Path]:
    """The one that a reader begins with first, as what it leaves is what the others begin with."""
    first = root / "docs" / "start.md"
    return [first, root / "README.md", *sorted(set((root / "docs").rglob("*.md")) - {first})]
