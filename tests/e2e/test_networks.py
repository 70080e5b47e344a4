# SPDX-License-Identifier: Apache-2.0
"""Neural networks from a table to a bundle, as a user runs it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.multiplicity import first
from wirewise.cli import main
from wirewise.datasets import Table, write_capture
from wirewise.datasets.captures import ETHERNET, CapturedPacket
from wirewise.datasets.table import build_table_from
from wirewise.evaluate import matrix
from wirewise.feature_sets import FeatureSet
from wirewise.formats import training_file
from wirewise.formats.bundle import Bundle
from wirewise.formats.losses import agreement
from wirewise.importers import import_model
from wirewise.models import FixedPointMlp, QuantizedMlp
from wirewise.quantize import Options
from wirewise.traffic import generate

pytestmark = pytest.mark.xdist_group("networks")

Run = Callable[..., tuple[int, str, str]]


def source(seed: int) -> tuple[str, list[CapturedPacket], list[str]]:
    traffic = list(generate(seed, duration_s=6, packets=4000))
    captured = [CapturedPacket(p.time_ns, p.frame, len(p.frame), ETHERNET) for p in traffic]
    return f"seed {seed}", captured, ["benign" if p.label == "benign" else "attack" for p in traffic]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """The command line in this process, through its own guard: exit code, output, errors."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["wirewise", *map(str, arguments)])
        capfd.readouterr()
        code: Any = 0
        try:
            main()
        except SystemExit as leaving:
            code = leaving.code
        captured = capfd.readouterr()
        return code or 0, captured.out, captured.err

    return call


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("networks") / "table.parquet"
    build_table_from(source, [(1,), (2,)], FeatureSet.load("hara2026"), jobs=1, progress=False).write(path)
    return path


@pytest.fixture
def model(run: Run, table: Path) -> Path:
    path = table.with_name("nn.pkl")
    if not path.exists():
        code, out, err = run("train", table, "--model", "mlp", "--hidden", "8,8", "-o", path)
        assert code == 0, err
        assert "accuracy" in out
    return path


