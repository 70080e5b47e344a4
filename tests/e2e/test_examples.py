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
from typer.testing import CliRunner

from examples import traffic_analysis
from examples.tomography import __main__ as tomography
from examples.tomography.table import NAMES
from examples.tomography.topology import PROBES
from tests.e2e import needs
from tests.e2e.documents import Command, File, steps
from tests.e2e.scratch import machine
from tests.patience import PATIENCE_S
from wirewise import agent, import_model
from wirewise.cli import app

pytestmark = needs.marks()  # wirewised and clang, among others
EXAMPLES = Path(__file__).parents[2] / "examples"
CAPTURES = Path(__file__).parents[3] / "shared" / "data" / "captures"


def run(name: str, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


@pytest.mark.slow
def test_intrusion_detection(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run("intrusion_detection.py", monkeypatch)
    said = capsys.readouterr().out
    assert "Table II, binary" in said and "Table III, seven classes" in said
    shares = re.search(r"^accuracy +([0-9.]+) \(0.969\) +([0-9.]+) \(0.974\)", said, re.MULTILINE)
    assert shares and min(map(float, shares.groups())) > 0.6
    assert re.search(r"^Web attack +- \(0.000\)", said, re.MULTILINE), "a class that the data lacks"


@pytest.mark.slow
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


COLUMNS = r"^{} +[0-9.]+ +([0-9.]+) +([0-9.]+) +([0-9.]+) +([0-9.]+)$"


def accuracies(said: str) -> list[float]:
    """By flow, of the float network and of the two binary ones."""
    kinds = ("float", "binary, bits", "binary, steps")
    found = [re.search(COLUMNS.format(kind), said, re.MULTILINE) for kind in kinds]
    return [float(each[1]) for each in found if each]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_anomalies_are_found_as_well_by_binary_networks(capsys: pytest.CaptureFixture[str]) -> None:
    assert traffic_analysis.main(["anomaly"]) == 0
    said = capsys.readouterr().out
    full, *binary = accuracies(said)
    assert full > 95 and len(binary) == 2 and min(binary) > full - 3, "the paper loses 5 points"
    assert said.count("instructions with its features") == 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(not CAPTURES.is_dir(), reason="captures: ../shared/data/captures is not there")
@pytest.mark.parametrize("use", ["shunting", "anomaly"])
def test_binary_networks_on_real_captures(use: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert traffic_analysis.main([use, "--captures", str(CAPTURES)]) == 0
    full, *binary = accuracies(capsys.readouterr().out)
    assert full > 95 and len(binary) == 2 and min(binary) > full - 3, "the paper loses 5 and 7.6 points"


def test_shunting_without_captures_says_what_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert traffic_analysis.main(["shunting"]) == 2
    assert capsys.readouterr().err.startswith("error: shunting: needs captures of peer-to-peer traffic")


@pytest.mark.slow
def test_tomography(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, figure, models = tmp_path / "t.parquet", tmp_path / "f.png", tmp_path / "networks"
    assert tomography.main(["simulate", "-o", str(data), "--runs", "10", "--rounds", "60"]) == 0
    more = ["--size", "8-4", "--threshold", "1", "--figure", str(figure), "--models", str(models)]
    assert tomography.main(["train", str(data), *more]) == 0
    said = capsys.readouterr().out
    assert "600 rounds of 10 runs" in said and "tested on 180 of other runs" in said
    medians = re.findall(r"^8-4-2 +(float|binary|binary, steps) +[0-9.]+ k?B +([0-9.]+) ", said, re.MULTILINE)
    assert len(medians) == 3 and min(float(median) for _, median in medians) > 55
    assert figure.stat().st_size > 5_000
    assert sorted(folder.name for folder in models.iterdir()) == ["8-4-2", "8-4-2-steps"]
    for folder in models.iterdir():
        bank = import_model(folder)
        assert bank.model.names == tuple(sorted(NAMES)) and bank.model.n_features == len(PROBES)
        assert bank.classes == ["clear", "congested"]
        bundle = tmp_path / f"{folder.name}.wirewise"
        features = ["-f", str(EXAMPLES / "tomography" / "features.yaml")]
        assert CliRunner().invoke(app, ["compile", str(folder), *features, "-o", str(bundle)]).exit_code == 0
        assert tomography.main(["live", str(bundle), str(data), "--rounds", "40"]) == 0
        said = capsys.readouterr().out
        assert "40 rounds judged" in said and "are those of the reference" in said


def test_forwarder() -> None:
    """The commands of its page, as they stand there."""
    page = EXAMPLES / "forwarder" / "README.md"
    said: list[str] = []
    with machine() as place:
        shutil.copytree(page.parent, place.folder, dirs_exist_ok=True)
        for step in steps(str(page), page.read_text()):
            if isinstance(step, File):
                assert step.content == (page.parent / step.name).read_text()
            if isinstance(step, Command):
                done = place.run(step.text)
                assert done.returncode == 0, f"{step.text}: {done.stderr}"
                said.append(done.stdout)
        left = place.run("ip netns list; ls /sys/fs/bpf").stdout
    everything = "\n".join(said)
    sent = re.search(
        r"^sent ([0-9,]+) packets: ([0-9,]+) benign, ([0-9,]+) attack$", everything, re.MULTILINE
    )
    assert sent
    packets, benign, attack = (int(number.replace(",", "")) for number in sent.groups())
    assert packets == benign + attack
    # action, packets, bytes, two rates, then the outcomes
    router, server = (
        {row[0]: [int(cell.replace(",", "")) for cell in row[1].split() if cell != "-"] for row in rows}
        for rows in (
            re.findall(r"^(benign|attack) +(?:forward|drop|pass) +(.*)$", stats, re.MULTILINE)
            for stats in said
            if "would act" in stats
        )
    )
    forwarded, by_the_stack, dropped = router["benign"][7], router["benign"][9], router["attack"][2]
    assert forwarded + by_the_stack + dropped == router["benign"][0] + router["attack"][0]
    assert dropped > 0.9 * attack and forwarded > 0.95 * benign and by_the_stack < 20
    arrived = server["benign"][0] + server["attack"][0]
    assert forwarded <= arrived <= forwarded + by_the_stack
    assert "benign is forwarded" in everything
    assert "router" not in left and "wirewise" not in left


@pytest.mark.slow
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
        done = subprocess.run(words, cwd=place, env=env, capture_output=True, text=True, timeout=PATIENCE_S)
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
    served = subprocess.run(["pgrep", "-f", str(place)], capture_output=True, text=True, check=False).stdout
    assert not served, "the server is stopped"
