# SPDX-License-Identifier: Apache-2.0
"""Figures: confusion, importance of features, where time goes. HTML needs nothing, other files matplotlib.

A figure is a few panels, three in a row, made of whatever of these is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wirewise import html
from wirewise.charts import Chart
from wirewise.compiler import Compiled
from wirewise.errors import InputError, MissingFeatureError
from wirewise.evaluate import Report, Training
from wirewise.evaluate.evaluation import Evaluation
from wirewise.evaluate.importance import IMPORTANCE_TITLE, Importance
from wirewise.files import write_atomically
from wirewise.formats.bundle import Bundle
from wirewise.report import charts
from wirewise.stages import Cost
from wirewise.tuning import Found
from wirewise.tuning.elimination import Worths
from wirewise.tuning.run import Trial

SUFFIXES = (".html", ".svg", ".png", ".pdf")
_BLUE = "#4477aa"
_MOST_BARS = 30
_ACROSS = 3
_SIZE = (5.5, 4.5)  # inches of a panel
_CELL = 0.36  # inches of a confusion's, at least
_LEGIBLE = 7.0  # points


@dataclass(frozen=True)
class Panel:
    """One plot: its title, its HTML, and what draws it on the axes of a figure."""

    title: str
    markup: str
    draw: Callable[[Any], None]
    inches: float = 0.0
    """What it needs beyond the usual, each way."""


def panels(thing: Any) -> list[Panel]:
    """The plots of a `Report`, `Evaluation`, `Chart`, `Importance`, `Training`, `Bundle`, `Compiled`, `Cost`,
    or of what `search` or `features_worth` found; else InputError.
    """
    if isinstance(thing, Report):
        return [
            _confusion([row.name for row in thing.classes], thing.confusion, f"Accuracy {thing.accuracy:.4f}")
        ]
    if isinstance(thing, Evaluation):
        return [*panels(thing.packets), *(panel for chart in charts(thing) for panel in panels(chart))]
    if isinstance(thing, Chart):
        return [Panel(thing.title, thing.to_html(titled=False), thing.draw)]
    if isinstance(thing, Importance):
        return [_bars(IMPORTANCE_TITLE, thing.ranked)]
    if isinstance(thing, Training):
        return [*panels(thing.report), *panels(thing.importance())]
    if isinstance(thing, Cost):
        unit = "Instructions" if thing.ns is None else "ns a packet"
        rows = [(stage.name, thing.length(stage)) for stage in thing.stages]
        return [_bars(f"{unit} of {thing.bundle}", rows, thing.to_html())]
    if isinstance(thing, Worths):
        lost = [(each.name, each.lost) for each in thing.features]
        price = [(each.name, float(each.cost.instructions)) for each in thing.features]
        return [_bars(IMPORTANCE_TITLE, lost), _bars("Instructions that a feature adds", price)]
    if isinstance(thing, Found):
        return [_pareto(thing)]
    if isinstance(thing, Compiled):
        return panels(thing.bundle)
    if isinstance(thing, Bundle):
        manifest = thing.manifest
        reads = [(n, float(r)) for n, r in zip(manifest.feature_names, thing.model.reads, strict=True) if r]
        found = [_bars("Parts of the model that read a feature", sorted(reads, key=lambda pair: -pair[1]))]
        accuracy = manifest.accuracy or {}
        if accuracy.keys() >= {"accuracy", "packets", "classes", "confusion"}:
            title = f"Accuracy {accuracy['accuracy']:.4f} in training"
            names = [row["name"] for row in accuracy["classes"]]
            found.insert(0, _confusion(names, accuracy["confusion"], title))
        return found
    raise InputError(
        f"{type(thing).__name__}", "has no plot",
        "give what train, compile, cost or Training.importance gives, a Bundle or a Report",
    )  # fmt: skip


def plot(*things: Any) -> Any:
    """A matplotlib figure of what is given, three panels in a row: confusion, importance, where time goes.

    - things: a `Training`, `Report`, `Importance`, `Bundle`, `Compiled` or `Cost`, one or several.

    Gives a `matplotlib.figure.Figure`, which notebooks show and `savefig` writes. Raises InputError for
    anything else, MissingFeatureError without matplotlib (`wirewise[plot]`).
    """
    return _figure([panel for thing in things for panel in panels(thing)])


def check_plot(path: Path) -> None:
    """Raises InputError for a suffix that no plot is written as, MissingFeatureError without matplotlib."""
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(str(path), "is no kind of plot", f"end its name in {', '.join(SUFFIXES)}")
    if path.suffix.lower() != ".html":
        _matplotlib()


def write_plot(path: Path, title: str, *things: Any) -> None:
    """Write the plots of things to a file: .html (a page), .svg, .png or .pdf. Errors as of `check_plot`."""
    check_plot(path)
    found = [panel for thing in things for panel in panels(thing)]
    if path.suffix.lower() == ".html":
        parts = [part for panel in found for part in (html.heading(panel.title), panel.markup)]
        write_atomically(path, html.page(title, *parts).encode())
        return
    from io import BytesIO

    buffer = BytesIO()
    _figure(found, title).savefig(buffer, format=path.suffix[1:].lower(), bbox_inches="tight", dpi=150)
    write_atomically(path, buffer.getvalue())


def _matplotlib() -> Any:
    try:
        import matplotlib.figure
    except ImportError as error:
        raise MissingFeatureError(
            f"plots need matplotlib, which cannot be imported ({error}); pip install matplotlib, or "
            "write .html, which needs nothing more"
        ) from None
    return matplotlib


def _figure(found: Sequence[Panel], title: str = "") -> Any:
    """Without pyplot: no window, no state, nothing to close."""
    matplotlib = _matplotlib()
    with matplotlib.rc_context({"text.parse_math": False}):  # a name may hold dollar signs
        across = min(_ACROSS, len(found))
        down = math.ceil(len(found) / across)
        needs = [panel.inches for panel in found]
        widths = [_SIZE[0] + max(needs[column::across]) for column in range(across)]
        heights = [_SIZE[1] + max(needs[row * across : (row + 1) * across]) for row in range(down)]
        size = (sum(widths), sum(heights))
        made = matplotlib.figure.Figure(figsize=size, layout="constrained")
        ratios = {"width_ratios": widths, "height_ratios": heights}
        places = list(made.subplots(down, across, squeeze=False, **ratios).flat)
        for axes in places[len(found) :]:
            axes.remove()
        for axes, panel in zip(places, found, strict=False):
            axes.set_title(panel.title)
            panel.draw(axes)
        if title:
            made.suptitle(title)
    return made


def _confusion(classes: Sequence[str], counts: Sequence[Sequence[int]], title: str) -> Panel:
    many = len(classes) > html.MANY_CLASSES
    inches = max(0.0, _CELL * len(classes) - 2.6)

    def draw(axes: Any) -> None:
        shares = [[count / max(1, sum(row)) for count in row] for row in counts]
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        ticks = range(len(classes))
        if many:  # as in HTML: the columns have the numbers of the rows
            axes.set_xticks(ticks, ticks)
            axes.set_yticks(ticks, [f"{number} {name}" for number, name in enumerate(classes)])
        else:
            axes.set_xticks(ticks, classes, rotation=30, ha="right", rotation_mode="anchor")
            axes.set_yticks(ticks, classes)
        axes.set_xlabel("said")
        axes.set_ylabel("is")
        written = [[f"{count:,}" for count in row] for row in counts]
        if many or _fitting(written) < _LEGIBLE:
            written = [[_short(count) for count in row] for row in counts]
        size = _fitting(written)
        for row in ticks:
            for column in ticks:
                colour = "white" if shares[row][column] > 0.5 else "black"
                said = written[row][column]
                axes.text(column, row, said, ha="center", va="center", color=colour, fontsize=size)

    return Panel(title, html.confusion(classes, counts), draw, inches)


def _fitting(written: Sequence[Sequence[str]]) -> float:
    """The size, in points, at which every text fits its cell: its characters are at most 0.7 of that wide."""
    longest = max(len(said) for row in written for said in row)
    return min(10.0, 72 * max(_CELL, 2.6 / len(written)) / (0.7 * max(1, longest)))


def _short(count: int) -> str:
    """A count in at most five characters; none is nothing."""
    if count < 10_000:
        return str(count) if count else ""
    unit = next(at for at in range(1, 7) if count < 999.5 * 1000**at)
    return f"{count / 1000**unit:.3g}{'kMGTPE'[unit - 1]}"


def _pareto(found: Found) -> Panel:
    """Every model judged on all folds: its F1 against what it costs; a line through the best for their
    cost.
    """
    timed = all(trial.ns is not None for trial in found.pareto)
    unit = "ns a packet" if timed else "instructions"

    def cost(trial: Trial) -> float:
        return (trial.ns or 0.0) if timed else float(trial.instructions or 0)

    def draw(axes: Any) -> None:
        judged = [trial for trial in found.trials if not trial.rejected_because]
        axes.scatter([cost(each) for each in judged], [each.f1 for each in judged], color="#bbbbbb")
        axes.plot(
            [cost(each) for each in found.pareto], [each.f1 for each in found.pareto], "o-", color=_BLUE
        )
        axes.set_xlabel(unit)
        axes.set_ylabel("F1 of attack flows, cross-validated")
        axes.spines[["top", "right"]].set_visible(False)

    rows = ((t.settings.describe(), f"{t.f1:.4f}", f"{cost(t):,.0f}") for t in found.pareto)
    markup = html.table(("model", "F1 by flow", unit), rows, right=(1, 2))
    return Panel("Nothing tried is both better and cheaper", markup, draw)


def _bars(title: str, rows: Sequence[tuple[str, float]], markup: str = "") -> Panel:
    shown = list(rows[:_MOST_BARS])

    def draw(axes: Any) -> None:
        axes.barh([name for name, _ in shown], [length for _, length in shown], color=_BLUE)
        axes.invert_yaxis()
        axes.spines[["top", "right"]].set_visible(False)

    return Panel(title, markup or html.bars((n, v, f"{v:,.2f}".removesuffix(".00")) for n, v in rows), draw)
