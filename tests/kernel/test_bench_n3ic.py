# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.n3ic`: what it measures, and the form of its result. No times are judged here."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from bench import files, gpu, n3ic, n3ic_tables
from bench.programs import feature_rows
from tests import needs

ROOT = Path(__file__).parents[2]
FEW = ["--rounds", "2", "--repeat", "1000", "--batch", "1", "--batch", "100", "--circuit-rows", "20"]
pytestmark = pytest.mark.xdist_group("bench")


@pytest.mark.slow
@pytest.mark.root
@needs.root
@pytest.mark.skipif(not shutil.which("iverilog"), reason="tools: iverilog is not installed")
def test_a_network_is_measured_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    built = subprocess.run(
        ["cargo", "build", "--release", "--locked", "--quiet", "-p", "wirewised", "--example", "planes"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    output, planes = tmp_path / "n3ic.json", ROOT / "target" / "release" / "examples" / "planes"
    given = ["--output", str(output), "--planes", str(planes), "--network", n3ic.TRAFFIC.name]
    code = n3ic.main([*given, *FEW])
    assert code == 0, capsys.readouterr().err
    report = json.loads(output.read_text())
    rows = report["results"]
    assert {row["where"] for row in rows} >= {"kernel", "engine", "batch", "circuit"}
    assert all(row["network"] == "256-32-16-2" and row["per_second"] > 0 for row in rows)
    flows = [(row["where"], row["packets_a_flow"], row["what"]) for row in rows if "packets_a_flow" in row]
    several = [(1, None), (10, None), (1, "flow extraction alone")]
    assert flows == [(where, *rest) for rest in several for where in ("kernel", "engine")]
    for row in rows:
        if latency := row["latency"]:
            assert 0 < latency["median_ns"] <= latency["p95_ns"] <= latency["p99_ns"], row
        else:
            assert row["packets_a_flow"] == 10
    batches = [row for row in rows if row["where"] == "batch"]
    assert batches[-1]["instructions"] == "portable" and {row["batch"] for row in batches} == {1, 100}
    assert [row["cycles"] for row in rows if row["where"] == "circuit"] == [32, 4]
    assert (gpu.missing() is None) == (not report["skipped"])

    shown = capsys.readouterr().out
    assert "| circuit, 1 neuron at once | 6.25 |" in shown and "bnn-exec" in shown
    assert (tmp_path / "n3ic-traffic.png").read_bytes().startswith(b"\x89PNG")
    page = tmp_path / "n3ic.md"
    page.write_text((ROOT / "docs" / "n3ic.md").read_text())
    files.fill(page, n3ic_tables.tables(report))
    assert page.read_text().count("| circuit, 8 neurons at once | 50 |") == 1


def test_a_network_on_a_device_of_pytorch_is_the_model() -> None:
    """The way that a GPU's batches go, on the processor."""
    needs.package("torch", "torch")
    model = n3ic.TRAFFIC.model()
    found = gpu.measure(model, feature_rows(), (1, 7), 1, device="cpu")
    assert [(row["batch"], row["what"]) for row in found] == [
        (size, what) for size in (1, 7) for what in ("inference", "copies alone")
    ]
    assert all(row["latency"]["median_ns"] > 0 for row in found)


def test_all_figures_have_tables() -> None:
    page = (ROOT / "docs" / "n3ic.md").read_text()
    results = [
        {
            "figure": subject.figure, "network": subject.name, "where": "batch", "batch": size,
            "instructions": "popcnt", "per_second": 10_000_000,
            "latency": {"median_ns": 100, "p95_ns": 150, "p99_ns": 2_000_000},
        }
        for subject in n3ic.SUBJECTS
        for size in n3ic_tables.BATCHES
    ]  # fmt: skip
    facts = {"cpu": "a", "cores": 1, "kernel": "b", "date": "2026-01-01T00:00", "disturbances": []}
    made = n3ic_tables.tables({"machine": facts, "skipped": ["Figure 3: no GPU"], "results": results})
    assert set(made) == {
        f"n3ic-{name}" for name in ("machine", "traffic", "instructions", "tomography", "size", "gpu")
    }
    assert all(f"<!-- {mark} -->" in page for mark in made)
    assert "| batches of 1,000 | 10 | 100 ns | 150 ns | 2 ms |" in made["n3ic-traffic"]
    assert [line.split(" | ")[0] for line in made["n3ic-size"] if "256-" in line] == [
        "| 256-32-2",
        "| 256-64-2",
        "| 256-128-2",
    ] * 2
