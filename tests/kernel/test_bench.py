# SPDX-License-Identifier: Apache-2.0
"""The benchmark harness: what it measures, and the form of its results. No times are judged here."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import bench.planes
from bench import engine, estimator, kernel, machine, memory, native, tables
from bench.programs import (
    FORESTS,
    NETWORKS,
    NO_TIME,
    PROGRAMS,
    compiled,
    feature_rows,
    forest,
    network,
    threshold_ranges,
)
from tests import needs
from wirewise.datasets import write_capture
from wirewise.errors import WirewiseError
from wirewise.models import BinaryMlp
from wirewise.targets.ebpf import clang
from wirewise.traffic import generate

ROOT = Path(__file__).parents[2]
# One worker runs them all: what they build is built once.
pytestmark = pytest.mark.xdist_group("bench")


def test_the_models_test_every_varying_feature_and_split_real_ranges() -> None:
    ranges = threshold_ranges()
    model = forest(1, 5)
    (tree,) = model.trees
    # The direction and its mean and deviation are constants under a directional key.
    assert model.used_features == (0, 1, 2, 3, 5, 6, 8, 9, 11) and tree.n_nodes == 63
    inner = [(f, t) for f, t in zip(tree.feature, tree.threshold, strict=True) if f >= 0]
    assert all(ranges[f][0] <= t <= ranges[f][1] for f, t in inner)
    assert forest(1, 5).digest == model.digest  # the same from run to run


def test_one_feature_set_reads_no_time() -> None:
    assert len(NO_TIME.features) == 12 and not NO_TIME.needs_time()


@pytest.mark.slow
@pytest.mark.root
@needs.root
def test_the_result_has_the_promised_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "kernel.json"
    few = ["--rounds", "2", "--repeat", "1000", "--flows", "1", "--flows", "100"]
    code = kernel.main(["--output", str(output), "--program", "tree-5", "--program", "flow-no-time", *few])
    assert code == 0, capsys.readouterr().err
    report = json.loads(output.read_text())
    assert {"cpu", "cores", "kernel", "clang", "date", "mitigations"} <= set(report["machine"])
    places = [(result["program"], result["flows"]) for result in report["results"]]
    assert places == [(name, flows) for flows in (1, 100) for name in ("empty", "tree-5", "flow-no-time")]
    for result in report["results"]:
        assert result["ratio"] > 0 and (result["ratio"] == 1 or result["program"] != "empty")
        for figure in ("ns_per_packet", "verified_instructions", "instructions", "object_bytes", "load_ms"):
            assert result[figure] > 0, (figure, result)
        assert ("above_empty_ns" in result) == (result["program"] != "empty")
        assert ("above_flow_ns" in result) == (result["program"] == "tree-5")
    assert {r["shape"] for r in report["results"]} == {"none", "inline"}
    shown = capsys.readouterr().out.partition("written to")[0]  # a path may be long
    assert "flow-no-time" in shown and max(map(len, shown.splitlines())) <= 80

    compiled = {path: path.stat().st_mtime_ns for path in (tmp_path / "objects").iterdir()}
    assert kernel.main(["--output", str(output), "--program", "tree-5", *few]) == 0
    assert {path: path.stat().st_mtime_ns for path in compiled} == compiled  # nothing was compiled again


@pytest.mark.slow
@pytest.mark.root
@needs.root
def test_a_triggered_program_is_compared_with_flow_extraction(tmp_path: Path) -> None:
    output = tmp_path / "kernel.json"
    few = ["--rounds", "3", "--repeat", "2000", "--flows", "1", "--flows", "100"]
    assert kernel.main(["--output", str(output), "--program", "mlp-int8-16x16-triggered", *few]) == 0
    results = json.loads(output.read_text())["results"]
    (triggered,) = [r for r in results if r["program"] == "mlp-int8-16x16-triggered"]
    assert triggered["flows"] == 1 and triggered["shape"] == "inline"
    assert (triggered["flow_packets"], triggered["trigger_packets"]) == (100, [1, 2, 4, 8, 16])
    # The network costs more than all the rest: it did not run on every packet.
    assert 0 < triggered["ratio_to_flow"] < 1.6


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_read_every_feature_that_varies(name: str) -> None:
    model = network(*NETWORKS[name])
    varying = tuple(index for index, (low, high) in enumerate(threshold_ranges()) if low < high)
    assert model.used_features == varying
    assert model.digest == network(*NETWORKS[name]).digest
    if isinstance(model, BinaryMlp):
        assert model.input_bits == 256


@pytest.mark.slow
@pytest.mark.root
@needs.root
def test_the_empty_program_alone_and_the_clock(tmp_path: Path) -> None:
    output = tmp_path / "kernel.json"
    few = ["--output", str(output), "--rounds", "3", "--repeat", "5000", "--flows", "1"]
    assert kernel.main([*few, "--program", "empty"]) == 0
    (empty,) = json.loads(output.read_text())["results"]
    assert empty["program"] == "empty" and empty["ns_per_packet"] > 0 and empty["ratio"] == 1
    assert kernel.main([*few, "--program", "clock"]) == 0
    empty, clock = json.loads(output.read_text())["results"]
    assert clock["program"] == "clock" and clock["instructions"] > empty["instructions"]
    assert clock["above_empty_ns"] > 0  # a call into the kernel, and reading a counter


def test_the_mitigations_of_any_processor_are_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = {"meltdown": "Mitigation: PTI", "retbleed": "Not affected", "to_come": "Vulnerable: " + "x " * 60}
    for name, line in lines.items():
        (tmp_path / name).write_text(f"{line.strip()}\n")
    monkeypatch.setattr(machine, "_VULNERABILITIES", tmp_path)
    facts = machine.describe("19.1.7")
    assert facts["mitigations"] == {name: line.strip() for name, line in lines.items()}
    machine.show(facts)
    shown = capsys.readouterr().out
    assert "meltdown: Mitigation: PTI" in shown and "to_come: " in shown and "retbleed" not in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_an_unknown_program_is_refused_with_the_known(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        kernel.main(["--program", "perceptron"])
    message = capsys.readouterr().err
    assert ended.value.code == 2 and all(name in message for name in PROGRAMS)


@pytest.fixture(scope="module")
def planes() -> Path:
    """The example that runs all planes, as `cargo test` builds it too."""
    if shutil.which("cargo") is None:
        pytest.skip("tools: building the example needs cargo")
    build = ["cargo", "build", "--release", "--locked", "--quiet", "-p", "wirewised", "--example", "planes"]
    done = subprocess.run(
        [*build, "--message-format", "json"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    (path,) = [m["executable"] for m in messages if m.get("executable") and m["target"]["name"] == "planes"]
    return Path(path)


@pytest.mark.slow
@pytest.mark.root
@needs.root
def test_the_planes_are_compared_on_the_same_packets(
    planes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "engine.json"
    few = ["--rounds", "2", "--repeat", "1000", "--python-rounds", "1", "--flows", "1", "--flows", "100"]
    names = ["empty", "flow-no-time", "tree-5"]
    chosen = [word for name in names for word in ("--program", name)]
    code = engine.main(["--output", str(output), "--planes", str(planes), "--part", "planes", *chosen, *few])
    assert code == 0, capsys.readouterr().err
    report = json.loads(output.read_text())
    in_turn = ("kernel", "engine", "engine-caged", *native.OPTIMISED)
    places = [(row["program"], row["flows"], row["plane"]) for row in report["results"]]
    expected = [(name, flows, plane) for name in names for flows in (1, 100) for plane in in_turn]
    assert places == [*expected, *(("tree-5", None, plane) for plane in ("estimator", "estimator-batch"))]
    for row in report["results"]:
        assert row["ns_per_packet"] > 0 and row["ratio"] > 0 and row["packets_per_second"] > 0
        assert row["plane"] != "native" or row["ratio"] == 1
        assert len(row["rounds_ns"]) == (1 if row["flows"] is None else 2)
    assert [check["program"] for check in report["checks"]] == ["flow-no-time", "tree-5"]
    for check in report["checks"]:
        assert check["planes"] == ["kernel", "engine", "engine-caged", "native"]
        assert check["packets"] > 10_000 and sum(check["verdicts"].values()) == check["packets"]
    assert {"class 0", "class 1"} <= set(report["checks"][1]["verdicts"])
    assert "tree-5, predict" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.root
@needs.root
def test_a_plane_that_differs_is_found(planes: Path, tmp_path: Path) -> None:
    """Native code of another tree than the object's."""
    path = clang.find_clang()
    program = compiled("tree-5", tmp_path, path)
    sources = PROGRAMS["tree-10"]()
    other = native.compiled(
        sources, tmp_path / "other", path, "native", seed=1, table_size=65_536, check=True
    )
    capture = tmp_path / "some.pcap"
    write_capture(capture, ((p.time_ns, p.frame) for p in generate(1, packets=2000)))
    with pytest.raises(WirewiseError, match=r"packet \d+ of .*: plane native and plane kernel differ: class"):
        engine.call(
            planes, "check", "--object", program.path, "--native", f"native={other}", "--seed", 1,
            "--table-size", 65_536, "--capture", capture,
        )  # fmt: skip


