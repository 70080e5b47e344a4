# SPDX-License-Identifier: Apache-2.0
"""`wirewise evaluate --report`: the page says what was measured, and a real browser shows it as it should."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.ensemble import RandomForestClassifier
from typer.testing import CliRunner, Result

import wirewise as ww
from tests.e2e import browser
from wirewise.cli import app
from wirewise.datasets import Table

pytestmark = pytest.mark.xdist_group("report")

FEATURES = ww.FeatureSet.from_dict({"name": "two", "features": ["length", "count"]})
HOSTILE = "<script>alert(1)</script>"
CLASSES = ["benign", "syn-flood", "port-scan", HOSTILE, *(f"attack-of-kind-{n}" for n in range(10))]


def table(flows: int, wrong: float, *, seed: int = 0) -> Table:
    """Flows of four packets in twenty captures; a share of the benign ones looks like attacks."""
    rng = np.random.default_rng(seed)
    label = np.where(rng.random(flows) < 0.5, 0, rng.integers(1, len(CLASSES), flows))
    like = np.where((label == 0) & (rng.random(flows) < wrong), 1, label)
    length = 100 * (like + 20 * (rng.random(flows) < 0.1)) + rng.integers(0, 60, flows)
    number = np.arange(flows).repeat(4)
    return Table.of(
        pl.DataFrame(
            {
                "time_ns": 10**9 * number + np.tile([0, 10**6, 10**8, 2 * 10**9], flows),
                "capture": [f"/captures/with/a/long/name/{flow % 20}.pcap" for flow in number],
                "packet": np.arange(4 * flows),
                "flow": [f"6 192.0.2.{flow % 250}|{flow} 198.51.100.1|443" for flow in number],
                "length": length[number],
                "count": np.tile([1, 2, 3, 4], flows),
                "label": [
                    f"benign/{('web', 'dns')[flow % 2]}" if label[flow] == 0 else CLASSES[label[flow]]
                    for flow in number
                ],
                "status": np.zeros(4 * flows, np.int32),
            }
        ),
        FEATURES,
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two bundles, one of a stump, and tables: one that they are good on and one that they are bad on."""
    folder = tmp_path_factory.mktemp("report")
    learned = table(2000, 0)
    learned.write(folder / "learned.parquet")
    table(2000, 0, seed=1).write(folder / "good.parquet")
    table(2000, 0.05, seed=2).write(folder / "bad.parquet")
    frame = learned.frame
    for name, depth in (("forest", 12), ("stump", 1)):
        forest = RandomForestClassifier(3, max_depth=depth, max_features=None, random_state=0)
        forest.fit(frame["length", "count"], frame["label"])
        bundle = ww.compile(forest, FEATURES, table=learned, verify="never")
        bundle.write(folder / f"{name}.wirewise")
    return folder


def run(*arguments: object) -> Result:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == 0, done.output
    return done


