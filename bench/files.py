# SPDX-License-Identifier: Apache-2.0
"""What the measurements have in common: where results go, and how their options are read."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

import wirewise as ww
from bench import machine
from wirewise.datasets import Table
from wirewise.errors import WirewiseError
from wirewise.feature_sets import FeatureSet
from wirewise.files import write_atomically

RESULTS = Path(__file__).parent / "results"


def captured(folders: Sequence[Path], feature_set: FeatureSet) -> Table:
    """The packets of folders of captures with manifests, as one table."""
    parts = [ww.features([folder], feature_set) for folder in folders]
    return Table(pl.concat(parts, how="diagonal_relaxed"), feature_set)


def report_on(
    options: argparse.Namespace,
    measure: Callable[[argparse.Namespace], dict[str, Any]],
    show: Callable[[dict[str, Any]], None],
    *,
    keep_as: str,
) -> int:
    """Measures, shows and writes; gives the exit code. options : with `output` and `keep`."""
    try:
        report = measure(options)
        show(report)
        write(report, options.output, keep_as=keep_as if options.keep else None)
    except WirewiseError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def drawn(
    options: argparse.Namespace,
    show: Callable[[dict[str, Any]], None],
    plot: Callable[[dict[str, Any], Path], None],
    docs: Path,
) -> Callable[[dict[str, Any]], None]:
    """Shows a report, and draws it beside the result and, if that is kept, among the pages.

    options : as of `report_on`.
    """

    def shown(report: dict[str, Any]) -> None:
        show(report)
        plot(report, options.output.parent)
        if options.keep:
            plot(report, docs)

    return shown


def write(report: dict[str, Any], output: Path, *, keep_as: str | None) -> None:
    """Writes a result, and with `keep_as` a copy to bench/results, named after date, machine and that."""
    text = json.dumps(report, indent=1) + "\n"
    output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(output, text.encode())
    print(f"written to {output}")
    if keep_as is not None:
        facts = report["machine"]
        kept = RESULTS / f"{facts['date'][:10]}-{machine.short_name(facts)}{keep_as}.json"
        write_atomically(kept, text.encode())
        print(f"kept as {kept}")


def fill(page: Path, parts: Mapping[str, Sequence[str]]) -> None:
    """Replaces what stands between `<!-- MARK -->` and `<!-- end -->` of a page by the lines of that mark."""
    text = page.read_text()
    for mark, lines in parts.items():
        start, end = f"<!-- {mark} -->\n", "<!-- end -->"
        between = start + "\n".join(lines) + "\n" + end
        pattern = re.compile(f"{re.escape(start)}.*?{end}", re.DOTALL)
        text, count = pattern.subn(lambda _, between=between: between, text)  # type: ignore[misc]
        assert count == 1, f"{page} has no mark {mark}"
    write_atomically(page, text.encode())


def at_least(least: int) -> Callable[[str], int]:
    """Type of an option that is a number of at least that."""

    def number(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"must be {least} or more")
        return value

    return number
