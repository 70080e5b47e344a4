# SPDX-License-Identifier: Apache-2.0
"""How things look: a repr of one line, HTML that holds no markup of others, plots as files."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl
import pytest
from sklearn.ensemble import RandomForestClassifier

from tests import needs
from wirewise import html
from wirewise.datasets import Table
from wirewise.errors import InputError, MissingFeatureError
from wirewise.evaluate import Report, Training, train
from wirewise.evaluate.importance import Importance
from wirewise.feature_sets import PRESETS, Feature, FeatureSet
from wirewise.formats.bundle import Bundle
from wirewise.formats.manifest import Program
from wirewise.importers import import_model
from wirewise.models import (
    random_binary_mlp,
    random_fixed_point_mlp,
    random_quantized_mlp,
    random_tree_ensemble,
)
from wirewise.plots import plot, write_plot
from wirewise.stages import STAGES, Cost, Stage
from wirewise.targets.ebpf.target import flow_record

RNG = np.random.default_rng(5)
HOSTILE = "<script>alert(1)</script> $\\frac"
FEATURES = FeatureSet("two", (Feature.parse("length"), Feature.parse("ttl")))
REPORT = Report.of(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1]), ["benign", HOSTILE])


class Tags(HTMLParser):
    """Which elements a page has, all of them closed in order."""

    VOID = ("meta",)

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.add(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        # Nothing is fetched, nothing runs.
        assert not {name for name, _ in attrs} & {"src", "href", "onload", "onerror"}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def check_markup(text: str) -> None:
    tags = Tags()
    tags.feed(text)
    tags.close()
    assert not tags.open and "script" not in tags.seen


def table() -> Table:
    """Class `b` has long packets; the other feature says nothing."""
    rows = 400
    length = RNG.integers(60, 1500, rows // 4).repeat(4)
    frame = pl.DataFrame(
        {
            "flow": [str(number // 4) for number in range(rows)],
            "length": length,
            "ttl": RNG.integers(1, 255, rows),
            "label": np.where(length > 700, "b", "benign"),
        }
    )
    return Table.of(frame, FEATURES)


@pytest.fixture(scope="module")
def training() -> Training:
    return train(table(), "forest", trees=3, depth=3)


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    model = random_tree_ensemble(RNG, n_features=2, n_classes=2)
    program = Program(
        section="xdp", entry="ww_main", tail_calls=[], shape="inline", why="small", instructions=3000,
        object_bytes=100, clang="19", predicted={}, verifier=None,
    )  # fmt: skip
    return Bundle.create(
        name="shown", classes=["benign", HOSTILE], model=model, feature_set=FEATURES,
        flow=flow_record(FEATURES, model), program=program, object_file=b"x" * 100_000,
        sources={"a.h": "text" * 10_000}, source=HOSTILE, accuracy=REPORT.to_dict(),
    )  # fmt: skip


def models() -> list[Any]:
    makers = (random_tree_ensemble, random_quantized_mlp, random_fixed_point_mlp, random_binary_mlp)
    return [make(RNG) for make in makers]


def test_a_repr_is_one_short_line(training: Training, bundle: Bundle) -> None:
    forest = RandomForestClassifier(10, max_depth=10).fit(
        RNG.integers(0, 9, (200, 3)), RNG.integers(0, 2, 200)
    )
    imported = import_model(forest)
    many = FeatureSet("many", tuple(Feature.parse({"name": f"f{i}", "is": "length"}) for i in range(128)))
    cost = Cost("x", [Stage(name, 10, 1.0) for name in STAGES], "here")
    things = [
        imported, imported.model, imported.model.trees[0], *models(), bundle, training, training.report,
        training.importance(), training.table, PRESETS["hara2026"], many, many.features[0], cost,
    ]  # fmt: skip
    for thing in things:
        assert 10 < len(repr(thing)) <= 200 and "\n" not in repr(thing), type(thing)


def test_html_is_well_formed_and_escaped(training: Training, bundle: Bundle) -> None:
    imported = import_model(RandomForestClassifier(3).fit(RNG.integers(0, 9, (50, 3)), [HOSTILE, "b"] * 25))
    shown = [REPORT, training, training.importance(), bundle, imported, PRESETS["hara2026"]]
    for thing in shown:
        check_markup(thing._repr_html_())
    assert "&lt;script&gt;" in REPORT._repr_html_() and "&lt;script&gt;" in imported._repr_html_()
    page = bundle.to_html(html.heading("more"))
    check_markup(page)
    assert page.startswith("<!DOCTYPE html>") and "&lt;script&gt;" in page
    for part in ("shown", "more", "Flow table", "0.7500 over 4 packets", "length"):
        assert part in page


def test_bars_are_as_long_as_their_values() -> None:
    widths = re.findall(r"width: ([\d.]+)em", html.bars([("a", 4, "4"), ("b", 1, "1"), ("c", -3, "-3")]))
    assert [float(width) for width in widths] == [12.0, 3.0, 0.0]


def test_importance_finds_the_feature_that_matters(training: Training) -> None:
    found = training.importance()
    assert found.ranked[0][0] == "length" and found.ranked[0][1] > 20
    assert abs(dict(found.ranked)["ttl"]) < 5
    assert found.packets == training.report.packets
    assert found == training.importance()  # equal seeds, equal answers


def test_importance_draws_of_many_rows() -> None:
    rows = RNG.integers(0, 2, (30_000, 1))
    found = Importance.of(lambda x: x[:, 0], rows, rows[:, 0], ["x"])
    assert found.packets == 10_000 and 40 < found.lost[0] < 60


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf", ".html"])
def test_plots_are_written(training: Training, bundle: Bundle, tmp_path: Path, suffix: str) -> None:
    needs.package("matplotlib")
    path = tmp_path / f"plot{suffix}"
    cost = Cost("x", [Stage("a", 100, None), Stage("b", 50, None)], "instructions")
    write_plot(path, HOSTILE, training, bundle, REPORT, cost)
    begins = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF", ".html": b"<!DOCTYPE"}
    assert path.read_bytes().startswith(begins[suffix]) and path.stat().st_size > 2000
    assert [child.name for child in tmp_path.iterdir()] == [path.name]


def test_a_figure_has_a_panel_for_each_plot(training: Training, bundle: Bundle) -> None:
    needs.package("matplotlib")
    titles = [axes.get_title() for axes in plot(training, bundle).axes]
    assert len(titles) == 4 and titles[0].startswith("Accuracy") and "shuffled" in titles[1]


def test_plots_without_matplotlib(tmp_path: Path) -> None:
    write_plot(tmp_path / "x.html", "title", REPORT)
    with patch.dict(sys.modules, {"matplotlib": None, "matplotlib.figure": None}):
        write_plot(tmp_path / "y.html", "title", REPORT)
        with pytest.raises(MissingFeatureError, match=r"pip install matplotlib, or write \.html"):
            write_plot(tmp_path / "y.png", "title", REPORT)
    assert sorted(child.name for child in tmp_path.iterdir()) == ["x.html", "y.html"]


def test_what_cannot_be_plotted(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"x\.gif: is no kind of plot; end its name in \.html"):
        write_plot(tmp_path / "x.gif", "", REPORT)
    with pytest.raises(InputError, match="int: has no plot"):
        plot(3)
