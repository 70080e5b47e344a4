# SPDX-License-Identifier: Apache-2.0
"""The programs in the published style say what ours say, and are timed beside them."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from statistics import median

import pytest

from bench import kernel, published
from bench.programs import forest
from tests import needs
from tests.multiplicity import first
from tests.parity.frames import Fuzzer
from wirewise.datasets import write_capture
from wirewise.targets.ebpf import clang

pytestmark = [pytest.mark.xdist_group("bench"), pytest.mark.root, needs.root]

FEW = ["--rounds", "2", "--repeat", "1000", "--loads", "1", "--check-packets", "2000"]


@pytest.mark.parametrize("name", first(published.COUNTERPART))
def test_verdicts_are_those_of_ours(name: str, tmp_path: Path) -> None:
    path = clang.find_clang()
    said = published.check(name, tmp_path, path, packets=4000)
    assert (said["program"], said["published"]) == (published.COUNTERPART[name], name)
    verdicts = said["verdicts"]
    assert sum(verdicts.values()) == said["packets"] >= 4000
    assert min(verdicts["class 0"], verdicts["class 1"]) > 0  # or equal verdicts would say little
    # Every protocol the parser knows, and damaged packets; within less than the idle timeout.
    capture = tmp_path / "damaged.pcap"
    packets = Fuzzer(Random(name), jumps=0).packets(4000)
    assert packets[-1][0] - packets[0][0] < 60 * 10**9
    write_capture(capture, packets)
    verdicts = published.compare(name, capture, 65_536, tmp_path, path)["verdicts"]
    assert min(verdicts.values()) > 0, verdicts


@pytest.mark.slow
def test_both_are_timed_in_the_same_rounds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "kernel.json"
    # Either name brings the other.
    chosen = ["--program", "tree-10", "--program", "published-int8", "--flows", "1", "--flows", "100"]
    assert kernel.main(["--output", str(output), *chosen, *FEW]) == 0, capsys.readouterr().err
    report = json.loads(output.read_text())
    pairs = {"tree-10": "published-tree", "mlp-int8-16x16": "published-int8"}
    assert {check["program"]: check["published"] for check in report["checks"]} == pairs
    assert all(check["packets"] >= 2000 for check in report["checks"])
    names = ["empty", "tree-10", "published-tree", "mlp-int8-16x16", "published-int8"]
    places = [(result["program"], result["flows"]) for result in report["results"]]
    assert places == [(name, flows) for flows in (1, 100) for name in names]
    for flows in (1, 100):
        of = {result["program"]: result for result in report["results"] if result["flows"] == flows}
        for name in names:
            assert ("times_faster" in of[name]) == (name in pairs)
            assert ("above_flow_ns" in of[name]) == (name != "empty")
        for ours, other in pairs.items():
            rounds = zip(of[other]["rounds_ns"], of[ours]["rounds_ns"], strict=True)
            assert of[ours]["times_faster"] == round(median(a / b for a, b in rounds), 3)
        # A look-up for each of 464 weights: no machine is so busy that it takes less than none.
        assert of["mlp-int8-16x16"]["times_faster"] > 1
    shown = capsys.readouterr().out.partition("written to")[0]  # a path may be long
    assert "published design" in shown and max(map(len, shown.splitlines())) <= 80


def test_another_verdict_ends_the_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(published, "model", lambda name: forest(1, 5))
    output = tmp_path / "kernel.json"
    assert kernel.main(["--output", str(output), "--program", "tree-10", "--flows", "1", *FEW]) == 1
    message = capsys.readouterr().err.splitlines()[-1]
    assert message.startswith("error: published-tree: packet ") and "tree-10 has" in message
    assert not output.exists()
