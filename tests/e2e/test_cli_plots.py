# SPDX-License-Identifier: Apache-2.0
"""Where people would rather look: `train` and `evaluate --plot`, `inspect --html` and `--measure`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from sklearn.ensemble import RandomForestClassifier
from typer.testing import CliRunner, Result

import wirewise as ww
from tests import needs
from tests.multiplicity import few, first
from wirewise.charts import Axis, Chart, Line
from wirewise.cli import app
from wirewise.datasets import Table
from wirewise.errors import InputError
from wirewise.evaluate import Report
from wirewise.plots import plot

FEATURES = ww.FeatureSet.from_dict({"name": "two", "features": ["length", "ttl"]})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table and a bundle."""
    folder = tmp_path_factory.mktemp("plots")
    rows = range(400)
    frame = pl.DataFrame(
        {
            "time_ns": rows, "capture": ["a"] * 400, "packet": rows, "flow": [str(row // 4) for row in rows],
            "length": [60 + 1000 * (row // 4 % 2) for row in rows], "ttl": [row % 60 for row in rows],
            "label": [("attack", "benign")[row // 4 % 2] for row in rows], "status": [0] * 400,
        }
    )  # fmt: skip
    table = Table.of(frame, FEATURES)
    table.write(folder / "t.parquet")
    forest = RandomForestClassifier(2, max_depth=2, random_state=0)
    forest.fit(frame["length", "ttl"], frame["label"])
    ww.compile(forest, FEATURES, table=table, verify="never").write(folder / "m.wirewise")
    return folder


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.parametrize("suffix", first([".html", ".svg", ".png"], 2))
def test_training_and_evaluation_are_plotted(made: Path, tmp_path: Path, suffix: str) -> None:
    needs.package("matplotlib")
    for name, command in (
        ("train", ["train", made / "t.parquet"]),
        ("evaluate", ["evaluate", made / "m.wirewise", made / "t.parquet"]),
    ):
        path = tmp_path / f"{name}{suffix}"
        done = run(*command, "--plot", path)
        assert done.exit_code == 0, done.output
        assert path.stat().st_size > 1000
        if suffix == ".html":
            page = path.read_text()
            assert "attack" in page and "length" in page and "shuffled" in page


@pytest.mark.parametrize(("classes", "most"), few([2, 8, 9, 17, 40], [9, 4321, 87_654_321]))
def test_names_and_counts_of_a_confusion_have_room(classes: int, most: int) -> None:
    """In the boxes that the renderer gives the texts: none lies on another, and no count leaves its cell."""
    needs.package("matplotlib")
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    names = [f"{('benign', 'bot-command-and-control')[number % 2]}-{number}" for number in range(classes)]
    counts = np.random.default_rng(classes).integers(most // 2, most + 1, (classes, classes))
    chart = Chart(
        "Precision", Axis.shares("recall: attack flows flagged"), Axis.percents("of the benign flows", 0.02),
        [Line("", [(0, 0), (1, 0.02)])],
    )  # fmt: skip
    figure = plot(Report.from_confusion(counts, names), chart)
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.canvas.draw()
    for axes in figure.axes:
        ticks = [*axes.get_xticklabels(), *axes.get_yticklabels()]
        shown = [text for text in (*ticks, axes.xaxis.label, axes.yaxis.label, axes.title) if text.get_text()]
        # Slanted names lie in boxes that meet at their corners.
        upright = [text for text in shown if text.get_rotation() in (0, 90)]
        texts = [*upright, *axes.texts]
        x0, y0, x1, y1 = np.array([text.get_window_extent(renderer).extents for text in texts]).T
        across = (x0[:, None] < x1 - 1) & (x0 < x1[:, None] - 1)
        down = (y0[:, None] < y1 - 1) & (y0 < y1[:, None] - 1)
        pairs = np.argwhere(np.triu(across & down, 1))
        meeting = [f"{texts[one].get_text()} on {texts[other].get_text()}" for one, other in pairs]
        assert not meeting
    confusion = figure.axes[0]
    (left, bottom), (right, top) = confusion.transData.transform([(0, 0), (1, 1)])
    for text in confusion.texts:
        box = text.get_window_extent(renderer)
        assert box.width <= abs(right - left) and box.height <= abs(top - bottom), text.get_text()
    assert len([text for text in confusion.texts if text.get_text()]) == classes**2


def test_a_plot_of_no_known_kind_is_refused_before_anything_is_done(made: Path, tmp_path: Path) -> None:
    for command in (["train", made / "t.parquet", "-o", tmp_path / "m.pkl"],
                    ["evaluate", made / "m.wirewise", made / "t.parquet"]):  # fmt: skip
        done = run(*command, "--plot", tmp_path / "x.gif")
        assert isinstance(done.exception, InputError) and "end its name in .html" in str(done.exception)
    assert not list(tmp_path.iterdir())


def test_a_bundle_as_a_page(made: Path, tmp_path: Path) -> None:
    done = run("inspect", made / "m.wirewise", "--html", tmp_path / "m.html")
    assert done.exit_code == 0 and "m.html" in done.output
    page = (tmp_path / "m.html").read_text()
    for part in ("<!DOCTYPE html>", "Flow table", "What integers lost", "RandomForestClassifier"):
        assert part in page
    assert "Where time goes" not in page and "://" not in page


@needs.root
def test_where_time_goes(made: Path, tmp_path: Path) -> None:
    done = run("inspect", made / "m.wirewise", "--html", tmp_path / "m.html", "--measure", "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.output)
    assert [stage["name"] for stage in said["cost"]["stages"]][-1] == "model"
    assert sum(stage["ns"] for stage in said["cost"]["stages"]) > 5
    assert "Where time goes" in (tmp_path / "m.html").read_text()
    assert "Where time goes" in run("inspect", made / "m.wirewise", "--measure").output
