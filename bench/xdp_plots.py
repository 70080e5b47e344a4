# SPDX-License-Identifier: Apache-2.0
"""The figures of what `bench.xdp` has measured, beside hoiland-jorgensen's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

Rows = list[dict[str, Any]]


def plot(report: dict[str, Any], folder: Path) -> None:
    """Draws xdp-throughput.png and xdp-flood.png to a folder."""
    import matplotlib

    matplotlib.use("agg")
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {}
    if report["drop"] or report["forward"]:
        drawn["xdp-throughput"] = _throughput({part: report[part] for part in ("drop", "forward")})
    if report["flood"]:
        drawn["xdp-flood"] = _flood(report["flood"])
    for name, figure in drawn.items():
        path = folder / f"{name}.png"
        figure.savefig(path, dpi=90)
        print(f"drawn as {path}")


def _throughput(parts: dict[str, Rows]) -> Any:
    """A bar for each way (Figures 3 and 4, at one core)."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(parts), figsize=(11, 3.4), layout="constrained")
    for axis, (part, rows) in zip(axes, parts.items(), strict=True):
        names = [row["way"] for row in rows]
        axis.barh(names, [row["per_second"] / 1e6 for row in rows])
        axis.invert_yaxis()
        axis.set_title(part)
        axis.set_xlabel("million packets/s, one core")
    return figure


def _flood(rows: Rows) -> Any:
    """Transactions a second against the flood's rate, a subplot for each flood (Figure 5)."""
    from matplotlib import pyplot

    floods = list(dict.fromkeys(row["flood"] for row in rows))
    figure, axes = pyplot.subplots(
        1, len(floods), figsize=(11, 3.8), layout="constrained", sharey=True, squeeze=False
    )
    for flood, axis in zip(floods, axes.flat, strict=True):
        for guard in dict.fromkeys(row["guard"] for row in rows if row["flood"] == flood):
            points = [row for row in rows if (row["flood"], row["guard"]) == (flood, guard)]
            x = [row["offered_per_second"] / 1e6 for row in points]
            axis.plot(x, [row["transactions_per_second"] / 1e3 for row in points], "o-", label=guard)
        axis.set_title(f"{flood} flood")
        axis.set_xlabel("offered, million packets/s")
        axis.legend(fontsize=8)
    axes.flat[0].set_ylabel("thousand requests answered/s")
    return figure