@pytest.mark.parametrize("kind", first(["int8", "q16"]))
def test_from_table_to_bundle(run: Run, table: Path, model: Path, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "nn.wirewise"
    code, out, err = run("compile", model, "--table", table, "--network", kind, "-o", path)
    assert code == 0, err
    bundle = Bundle.read(path)
    assert isinstance(bundle.model, QuantizedMlp if kind == "int8" else FixedPointMlp)

    fidelity = bundle.manifest.fidelity
    assert fidelity is not None
    held_out = fidelity["held_out"]
    # The test part of the training: its accuracy is the one `train` measured, on the same packets.
    assert held_out["how"] == "captures of table.parquet that training and quantisation have not seen"
    record = training_file.read(model)
    assert record is not None
    trained = record.accuracy
    assert held_out["estimator"] == trained and fidelity["rows"] == trained["packets"]
    assert held_out["lost"] == pytest.approx(
        100 * (held_out["estimator"]["accuracy"] - held_out["model"]["accuracy"])
    )
    assert fidelity["agree"] >= (0.999 if kind == "q16" else 0.95) * fidelity["rows"]
    assert f"agreement: {agreement(fidelity)}" in out

    code, out, err = run("inspect", path)
    assert code == 0 and "What integers lost" in out and "points lost" in out and "12, 8, 8, 1" in out
    code, out, err = run("inspect", path, "--card")
    assert "## What integers lost" in out and "| benign |" in out
    code, out, err = run("evaluate", path, table, "--json")
    assert json.loads(out)["accuracy"] > 0.8

    code, out, err = run("explain", *_capture(tmp_path), "-b", path, "--reference-only")
    assert code == 0, err
    assert "input" in out and "layer 1" in out and "layer 2" in out
    code, out, err = run("explain", *_capture(tmp_path), "-b", path, "--json")
    assert code == 0, err
    said = json.loads(out)
    assert said["agree"] is True, said["object_not_asked"] or said["differences"]
    steps = said["reference"]["activations"]
    assert [len(step) for step in steps] == [12, 8, 8, 1] and steps[-1] == said["reference"]["scores"]


def _capture(folder: Path) -> tuple[object, ...]:
    path = folder / "a.pcap"
    write_capture(path, ((p.time_ns, p.frame) for p in generate(seed=3, duration_s=1, packets=200)))
    return path, "--packet", 50


def test_import_keeps_the_integers(run: Run, table: Path, model: Path, tmp_path: Path) -> None:
    path = tmp_path / "nn.json"
    code, out, err = run("import", model, "--table", table, "--calibration", "mse", "-o", path)
    assert code == 0, err
    assert "mse calibration" in " ".join(out.split()) and "points lost" in out
    said = json.loads(run("evaluate", path, table, "--json")[1])
    assert said["accuracy"] > 0.8 and said["fidelity"] is None
    code, _, err = run("compile", path, "--table", table, "--network", "q16", "-o", tmp_path / "nn.wirewise")
    assert code == 2 and "holds integers already" in err
    code, _, err = run("compile", path, "--table", table, "--no-verify", "-o", tmp_path / "nn.wirewise")
    assert code == 0, err


def test_evaluate_quantises_with_one_part_and_judges_by_the_other(run: Run, table: Path, model: Path) -> None:
    said = json.loads(run("evaluate", model, table, "--json")[1])
    assert said["left_out"]["to learn from or quantise with"] > 100 and said["packets"] > 100
    assert said["fidelity"]["rows"] == said["packets"]


def test_what_is_missing_or_wrong_is_one_line(run: Run, table: Path, model: Path, tmp_path: Path) -> None:
    for words, says in (
        (("import", model), "no rows were given to quantise it with; give a table"),
        (("compile", model, "-o", tmp_path / "a.wirewise"), "no rows were given"),
        (("import", model, "-t", table, "--network", "int4"), "network 'int4': is not known"),
        (("import", model, "-t", table, "--calibration", "max"), "calibration 'max': is not known"),
        (("train", table, "-e", "forest", "--hidden", "4"), "estimator 'forest': is no network"),
        (("train", table, "-e", "forest", "--benign-only"), "--estimator forest: needs attacks to learn"),
        (("train", table, "-e", "mlp", "--hidden", "4,x"), "hidden layers '4,x': are not numbers"),
        (("train", table, "-e", "mlp", "--hidden", "500"), "must be 1 to 7 layers of 1 to 128 neurons"),
    ):
        code, _, err = run(*words)
        assert code == 2 and says in " ".join(err.split()), (words, err)
        assert "Traceback" not in err
    assert not list(tmp_path.iterdir())


def test_class_weights_reach_the_network(run: Run, table: Path) -> None:
    told = []
    for weights in ((), ("--class-weight", "benign=20")):
        code, out, err = run("train", table, "-e", "mlp", "--hidden", "8", *weights, "--json")
        assert code == 0, err
        confusion = json.loads(out)["accuracy"]["confusion"]
        told.append(confusion[1][0])
    assert told[1] > told[0], "a heavier benign lets more attack packets pass"


def test_a_network_is_trained_for_what_it_becomes(run: Run, table: Path, tmp_path: Path) -> None:
    code, out, err = run("train", table, "-e", "mlp", "--network", "q16", "-o", tmp_path / "nn.pkl", "--json")
    assert code == 0, err
    assert json.loads(out)["training"]["hidden"] == [32, 32]
    code, out, err = run("import", tmp_path / "nn.pkl", "-t", table, "--json")
    assert code == 0 and json.loads(out)["summary"].startswith("Q16 network 12-32-32-1"), err


def test_the_same_in_python(table: Path, model: Path) -> None:
    loaded = Table.read(table).labelled
    rows = matrix(loaded)
    imported = import_model(
        model, rows=rows, labels=loaded.frame["label"].to_list(), options=Options(fine_tune=True)
    )
    ours, _ = imported.model.predict(rows)
    assert imported.classes == ["benign", "attack"]
    assert np.mean(ours == imported.predict(rows)) > 0.95
