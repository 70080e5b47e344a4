# SPDX-License-Identifier: Apache-2.0
"""examples/load-balancer does what its page says, command by command."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import needs
from tests.patience import PATIENCE_S
from wirewise import agent

pytestmark = needs.marks()
EXAMPLE = Path(__file__).parents[2] / "examples" / "load-balancer"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    if shutil.which("curl") is None:
        pytest.skip("no curl")
    place = tmp_path / "load-balancer"
    shutil.copytree(EXAMPLE, place)
    try:
        yield place
    finally:
        subprocess.run([place / "network.sh", "down"], check=True)


def test_the_pages_commands(folder: Path, tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, runs in (("sudo", ""), ("python3", sys.executable)):
        (programs / name).write_text(f'#!/bin/sh\nexec {runs} "$@"\n')
        (programs / name).chmod(0o755)
    (programs / "wirewised").symlink_to(agent.find())
    path = f"{programs}:{os.environ['PATH']}"
    commands = re.findall(r"^    (.+)$", (folder / "README.md").read_text(), re.MULTILINE)
    answers = []
    for command in commands:
        done = subprocess.run(
            ["bash", "-c", command], cwd=folder, env={**os.environ, "PATH": path},
            capture_output=True, text=True, timeout=PATIENCE_S,
        )  # fmt: skip
        assert done.returncode == 0, (command, done.stderr)
        answers.append(done.stdout)
    first, after = (Counter(text.splitlines()) for text in answers if "server " in text)
    assert sum(first.values()) == sum(after.values()) == 12
    assert set(first) <= {"server 1", "server 2", "server 3"} and len(first) > 1
    assert set(after) == {"server 1", "server 3"} or set(after) == {"server 1"}
    shown = "\n".join(answers)
    assert "web on clients: dsr by servers, check http" in shown
    assert "10.8.0.12 is down: Connection refused" in shown and "10.8.0.12 is back" in shown
    left = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert not re.search(r"^lb\b", left, re.MULTILINE)
