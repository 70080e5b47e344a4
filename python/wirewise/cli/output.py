# SPDX-License-Identifier: Apache-2.0
"""What the verbs share: options with one meaning everywhere, printing, progress."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from wirewise.text import harmless

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
BundleOption = Annotated[Path, typer.Option("--bundle", "-b", help="Bundle made by `wirewise compile`.")]
PolicyOption = Annotated[
    Path | None, typer.Option("--policy", "-p", help="Policy file. Without one every class passes.")
]
FeatureSetOption = Annotated[
    str | None,
    typer.Option("--feature-set", "-f", help="A preset (hara2023, hara2026) or a YAML file."),
]
TableArgument = Annotated[Path, typer.Argument(help="Table made by `wirewise features` (Parquet).")]
NetworkOption = Annotated[
    str | None, typer.Option("--network", help="What a neural network becomes: int8 (default) or q16.")
]
CalibrationOption = Annotated[
    str | None,
    typer.Option("--calibration", help="How int8 ranges are chosen: kl (default), minmax, percentile, mse."),
]
FineTuneOption = Annotated[
    bool | None,
    typer.Option(
        "--fine-tune/--no-fine-tune",
        help="Train int8 weights further with their rounding. Default: if accuracy is lost.",
    ),
]


class _Console(Console):
    """Prints text as it is: nothing in it is markup, and nothing a terminal would obey gets there."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(harmless(text), **options)


console = _Console()
progress_console = _Console(stderr=True)


def print_json(value: object) -> None:
    """One JSON object on standard output."""
    print(harmless(json.dumps(value, indent=2, ensure_ascii=False, default=str)))


def grid(rows: Iterable[tuple[str, Any]], *, title: str | None = None) -> None:
    """Facts as two columns."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, value in rows:
        table.add_row(label, str(value))
    heading(title)
    console.print(table)


def listing(
    columns: Iterable[str],
    rows: Iterable[Iterable[Any]],
    *,
    title: str | None = None,
    right: Iterable[int] = (),
) -> None:
    """A table; right: the columns to align right."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    right = set(right)
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index in right else "left", no_wrap=index == 1)
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    heading(title)
    console.print(table)


def heading(title: str | None) -> None:
    if title:
        console.print(f"\n{title}", style="bold")


def name_and_summary(name: str, summary: str) -> None:
    """The first line about something that has a name."""
    console.print(Text.assemble((harmless(name), "bold"), "  ", (harmless(summary), "dim")))


def note(text: str) -> None:
    """Something beside the result: on standard error."""
    progress_console.print(text, style="dim")


@contextmanager
def step(text: str, *, quiet: bool = False) -> Iterator[None]:
    """Shows that something is going on, on a terminal."""
    if quiet or not progress_console.is_terminal:
        yield
        return
    with progress_console.status(text):
        yield
