# SPDX-License-Identifier: Apache-2.0
"""The worked examples run on traffic that they make, and show the papers' numbers beside their own."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

from tests.e2e import needs

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