@pytest.fixture(scope="module")
def reports(made: Path) -> Path:
    """Pages of one model each, and one of both."""
    for name in ("good", "bad"):
        run("evaluate", made / "forest.wirewise", made / f"{name}.parquet", "--report", made / f"{name}.html")
    both = (made / "forest.wirewise", made / "stump.wirewise")
    run("evaluate", *both, made / "bad.parquet", "--report", made / "both.html")
    return made


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Page]:
    with browser.page(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("name", ["good", "bad", "both"])
def test_a_browser_shows_it_whole(reports: Path, page: browser.Page, name: str, width: int) -> None:
    path = reports / f"{name}.html"
    page.open(path.as_uri(), width)
    assert page.requests == [path.as_uri()], "it asks for nothing else"
    assert not page.complaints
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.body.innerText.length") > 1500
    figures: list[dict[str, Any]] = page.evaluate(
        "[...document.querySelectorAll('svg')].map(one => {"
        " const box = one.getBoundingClientRect();"
        " const drawn = one.querySelector('polyline, circle').getBoundingClientRect();"
        " const outside = [...one.querySelectorAll('text')].filter(said => {"
        "  const place = said.getBoundingClientRect();"
        "  return place.left < box.left - 1 || place.right > box.right + 1 || place.bottom > box.bottom + 1;"
        " }).map(said => said.textContent);"
        " return {width: box.width, height: box.height, drawn: drawn.width, outside}; })"
    )
    assert len(figures) >= (11 if name == "both" else 5)
    for figure in figures:
        assert figure["width"] > 250 and figure["height"] > 150 and figure["drawn"] > 0
        assert not figure["outside"], "text of a figure is cut"
    # The verdict is what one sees first.
    top, bottom = page.evaluate(
        "(box => [box.top, box.bottom])(document.querySelector('.verdict').getBoundingClientRect())"
    )
    assert 0 < top < bottom < 900
    if folder := os.environ.get("WIREWISE_SCREENSHOTS"):
        (Path(folder) / f"{name}-{width}.png").write_bytes(page.screenshot())


SEVENTEEN = [
    "benign", "arp-spoofing", "bot-command-and-control", "brute-force-ssh", "cryptomining",
    "data-exfiltration", "dns-amplification", "heartbleed", "http-slowloris", "icmp-flood", "infiltration",
    "ntp-amplification", "port-scan", "ransomware", "syn-flood", "udp-flood", "web-attack-sql-injection",
]  # fmt: skip


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of seventeen classes, and plots of it as HTML."""
    folder = tmp_path_factory.mktemp("many")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[__name__], "CLASSES", SEVENTEEN)
        learned = table(2000, 0)
        table(2000, 0.05, seed=2).write(folder / "bad.parquet")
    frame = learned.frame
    forest = RandomForestClassifier(3, max_depth=6, max_features=None, random_state=0)
    forest.fit(frame["length", "count"], frame["label"])
    ww.compile(forest, FEATURES, table=learned, verify="never").write(folder / "m.wirewise")
    given = (folder / "m.wirewise", folder / "bad.parquet")
    run("evaluate", *given, "--report", folder / "many.html", "--plot", folder / "plots.html")
    return folder


OVERLAPS = """
(() => {
  const apart = (a, b) =>
    a.left >= b.right - 1 || b.left >= a.right - 1 || a.top >= b.bottom - 1 || b.top >= a.bottom - 1;
  const inside = (a, b) =>
    a.left >= b.left - 1 && a.right <= b.right + 1 && a.top >= b.top - 1 && a.bottom <= b.bottom + 1;
  const found = [];
  for (const svg of document.querySelectorAll('svg')) {
    const box = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll('text')]
      .map(one => [one.textContent, one.getBoundingClientRect()]);
    texts.forEach(([said, place], at) => {
      if (!inside(place, box)) found.push(`cut: ${said}`);
      for (const [other, there] of texts.slice(at + 1))
        if (!apart(place, there)) found.push(`${said} on ${other}`);
    });
  }
  for (const cell of document.querySelectorAll('td, th'))
    if (cell.scrollWidth > cell.clientWidth + 1) found.push(`wider than its cell: ${cell.textContent}`);
  for (const wide of document.querySelectorAll('.wide'))
    if (wide.scrollWidth > wide.clientWidth) found.push(`scrolls: ${wide.textContent.slice(0, 60)}`);
  return found;
})()
"""


@pytest.mark.parametrize("width", [800, 1440])
@pytest.mark.parametrize("name", ["many", "plots"])
def test_seventeen_classes_have_room(many: Path, page: browser.Page, name: str, width: int) -> None:
    page.open((many / f"{name}.html").as_uri(), width)
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert page.evaluate(OVERLAPS) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # And all of them are there to see.
    assert page.evaluate("document.querySelector('table.many').rows.length") == 18
    if folder := os.environ.get("WIREWISE_SCREENSHOTS"):
        (Path(folder) / f"{name}-{width}.png").write_bytes(page.screenshot())


def test_text_can_be_read_in_the_dark(reports: Path, page: browser.Page) -> None:
    page.open((reports / "bad.html").as_uri(), 400, dark=True)
    background = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    said = page.evaluate("getComputedStyle(document.querySelector('svg text')).fill")
    assert said == "rgb(255, 255, 255)", f"on {background}"


def test_what_the_page_says_is_what_was_measured(reports: Path) -> None:
    found = {}
    for name in ("good", "bad"):
        text = (reports / f"{name}.html").read_text()
        said = json.loads((reports / f"{name}.json").read_text())
        verdict = said["verdict"]
        found[name] = sorted(set(CLASSES[1:]) - set(verdict["may_drop"]))
        assert verdict["decision"] == "enforce"
        sentence = escape(verdict["sentence"]).replace(" %", "\u00a0%")
        assert text.index(sentence) < text.index("Evidence") < text.index("never seen")
        assert f"{said['flows']['attack']['classes'][1]['f1']:.4f}" in text
        assert "&lt;script&gt;" in text and HOSTILE not in text and "://" not in text
    assert found == {"good": [], "bad": ["syn-flood"]}, "only what benign flows are taken for is observed"


def test_several_models_are_compared_by_price(reports: Path) -> None:
    said = json.loads((reports / "both.json").read_text())["models"]
    assert [one["about"]["model"] for one in said] == ["forest.wirewise", "stump.wirewise"]
    assert said[0]["cost"]["instructions"] > said[1]["cost"]["instructions"]
    text = (reports / "both.html").read_text()
    assert "The best of 2 models is forest.wirewise" in text and "F1 against instructions" in text
