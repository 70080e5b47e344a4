# SPDX-License-Identifier: Apache-2.0
"""The figures of what `bench.n3ic` has measured: siracusano-n3ic's 13 and 14, 15, 17 and 18, and 3."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.n3ic_tables import fastest, one_by_one, title

Rows = list[dict[str, Any]]
_PAPER = {"bnn-exec (paper)": (1.18e6, 8e6), "N3IC-FPGA (paper)": (1.81e6, 500.0)}
"""Flows a second, and nanoseconds."""


def plot(results: Rows, folder: Path) -> None:
    """Draws n3ic-{traffic,tomography,size,gpu}.png to a folder, as far as measured."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    drawing = {"traffic": _traffic, "tomography": _tomography, "size": _size}
    for name, draw in drawing.items():
        rows = [row for row in fastest(results) if row["figure"] == name and row["where"] != "gpu"]
        if rows:
            _save(draw(rows), folder / f"n3ic-{name}.png")
    gpu = [row for row in fastest(results) if row["figure"] == "traffic" and row["where"] in ("gpu", "batch")]
    if any(row["where"] == "gpu" for row in gpu):
        _save(_gpu(gpu), folder / "n3ic-gpu.png")
    pyplot.close("all")


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=90)
    print(f"drawn as {path}")


def _subplots(count: int) -> Any:
    from matplotlib import pyplot

    return pyplot.subplots(1, count, figsize=(5.5 * count, 3.8), layout="constrained", squeeze=False)


def _bars(axis: Any, names: list[str], values: list[float], label: str) -> None:
    axis.barh(names, values, log=True)
    axis.invert_yaxis()
    axis.set_xlabel(label)


def _traffic(rows: Rows) -> Any:
    """Flows analysed a second (Figure 13), and latency with the 99 % (Figure 14)."""
    figure, ((left, right),) = _subplots(2)
    judged = [row for row in rows if row.get("what") is None]
    rates = {title(row): float(row["per_second"]) for row in judged}
    rates |= {name: rate for name, (rate, _) in _PAPER.items()}
    _bars(left, list(rates), list(rates.values()), "flows analysed/s, 256-32-16-2")
    timed = {title(row): row["latency"] for row in judged if row["latency"]}
    times = {name: float(latency["median_ns"]) for name, latency in timed.items()}
    times |= {name: latency for name, (_, latency) in _PAPER.items()}
    _bars(right, list(times), [ns / 1e3 for ns in times.values()], "latency, µs: median, and 99 % as a dot")
    slow = [latency["p99_ns"] / 1e3 for latency in timed.values()]
    right.plot(slow, list(timed), "k.")
    return figure


def _chosen(rows: Rows) -> dict[str, Rows]:
    """The rows by place, without batches between the smallest and the largest."""
    sizes = [row["batch"] for row in rows if row["where"] == "batch"]
    ends = {min(sizes, default=0), max(sizes, default=0)}
    found: dict[str, Rows] = {}
    for row in rows:
        if row["where"] != "batch" or row["batch"] in ends:
            found.setdefault(title(row), []).append(row)
    return found


def _curves(axis: Any, rows: Rows, key: str) -> None:
    for name, points in _chosen(rows).items():
        values = [
            row["per_second"] / 1e6 if key == "rate" else row["latency"]["median_ns"] / 1e3 for row in points
        ]
        axis.plot([row["network"] for row in points], values, "o-", label=name)
    axis.set_yscale("log")
    axis.legend(fontsize=7)
    axis.set_ylabel("million inferences/s" if key == "rate" else "median latency, µs")


def _tomography(rows: Rows) -> Any:
    """Latency of the networks for queues, with the time between probes at 400 Gb/s (Figure 15)."""
    figure, ((axis,),) = _subplots(1)
    axis.axhline(25, color="k", linestyle=":", label="probes at 400 Gb/s")
    _curves(axis, one_by_one(rows), "latency")
    return figure


def _size(rows: Rows) -> Any:
    """Throughput and latency against the number of neurons (Figures 17 and 18)."""
    figure, ((left, right),) = _subplots(2)
    _curves(left, rows, "rate")
    _curves(right, rows, "latency")
    return figure


def _gpu(rows: Rows) -> Any:
    """There and back against the size of a batch, beside a core of the CPU (Figure 3)."""
    figure, ((axis,),) = _subplots(1)
    names = dict.fromkeys(row["what"] if row["where"] == "gpu" else "a core of the CPU" for row in rows)
    for name in names:
        points = [row for row in rows if row.get("what", "a core of the CPU") == name]
        x = [row["batch"] for row in points]
        axis.plot(x, [row["latency"]["median_ns"] / 1e3 for row in points], "o-", label=name)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("batch, 256-32-16-2")
    axis.set_ylabel("median latency, µs")
    axis.legend(fontsize=8)
    return figure