def test_the_estimator_is_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = feature_rows()
    for name in ("tree-5", "forest-5x10"):
        model = forest(*FORESTS[name])
        timed = estimator.measure(model, rows, 1, calls=2)
        assert [len(values) for values in timed.values()] == [1, 1] and min(map(min, timed.values())) > 0
    another = estimator.estimator(forest(1, 10))
    monkeypatch.setattr(estimator, "estimator", lambda _: another)
    with pytest.raises(WirewiseError, match="disagree"):
        estimator.measure(forest(1, 5), rows, 1, calls=1)


@pytest.mark.slow
@pytest.mark.root
@needs.root
def test_pandas_and_the_agent_make_the_same_table(tmp_path: Path) -> None:
    needs.package("pandas")
    program = compiled(tables.PROGRAM, tmp_path, clang.find_clang())
    rows = tables.measure(program, packets=3000, rounds=1)
    assert [row["what"] for row in rows][:1] == ["wirewised features"] and rows[0]["ratio"] == 1
    assert all(row["packets"] >= 2500 and row["seconds"] > 0 for row in rows)
    table = tmp_path / "t.parquet"
    pl.DataFrame({"length": [40, 41]}).write_parquet(table)
    with pytest.raises(WirewiseError, match="packet 2: length is 42 by pandas, 41 by wirewised"):
        tables._same(table, {"length": np.array([40, 42])})


