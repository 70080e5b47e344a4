# SPDX-License-Identifier: Apache-2.0
"""What run.py has measured as tables and plots, with the paper's numbers beside."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from bench import machine
from wirewise.errors import WirewiseError
from wirewise.files import write_atomically

PAPER: dict[str, dict[str, float]] = {  # galvao2026, section 4, and Figures 6 and 7
    "kernel": {"accuracy": 99.60, "us": 0.9046, "usr": 2.91, "sys": 0.44, "soft": 9.52, "switches": 3452.09},
    "user space": {
        "accuracy": 99.91, "us": 32.88, "usr": 5.83, "sys": 0.25, "soft": 9.71, "switches": 5736.07,
    },
}  # fmt: skip
_CPU = ("usr", "sys", "soft")
_WAYS = {"kernel": "kernel", "scikit-learn": "scikit-learn", "compiled": "as C, by ctypes"}
Report = dict[str, Any]


def show(report: Report) -> None:
    """Everything, as docs/5g.md has it."""
    machine.show(report["machine"])
    print("\n" + "\n\n".join(parts(report).values()))


def document(report: Report, page: Path) -> None:
    """Puts the parts in their places on a page: between `<!-- NAME -->` and `<!-- end -->`."""
    text = page.read_text(encoding="utf-8")
    for name, part in parts(report).items():
        place = re.search(rf"<!-- {name} -->\n(.*?)<!-- end -->", text, re.DOTALL)
        if place is None:
            raise WirewiseError(f"{page} has no place for {name}: <!-- {name} --> and <!-- end -->")
        text = f"{text[: place.start(1)]}{part}\n{text[place.end(1) :]}"
    write_atomically(page, text.encode())
    print(f"written into {page}")


def parts(report: Report) -> dict[str, str]:
    """The measurements as Markdown, by what they are of."""
    facts, training = report["machine"], report["training"]
    found = {
        "machine": " ".join(
            [
                f"{facts['cpu']}, {facts['cores']} cores, Linux {facts['kernel']}, {facts['date'][:10]}.",
                *(f"Disturbed: {line}." for line in facts["disturbances"]),
            ]
        ),
        "training": f"{training['rows']:,} rows were recorded, {training['lost']:,} lost. The forest is "
        f"{training['model']}: {training['instructions']:,} instructions. Of {training['tested_on']:,} "
        f"packets of devices that it had not seen it was right about {_percent(training['accuracy'])} %.",
    }
    if "equal" in report:
        equal = report["equal"]
        found["equal"] = (
            f"{equal['judged']:,} of {equal['packets']:,} packets were judged by the program and by the "
            f"estimator: **{equal['differing']:,} verdicts differ**. {equal['extension_headers']:,} had "
            f"extension headers, {equal['ipv6_inside']:,} IPv6 inside, {equal['fragments_inside']:,} a "
            f"fragment inside; {equal['fragments_of_n3']:,} were fragments themselves."
        )
    if "classification" in report:
        found["classification"] = classification_table(report["classification"])
    if "delay" in report:
        found["delay"] = delay_table(report["delay"])
    return found


def classification_table(ways: Report) -> str:
    """Markdown: each way beside the paper's two."""
    kernel_ns = ways["kernel"]["ns"]

    def here(value: Any) -> list[str]:
        return [value(ways[way]) for way in _WAYS]

    def row(name: str, key: str, digits: int, without: str, value: Any) -> list[str]:
        paper = [f"{PAPER[where][key]:.{digits}f}" for where in ("kernel", "user space")]
        return [name, *paper, without, *here(value)]

    def mean(way: Report, name: str) -> float:
        values = way["usage"][name]
        return float(sum(values) / len(values))

    none, user_space = ways["none"], list(_WAYS)[1:]
    rows = [
        row("accuracy, %", "accuracy", 2, "", lambda way: _percent(way["right"] / max(1, way["judged"]))),
        ["verdicts", "", "", "", *here(lambda way: f"{way['judged']:,}")],
        row("time for one, µs", "us", 2, "", lambda way: f"{way['ns'] / 1e3:,.2f}"),
        ["its median, µs", "", "", "", "", *(f"{ways[way]['median_ns'] / 1e3:,.2f}" for way in user_space)],
        ["kernel is faster", "", "36 times", "", "",
         *(f"{ways[way]['ns'] / kernel_ns:,.0f} times" for way in user_space)],
        *(row(f"CPU, {name}, %", name, 2, f"{mean(none, name):.2f}",
              lambda way, name=name: f"{mean(way, name):.2f}") for name in _CPU),
        ["CPU, all three, %", *(f"{sum(of[name] for name in _CPU):.2f}" for of in PAPER.values()),
         f"{sum(mean(none, name) for name in _CPU):.2f}",
         *here(lambda way: f"{sum(mean(way, name) for name in _CPU):.2f}")],
        row("context switches/s", "switches", 0, f"{mean(none, 'switches'):,.0f}",
            lambda way: f"{mean(way, 'switches'):,.0f}"),
    ]  # fmt: skip
    head = ["", "paper, kernel", "paper, user space", "nothing", *_WAYS.values()]
    loop = ways["kernel"]["loop"]["results"][0]["ns_per_packet"]
    return f"{_markdown(head, rows)}\n\nThe program in a tight loop: {loop:.0f} ns a packet."


