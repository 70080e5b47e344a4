# SPDX-License-Identifier: Apache-2.0
"""The tables of what `bench.n3ic` has measured, with what the paper's text says beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from bench import machine

BATCHES = (1, 10, 100, 1_000, 10_000)
Rows = list[dict[str, Any]]
Cells = list[str]

# siracusano-n3ic, sections 2.1, 6.1 and 6.2. Haswell at 3.7 GHz, NFP4000 at 800 MHz, Virtex-7 at 200 MHz.
PAPER_TRAFFIC = (
    ("bnn-exec, one core, batches of 10,000", "1.18", "8 ms"),
    ("bnn-exec, one core, batches of 1,000", "above 1", "1 ms"),
    ("N3IC-NFP, 480 threads", "1.81 (all that was offered)", "42 µs"),
    ("N3IC-P4", "1.81 (all that was offered)", "2 µs"),
    ("N3IC-FPGA, one module", "1.81 (all that was offered)", "0.5 µs"),
)
PAPER_TOMOGRAPHY = {
    "152-32-16-2": "N3IC-P4 about 2 µs",
    "152-64-32-2": "",
    "152-128-64-2": "N3IC-NFP 170 µs, N3IC-FPGA below 2 µs; bnn-exec about 40 µs",
}


def show(report: dict[str, Any]) -> None:
    """The machine, and all tables."""
    machine.show(report["machine"])
    for mark, lines in tables(report).items():
        print(f"\n{mark}:", *lines, sep="\n")
    for line in report["skipped"]:
        print(f"skipped: {line}")


def tables(report: dict[str, Any]) -> dict[str, list[str]]:
    """Lines of Markdown, by their mark in docs/n3ic.md; none of what was not measured."""
    rows = report["results"]
    made = {
        "n3ic-machine": [_machine(report["machine"])],
        "n3ic-traffic": _traffic(_of(rows, "traffic")),
        "n3ic-instructions": _instructions(_of(rows, "traffic")),
        "n3ic-tomography": _tomography(_of(rows, "tomography")),
        "n3ic-size": _size(_of(rows, "size")),
        "n3ic-gpu": _gpu(rows, report["skipped"]),
    }
    return {mark: lines for mark, lines in made.items() if lines}


def fastest(rows: Rows) -> Rows:
    """Without batches by other instructions than the fastest, which the executor chooses by trying them."""
    batches = [row for row in rows if row["where"] == "batch"]
    best = max(batches, key=lambda row: row["per_second"], default={"instructions": None})["instructions"]
    return [row for row in rows if row["where"] != "batch" or row["instructions"] == best]


def one_by_one(rows: Rows) -> Rows:
    """Without batches of several rows: a round of probes is one."""
    return [row for row in rows if row["where"] != "batch" or row["batch"] == 1]


def title(row: dict[str, Any]) -> str:
    """Where a row was measured."""
    if row["where"] == "batch":
        return "one row" if row["batch"] == 1 else f"batches of {row['batch']:,}"
    if row["where"] == "circuit":
        return f"circuit, {row['parallel']} neuron{'s' * (row['parallel'] > 1)} at once"
    if row["where"] == "gpu":
        return f"GPU, batches of {row['batch']:,}, {row['what']}"
    if row["what"]:
        return f"{row['where']}, {row['what']}"
    ten = (
        f", once a flow of {row['packets_a_flow']} packets" if row["packets_a_flow"] > 1 else ", every packet"
    )
    return f"{row['where']}{ten}"


def duration(ns: float | None) -> str:
    if ns is None:
        return ""
    for unit, size in (("ms", 1e6), ("µs", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.0f} ns"


def _machine(facts: dict[str, Any]) -> str:
    line = f"{facts['cpu']}, {facts['cores']} cores, Linux {facts['kernel']}, {facts['date'][:10]}."
    disturbed = facts["disturbances"]
    return f"{line} Preliminary: {'; '.join(disturbed)}." if disturbed else line


def _of(rows: Rows, figure: str) -> Rows:
    return [row for row in rows if row["figure"] == figure and row["where"] != "gpu"]


def _markdown(head: Cells, rows: Iterable[Cells]) -> list[str]:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def _times(row: dict[str, Any]) -> Cells:
    latency = row["latency"] or {}
    return [duration(latency.get(key)) for key in ("median_ns", "p95_ns", "p99_ns")]


def _million(row: dict[str, Any]) -> str:
    return f"{row['per_second'] / 1e6:.3g}"


def _traffic(rows: Rows) -> list[str]:
    if not rows:
        return []
    made = [[title(row), _million(row), *_times(row)] for row in fastest(rows)]
    paper = [[f"the paper's {name}", rate, "", time, ""] for name, rate, time in PAPER_TRAFFIC]
    head = ["256-32-16-2", "million flows/s", "median", "95 %", "99 %"]
    return _markdown(head, made + paper)


def _instructions(rows: Rows) -> list[str]:
    batches = [row for row in rows if row["where"] == "batch"]
    if not batches:
        return []
    sizes = sorted({row["batch"] for row in batches})
    kinds = list(dict.fromkeys(row["instructions"] for row in batches))
    rate = {(row["instructions"], row["batch"]): _million(row) for row in batches}
    head = ["million rows/s", *(f"batches of {size:,}" if size > 1 else "one row" for size in sizes)]
    return _markdown(head, ([kind, *(rate[kind, size] for size in sizes)] for kind in kinds))


def _by_network(
    rows: Rows, head: str, cell: Callable[[dict[str, Any]], str], more: dict[str, str]
) -> list[str]:
    """A row for each network, a column for each place."""
    shown = [row for row in fastest(rows) if row["where"] != "batch" or row["batch"] in (1, 10_000)]
    if not shown:
        return []
    names = list(dict.fromkeys(row["network"] for row in shown))
    places = list(dict.fromkeys(map(title, shown)))
    found = {(row["network"], title(row)): cell(row) for row in shown}
    lines = [[name, *(found.get((name, place), "") for place in places)] for name in names]
    if more:
        lines = [[*line, more.get(line[0], "")] for line in lines]
        places = [*places, "the paper's"]
    return _markdown([head, *places], lines)


def _latency(row: dict[str, Any]) -> str:
    median, _, slow = _times(row)
    return median if row["where"] == "circuit" else f"{median}, {slow}"


def _tomography(rows: Rows) -> list[str]:
    return _by_network(one_by_one(rows), "latency: median, 99 %", _latency, PAPER_TOMOGRAPHY)


def _size(rows: Rows) -> list[str]:
    throughput = _by_network(rows, "million/s", _million, {})
    return [*throughput, "", *_by_network(rows, "latency: median, 99 %", _latency, {})] if rows else []


def _gpu(rows: Rows, skipped: list[str]) -> list[str]:
    measured = [row for row in rows if row["where"] == "gpu"]
    beside = [row for row in fastest([row for row in rows if row["where"] == "batch"]) if measured]
    if not measured:
        return [
            f"Not measured here: {line.partition(': ')[2]}."
            for line in skipped
            if line.startswith("Figure 3")
        ]
    lines = [
        [
            f"{row['network']}, {title(row) if row['where'] == 'gpu' else 'a core, ' + title(row)}",
            *_times(row),
        ]
        for row in [*measured, *beside]
    ]
    return _markdown(["there and back", "median", "95 %", "99 %"], lines)
