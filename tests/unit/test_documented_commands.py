# SPDX-License-Identifier: Apache-2.0
"""Every `wirewise` and `make` command line in the documents is one; the agent tests those of `wirewised`."""

from __future__ import annotations

import re
import shlex
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path

import pytest
from typer.main import get_command

from wirewise.cli import app
from wirewise.datasets import LabelFile
from wirewise.policy import Policy

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PAGE_NAMES = [page.name for page in PAGES]
COMMAND = get_command(app)


def command_lines(text: str, program: str) -> list[list[str]]:
    """The commands in code blocks and in `code`, as words; without prompt, `sudo` and pipes."""
    code = [line for line in text.splitlines() if line.startswith(("    ", "$ "))]
    code += re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    lines = (line.strip().removeprefix("$ ").removeprefix("sudo ") for line in code)
    return [
        shlex.split(re.split(r"[|>;]|&&", line)[0], comments=True)
        for line in lines
        if line.startswith(program + " ")
    ]


@pytest.mark.parametrize("page", PAGES, ids=PAGE_NAMES)
def test_every_wirewise_command_is_one(page: Path) -> None:
    for words in command_lines(page.read_text(), "wirewise"):
        exit_code, output = said(tuple(words[1:]))
        assert exit_code == 0, f"{page.name}: {' '.join(words)}: {output}"


@cache
def said(words: tuple[str, ...]) -> tuple[object, str]:
    """Exit code and output. Options and verbs are parsed before --help is: what does not exist is refused."""
    with redirect_stdout(StringIO()) as output, redirect_stderr(output), pytest.raises(SystemExit) as end:
        COMMAND.main([*words, "--help"], "wirewise")
    return end.value.code, output.getvalue()


@pytest.mark.parametrize("page", PAGES, ids=PAGE_NAMES)
def test_every_make_target_is_one(page: Path) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for words in command_lines(page.read_text(), "make"):
        assert words[1] in targets, f"{page.name}: no target `make {words[1]}`"


def test_the_files_of_the_first_page_are_read(tmp_path: Path) -> None:
    labels, policy = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "start.md").read_text(), re.DOTALL)
    (tmp_path / "labels.yaml").write_text(labels)
    LabelFile.read(tmp_path / "labels.yaml")
    assert Policy.parse(policy, ["benign", "attack"]).enforce_for_ns == 600 * 10**9


def test_there_are_commands_to_find_and_wrong_ones_are_refused() -> None:
    first = (ROOT / "docs" / "start.md").read_text()
    readme = (ROOT / "README.md").read_text()
    assert len(command_lines(first, "wirewise")) >= 4 and len(command_lines(readme, "make")) >= 2
    for wrong in (["pain"], ["train", "x", "--tress", "3"]):
        assert said(tuple(wrong))[0] == 2
