# SPDX-License-Identifier: Apache-2.0
"""Packets a second on every plane: what hara2023 (Figures 4 and 5) and hara2026 (Figure 4) compare, on this
machine.

    python -m bench.planes --output build/bench/planes.json

Compiles the programs, has `wirewised bench planes` measure each of them on each plane, and draws the result.
docs/planes/README.md says how it is measured, and what that means.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import files, machine
from bench.plane_plots import plot
from bench.programs import FLOW, bundled
from wirewise import agent

PROGRAMS = (FLOW, "tree-10", "forest-10x10", "mlp-int8-16x16", "mlp-q16-32x32", "bnn-32-16")
NO_FILTER = "no filter"
PASSING = ("xdp-native",)
"""Planes that also let every packet pass, as those of hara2023 do; else they drop all."""
RATES = "250000,500000,1000000,2000000,max"
_DOCS = Path(__file__).parents[1] / "docs" / "planes"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives the exit code."""
    options = _parser().parse_args(arguments)
    return files.report_on(options, measure, files.drawn(options, show, plot, _DOCS), keep_as="-planes")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Compiles the programs, then measures one after the other."""
    facts, clang_path = machine.begin()
    folder = options.output.parent / "bundles"
    chosen = options.program or [NO_FILTER, *PROGRAMS]
    rate = ["--rate", options.rate, "--seconds", options.seconds]
    planes = [word for plane in options.plane or () for word in ("--plane", plane)]
    passing = [plane for plane in PASSING if plane in (options.plane or PASSING)]
    report: dict[str, Any] = {"machine": facts}
    results: list[dict[str, Any]] = []
    bundles = {name: bundled(name, folder, clang_path) for name in chosen if name != NO_FILTER}
    for name in chosen:
        print(f"measuring {name}", file=sys.stderr)
        said = {}
        if name == NO_FILTER:
            said = agent.call("bench", "planes", "--no-filter", *rate, timeout=None, within=machine.FIRST)
            results += [{**row, "program": name, "plane": name} for row in said.pop("results")]
        else:
            what = ["bench", "planes", "--bundle", bundles[name], *rate]
            said = agent.call(*what, *planes, timeout=None, within=machine.FIRST)
            results += said.pop("results")
            for plane in passing:
                rows = agent.call(*what, "--plane", plane, "--observe", timeout=None, within=machine.FIRST)[
                    "results"
                ]
                results += [{**row, "plane": f"{plane}, passing"} for row in rows]
        # The sender's most is that of the best of its runs.
        said["sender_most"] = max(said["sender_most"], report.get("sender_most", 0))
        report |= said
    return report | {"results": results}


def show(report: dict[str, Any]) -> None:
    """What each plane with each program received when offered as much as the sender can."""
    machine.show(report["machine"])
    print(f"\nthe sender alone: {report['sender_most']:,.0f} packets/s")
    heads = f"{'received/s':>11} {'of':>11} {'user':>5} {'sys':>5} {'soft':>5} ns/packet"
    print(f"\n{'program':<15} {'plane':<19} {heads}")
    for row in report["results"]:
        if row["rate"] is not None:
            continue
        used = [100 * ns / 1e9 / row["seconds"] for ns in row["cpu"].values()]
        shares = " ".join(f"{share:4.0f}%" for share in used)
        note = "  all that was sent" if row["keeps_up"] else ""
        print(
            f"{row['program']:<15} {row['plane']:<19} {row['received_per_second']:>11,.0f}"
            f" {row['offered_per_second']:>11,.0f} {shares} {row['ns_per_packet'] or 0:>9,.0f}{note}"
        )


def _parser() -> argparse.ArgumentParser:
    description = (__doc__ or "").partition("\n\n")[0]
    parser = argparse.ArgumentParser(prog="python -m bench.planes", description=description)
    add = parser.add_argument
    add("--output", type=Path, default=Path("build/bench/planes.json"), metavar="FILE", help="[%(default)s]")
    add("--program", action="append", choices=(NO_FILTER, *PROGRAMS), help="only this one; repeatable")
    add("--plane", action="append", metavar="NAME", help="only this one; repeatable")
    add("--rate", default=RATES, metavar="N,...", help="packets/s offered [%(default)s]")
    add("--seconds", default="1s", metavar="TIME", help="at each rate [%(default)s]")
    add("--keep", action="store_true", help="keep the result in bench/results, and the plots in docs/planes")
    return parser


if __name__ == "__main__":
    sys.exit(main())
