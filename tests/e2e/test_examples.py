# SPDX-License-Identifier: Apache-2.0
"""The worked examples run on traffic that they make, and show the papers' numbers beside their own."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e import needs
from tests.e2e.documents import Command, steps
from wirewise import agent

pytestmark = needs.marks()  # wirewised and clang, among others
EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def test_intrusion_detection(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run("intrusion_detection.py", monkeypatch)
    said = capsys.readouterr().out
    assert "Table II, binary" in said and "Table III, seven classes" in said
    shares = re.search(r"^accuracy +([0-9.]+) \(0.969\) +([0-9.]+) \(0.974\)", said, re.MULTILINE)
    assert shares and min(map(float, shares.groups())) > 0.6
    assert re.search(r"^Web attack +- \(0.000\)", said, re.MULTILINE), "a class that the data lacks"


def test_ddos_drop(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    figure = tmp_path / "figure.png"
    run("ddos_drop.py", monkeypatch, "--figure", str(figure))
    said = capsys.readouterr().out
    assert said.count("Figure 3:") == 3 and figure.stat().st_size > 10_000
    floats, integers = (
        re.search(rf"^forest, {kind} +(.*)$", said, re.MULTILINE) for kind in ("float", "integers")
    )
    assert floats and integers and floats[1] == integers[1], "trees lose nothing as integers"
    lost = {label: float(share) for label, share in re.findall(r"^(benign|attack) .* ([0-9.]+)$", said, re.M)}
    assert lost["attack"] > 90 and lost["benign"] < 5


@pytest.mark.xdist_group("docs")  # as pages do, it pins where everybody's attachments are
def test_protected_server(tmp_path: Path) -> None:
    """The page's commands as written. The flood goes on for as long as the visits of each step."""
    place, programs = tmp_path / "server", tmp_path / "bin"
    shutil.copytree(EXAMPLES / "protected-server", place)
    programs.mkdir()
    (programs / "wirewised").symlink_to(agent.find())
    (programs / "python").symlink_to(sys.executable)
    env = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"}

    def follow(command: str) -> str:
        words = command.split()
        if words[0] == "python":
            words[0] = sys.executable
        done = subprocess.run(words, cwd=place, env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def visits(command: str) -> tuple[int, int, int]:
        """Answered a second, failed, SYNs of the flood."""
        said = follow(f"{command} --json")
        numbers = re.findall(r": (\d+)", said)
        return int(numbers[0]), int(numbers[1]), int(numbers[2])

    def given_by_the_stack() -> int:
        said = follow("./network.sh server nstat -asz TcpExtSyncookiesSent")
        return int(re.findall(r"TcpExtSyncookiesSent +(\d+)", said)[0])

    page = steps("README.md", (place / "README.md").read_text())
    commands = [step.text for step in page if isinstance(step, Command)]
    assert len(commands) == 11
    try:
        seen = []
        for command in commands[:-1]:
            if "traffic.py" in command:
                before = given_by_the_stack()
                seen.append((*visits(command), given_by_the_stack() - before))
            else:
                said = follow(command)
        quiet, nothing, drop, challenge = seen
        assert quiet[0] > 0 and quiet[1:3] == (0, 0)
        assert nothing[0] > 0 and nothing[1] == 0 and nothing[3] > nothing[2] > 1000
        assert drop[0] == 0 and drop[1] > 0 and drop[3] == 0
        assert challenge[0] > 0 and challenge[1] == 0 and challenge[3] == 0
        row = re.search(r"^syn-flood +challenge +([\d,]+)", said, re.MULTILINE)
        assert row and int(row[1].replace(",", "")) > challenge[2]
    finally:
        follow(commands[-1])
    left = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert "ww-shop" not in left
