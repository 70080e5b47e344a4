# SPDX-License-Identifier: Apache-2.0
"""The figures of what `bench.planes` has measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

CPU_OF = "mlp-int8-16x16"
"""The program whose CPU time is drawn, as in hara2023, Figure 5."""

Rows = list[dict[str, Any]]


def plot(report: dict[str, Any], folder: Path) -> None:
    """Draws received.png, most.png and cpu.png to a folder."""
    import matplotlib

    matplotlib.use("agg")
    rows = report["results"]
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in (("received", _received(rows)), ("most", _most(rows)), ("cpu", _cpu(rows))):
        path = folder / f"{name}.png"
        figure.savefig(path, dpi=90)
        print(f"drawn as {path}")


def _names(rows: Rows, key: str) -> list[str]:
    return list(dict.fromkeys(row[key] for row in rows))


def _with(rows: Rows, **wanted: str) -> Rows:
    """Those that have these values, by what was offered."""
    found = [row for row in rows if all(row[key] == value for key, value in wanted.items())]
    return sorted(found, key=lambda row: float(row["offered_per_second"]))


def _filtered(rows: Rows) -> Rows:
    """Those with a program."""
    return [row for row in rows if row["mode"] is not None]


def _received(rows: Rows) -> Any:
    """Received of offered, a subplot for each program."""
    from matplotlib import pyplot

    bare, filtered = [row for row in rows if row["mode"] is None], _filtered(rows)
    programs = _names(filtered, "program") or ["no program"]
    columns = min(3, len(programs))
    lines = -(-len(programs) // columns)
    figure, axes = pyplot.subplots(
        lines, columns, figsize=(4.2 * columns, 3.4 * lines), layout="constrained", sharex=True, sharey=True,
        squeeze=False,
    )  # fmt: skip
    curves: dict[str, Any] = {}
    for program, axis in zip(programs, axes.flat, strict=False):
        shown = {plane: _with(filtered, program=program, plane=plane) for plane in _names(filtered, "plane")}
        shown["no filter"] = _with(bare)
        for plane, points in shown.items():
            x = [row["offered_per_second"] / 1e6 for row in points]
            y = [row["received_per_second"] / 1e6 for row in points]
            style = "k:" if plane == "no filter" else "o-"
            (curves[plane],) = axis.plot(x, y, style, markersize=4, label=plane)
        axis.set_title(program)
    figure.supxlabel("offered, million packets/s")
    figure.supylabel("received, million packets/s")
    figure.legend(curves.values(), curves.keys(), loc="outside lower center", ncols=len(curves), fontsize=8)
    return figure


def _most(rows: Rows) -> Any:
    """The most that each plane received with each program, and the CPU time of a packet at full load."""
    from matplotlib import pyplot

    filtered = _filtered(rows)
    planes, programs = _names(filtered, "plane"), _names(filtered, "program")
    figure, (received, cost) = pyplot.subplots(2, 1, figsize=(11, 7), layout="constrained", sharex=True)
    width = 0.8 / max(1, len(programs))
    for number, program in enumerate(programs):
        at = [place + (number - (len(programs) - 1) / 2) * width for place in range(len(planes))]
        measured = [_with(filtered, program=program, plane=plane) for plane in planes]
        most = [max((row["received_per_second"] for row in points), default=0) / 1e6 for points in measured]
        last = [points[-1]["ns_per_packet"] or 0 if points else 0 for points in measured]
        received.bar(at, most, width, label=program)
        cost.bar(at, last, width, label=program)
    received.set_ylabel("most received, million packets/s")
    cost.set_ylabel("receiver's CPU, ns/packet at full load")
    cost.set_xticks(range(len(planes)), planes)
    received.legend(fontsize=8)
    return figure


def _cpu(rows: Rows) -> Any:
    """CPU time by kind at each rate, a subplot for each plane."""
    from matplotlib import pyplot

    filtered = _filtered(rows)
    programs = _names(filtered, "program")
    program = CPU_OF if CPU_OF in programs else (programs or [""])[0]
    planes = _names(filtered, "plane") or ["no filter"]
    figure, axes = pyplot.subplots(
        1, len(planes), figsize=(2.8 * len(planes), 3.4), layout="constrained", sharey=True, squeeze=False
    )
    for plane, axis in zip(planes, axes.flat, strict=True):
        points = _with(filtered, program=program, plane=plane)
        base = [0.0] * len(points)
        for kind in ("user", "system", "softirq"):
            share = [100 * row["cpu"][f"{kind}_ns"] / (row["seconds"] * 1e9) for row in points]
            axis.bar(range(len(points)), share, bottom=base, label=kind)
            base = [low + more for low, more in zip(base, share, strict=True)]
        axis.set_xticks(range(len(points)), [f"{row['offered_per_second'] / 1e6:.2g}" for row in points])
        axis.set_title(plane, fontsize=10)
    axes.flat[0].set_ylabel("receiver's CPU, %")
    axes.flat[0].legend(fontsize=8)
    figure.supxlabel(f"{program}: offered, million packets/s", fontsize=10)
    return figure