def delay_table(delay: Report) -> str:
    """Markdown: a row for each variant, in ms."""
    rows = [
        [
            name,
            f"{of['offered_mbit']:.0f} Mbit/s",
            *(f"{of[key] / 1e6:,.2f}" for key in ("median_ns", "p99_ns", "p999_ns")),
            f"{_percent(of['lost'])} %",
            f"{of['arrived']:,}",
        ]
        for name, of in delay["variants"].items()
    ]
    head = [
        f"N6 at {delay['rate']}", "video wants", "median, ms", "99 %, ms", "99.9 %, ms", "lost", "packets",
    ]  # fmt: skip
    return _markdown(head, rows)


def _markdown(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _percent(share: float) -> str:
    return f"{100 * share:.2f}"


def plot(report: Report, folder: Path) -> None:
    """Draws 5g.png (the paper's figures) and 5g-delay.png to a folder."""
    import matplotlib

    matplotlib.use("agg")
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {}
    if "classification" in report:
        drawn["5g"] = _classification(report["classification"])
    if "delay" in report:
        drawn["5g-delay"] = _delay(report["delay"])
    for name, figure in drawn.items():
        path = folder / f"{name}.png"
        figure.savefig(path, dpi=90)
        print(f"drawn as {path}")


def _classification(ways: Report) -> Any:
    """Accuracy and time as bars; CPU and context switches as the paper's Figures 6 and 7, its means as
    crosses.
    """
    from matplotlib import pyplot

    figure, grid = pyplot.subplots(2, 3, figsize=(12, 6.4), layout="constrained")
    bars = {
        "kernel,\npaper": PAPER["kernel"],
        "user space,\npaper": PAPER["user space"],
        **{
            name.replace(", ", ",\n"): {
                "accuracy": 100 * ways[way]["right"] / max(1, ways[way]["judged"]),
                "us": ways[way]["ns"] / 1e3,
            }
            for way, name in _WAYS.items()
        },
    }
    colours = ["0.75", "0.75", "C0", "C1", "C2"]
    for axis, key, title in (
        (grid[0][0], "accuracy", "accuracy (%)"),
        (grid[0][1], "us", "time for one classification (µs)"),
    ):
        values = [bar[key] for bar in bars.values()]
        drawn = axis.bar(list(bars), values, color=colours)
        axis.bar_label(drawn, [f"{value:,.2f}" for value in values], fontsize=8)
        axis.set_title(title)
        axis.tick_params(axis="x", labelsize=7)
    grid[0][0].set_ylim(min(bar["accuracy"] for bar in bars.values()) - 1, 100.4)
    grid[0][1].set_yscale("log")
    grid[0][1].set_ylim(0.1, 20 * max(bar["us"] for bar in bars.values()))
    shown = {"nothing": "none", "kernel": "kernel", "scikit-\nlearn": "scikit-learn", "as C": "compiled"}
    places = [grid[0][2], *grid[1]]
    for axis, (key, title) in zip(
        places,
        [*((name, f"CPU, {name} (%)") for name in _CPU), ("switches", "context switches/s")],
        strict=True,
    ):
        axis.boxplot([ways[way]["usage"][key] for way in shown.values()], showmeans=True)
        axis.set_xticks(range(1, len(shown) + 1), list(shown))
        means = [of[key] for of in PAPER.values()]
        axis.plot([2, 3.5], means, "x", color="0.4", label="paper's means")
        axis.set_title(title)
        axis.set_ylim(bottom=0)
        axis.tick_params(axis="x", labelsize=8)
    places[0].legend(fontsize=8)
    return figure


def _delay(delay: Report) -> Any:
    """Share of URLLC packets that took longer, against how long."""
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(8, 4), layout="constrained")
    for name, of in delay["variants"].items():
        points = [(nanoseconds / 1e6, 1 - share) for share, nanoseconds in of["quantiles"] if share < 1]
        axis.loglog(*zip(*points, strict=True), label=name)
    axis.axhline(0.01, color="0.8", linewidth=0.8)
    axis.set_ylim(1e-4, 1)
    axis.set_xlabel("one-way delay (ms)")
    axis.set_ylabel("share of URLLC packets that took longer")
    axis.legend()
    return figure