@pytest.mark.slow
@pytest.mark.root
@needs.root
def test_memory_is_measured_by_size(tmp_path: Path) -> None:
    program = compiled(tables.PROGRAM, tmp_path, clang.find_clang())
    rows = memory.measure(program, tmp_path / "captures", sizes=(1_000_000,))
    assert {row["command"] for row in rows} == {"features", "replay", "replay --verdicts"}
    # Its program alone takes some; an interpreter that has loaded numpy takes far more.
    assert all(1 < row["peak_rss_mib"] < 90 and row["capture_bytes"] >= 1_000_000 for row in rows)
    assert not list((tmp_path / "captures").iterdir())


@pytest.mark.slow
@pytest.mark.root
@needs.root
@needs.two_cpus
def test_planes_are_measured_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "planes.json"
    few = ["--plane", "xdp-native", "--rate", "20000,max", "--seconds", "100ms"]
    chosen = ["--program", "no filter", "--program", "flow-hara2023"]
    code = bench.planes.main(["--output", str(output), *chosen, *few])
    assert code == 0, capsys.readouterr().err
    report = json.loads(output.read_text())
    measured = [(row["program"], row["plane"], row["mode"]) for row in report["results"][::2]]
    assert measured == [
        ("no filter", "no filter", None),
        ("flow-hara2023", "xdp-native", "enforce"),
        ("flow-hara2023", "xdp-native, passing", "observe"),
    ]
    # Extraction alone judges: all its packets are of the first class.
    assert all(row["received"] > 0 for row in report["results"])
    for name in ("received", "most", "cpu"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert "the sender alone" in capsys.readouterr().out
