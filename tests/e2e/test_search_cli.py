# SPDX-License-Identifier: Apache-2.0
"""`wirewise importance` and `search` on the command line: to a bundle, through Ctrl-C, and wrong input."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.multiplicity import first
from tests.patience import PATIENCE_S
from tests.unit.test_search import numbered_table
from wirewise.cli import app
from wirewise.errors import WirewiseError


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a table, whose packets are numbered as those of captures are."""
    numbered_table().write(tmp_path / "table.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*words: str) -> Any:
    """What a command prints with --json."""
    done = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


SEARCH = (
    "search",
    "table.parquet",
    "-e",
    "tree",
    "--depth",
    "2-5",
    "--folds",
    "2",
    "-j",
    "1",
    "--features",
    "2",
)


def test_a_model_that_was_found_is_compiled_and_evaluated(place: Path) -> None:
    found = call(
        *SEARCH, "--trials", "3", "-o", "model.pkl", "--plot", "pareto.html", "--max-benign-loss", "20%"
    )
    best = found["trials"][found["best"]]
    assert best["settings"]["features"] == 2 and (place / "pareto.html").stat().st_size > 500
    text = CliRunner().invoke(app, [*SEARCH, "--trials", "3"])
    assert (
        "Nothing tried is both better and cheaper" in text.output
        and f"{best['instructions']:,}" in text.output
    )
    compiled = call(
        "compile", "model.pkl", "--table", "table.parquet", "--max-benign-loss", "20%", "-o", "m.wirewise"
    )
    assert compiled["program"]["instructions"] == pytest.approx(best["instructions"], abs=20)
    assert compiled["fidelity"]["operating_point"]["wish"] == 0.2
    for model in ("model.pkl", "m.wirewise"):
        judged = call("evaluate", model, "table.parquet", "--at", "5")
        assert judged["packets"] == found["report"]["packets"]  # what the search kept apart


def test_the_best_is_fitted_again_to_all_rows_and_has_its_margins(place: Path) -> None:
    words = (*SEARCH, "--trials", "3", "--max-benign-loss", "20%")
    once, again = (call(*words, *more) for more in (("-o", "a.pkl"), ("-o", "b.pkl", "--refit")))
    assert again["report"] == once["report"] and again["best"] == once["best"]
    assert (place / "a.pkl").read_bytes() != (place / "b.pkl").read_bytes()
    without_table = ("--max-benign-loss", "20%", "-o", "m.wirewise")
    assert CliRunner().invoke(app, ["compile", "a.pkl", *without_table]).exit_code
    compiled = call("compile", "b.pkl", *without_table)
    assert compiled["fidelity"]["operating_point"]["wish"] == 0.2
    text = CliRunner().invoke(app, [*words, "--refit", "-o", "c.pkl"], catch_exceptions=False).output
    assert "wirewise compile c.pkl --max-benign-loss" in " ".join(text.split())


def test_features_that_are_left_make_a_feature_set(place: Path) -> None:
    found = call(
        "importance", "table.parquet", "--eliminate", "-o", "left.yaml", "--max-benign-loss", "20%",
        "-j", "1", "--tolerance", "50", "--plot", "p.html",
    )  # fmt: skip
    assert found["chosen"] == ["length"] and len(found["steps"]) == 3
    said = call("features", "-f", "left.yaml")
    assert [feature["name"] for feature in said["features"]] == ["length"]


@pytest.mark.parametrize("keep", first([True, False]))
def test_ctrl_c_leaves_a_journal_and_a_model_only_if_asked(place: Path, keep: bool) -> None:
    words = [*SEARCH, "--method", "random", "--trials", "200", "--journal", "journal", "-o", "model.pkl"]
    words += ["--keep-best"] if keep else []
    code = f"import sys; sys.argv = ['wirewise', *{words!r}]; from wirewise.__main__ import run; run()"
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    try:
        limit = time.monotonic() + PATIENCE_S
        journal = place / "journal"
        while not journal.exists() or journal.read_text().count('"judge') < 8:
            assert process.poll() is None and time.monotonic() < limit, "it was not stopped in the middle"
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=PATIENCE_S)[1]
    finally:
        process.kill()
    assert process.returncode == 130 and "interrupted after" in said and "Traceback" not in said
    assert (place / "model.pkl").exists() == keep
    assert not [path for path in place.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["search", "table.parquet", "-o", "model.onnx"], "must end in .pkl"),
        (["search", "table.parquet", "--depth", "deep"], "is no range"),
        (["search", "table.parquet", "--max-benign-loss", "2"], "is no share"),
        (["search", "table.parquet", "--packet", "x"], "is no list of numbers"),
        (["search", "table.parquet", "--method", "halvin"], "did you mean 'halving'"),
        (["search", "table.parquet", "-o", "no/model.pkl"], "does not exist"),
        (["search", "table.parquet", "--journal", "table.parquet"], "is also an input"),
        (["importance", "table.parquet", "-o", "x.yaml"], "add --eliminate"),
        (["train", "table.parquet", "--teacher", "no.pkl"], "does not exist"),
        (["train", "table.parquet", "--seed", "-1"], "seed -1: must be 0 to 4,294,967,295"),
        (["search", "table.parquet", "--seed", "4294967296"], "seed 4294967296: must be 0 to"),
        (["importance", "table.parquet", "--seed", "-1"], "seed -1: must be 0 to"),
        (["train", "table.parquet", "--folds", "1"], "1 folds: must be 2 to 1,000"),
        (["importance", "table.parquet", "--folds", "99999999999999999999"], "folds: must be 2 to"),
        (["train", "table.parquet", "--leaf", "99999999999999999999"], "must have 1 to 1,000,000"),
        (["train", "table.parquet", "--augment", "pace"], "wirewise features --augment pace"),
    ],
)
def test_wrong_input_is_one_line(place: Path, words: list[str], said: str) -> None:
    before = sorted(path.name for path in place.iterdir())
    with pytest.raises(WirewiseError, match=said):
        CliRunner().invoke(app, words, catch_exceptions=False)
    assert sorted(path.name for path in place.iterdir()) == before
