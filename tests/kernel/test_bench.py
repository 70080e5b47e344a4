# SPDX-License-Identifier: Apache-2.0
"""The benchmark harness: what it measures, and the form of its result. No times are judged here."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bench import kernel
from bench.programs import NO_TIME, PROGRAMS, forest, threshold_ranges


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


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="loading programs needs root")
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
    assert {r["shape"] for r in report["results"]} == {"none", "inline"}
    assert "flow-no-time" in capsys.readouterr().out

    compiled = {path: path.stat().st_mtime_ns for path in (tmp_path / "objects").iterdir()}
    assert kernel.main(["--output", str(output), "--program", "tree-5", *few]) == 0
    assert {path: path.stat().st_mtime_ns for path in compiled} == compiled  # nothing was compiled again


def test_an_unknown_program_is_refused_with_the_known(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        kernel.main(["--program", "perceptron"])
    message = capsys.readouterr().err
    assert ended.value.code == 2 and all(name in message for name in PROGRAMS)
