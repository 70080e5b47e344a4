# SPDX-License-Identifier: Apache-2.0
"""Printing for people: facts, tables, notes and progress, in text that no terminal obeys."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, ConsoleDimensions
from rich.table import Table
from rich.text import Text

from wirewise.text import harmless

_UNLIMITED = 1 << 20
_GAP = 2  # blanks between columns


class _Console(Console):
    """Prints text as it is: nothing in it is markup, and nothing a terminal would obey gets there."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    @property  # type: ignore[misc]  # nothing sets it
    def size(self) -> ConsoleDimensions:
        """Of the terminal. Elsewhere no width is a limit, whatever COLUMNS says."""
        size = super().size
        return size if self.is_terminal else ConsoleDimensions(_UNLIMITED, size.height)

    def render_str(self, text: str, **options: Any) -> Text:
        # In one line: no name of a file adds another to what is shown.
        return super().render_str(harmless(text, keep=""), **options)


console = _Console()
progress_console = _Console(stderr=True)


def print_json(value: object) -> None:
    """One JSON object on standard output."""
    print(harmless(json.dumps(value, indent=2, ensure_ascii=False, default=str)))


def grid(rows: Iterable[tuple[str, Any]], *, title: str | None = None) -> None:
    """Facts as two columns."""
    table = Table.grid(padding=(0, _GAP))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, value in rows:
        table.add_row(label, str(value))
    heading(title)
    _print(table)


def listing(
    columns: Iterable[str],
    rows: Iterable[Iterable[Any]],
    *,
    title: str | None = None,
    right: Iterable[int] = (),
    on: Console | None = None,
) -> None:
    """A table; right: the columns to align right, which hold numbers. on : where, if not on standard output.

    On a terminal text is folded to its width and, where that is not enough, columns are left out from the
    right and named: no number and no name is cut.
    """
    right = set(right)
    head = [str(column) for column in columns]
    cells = [[str(cell) for cell in row] for row in rows]
    texts = [[name, *(row[index] for row in cells)] for index, name in enumerate(head)]
    on = on or console
    widths = _widths(texts, right, on.width)
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, _GAP, 0, 0))
    for index, width in enumerate(widths):
        aligned: Any = "right" if index in right else "left"
        table.add_column(head[index], justify=aligned, width=width, overflow="fold")
    for row in cells:
        table.add_row(*row[: len(widths)])
    heading(title)
    _print(table, on)
    if left_out := [name for name in head[len(widths) :] if name]:
        note(f"too narrow for {', '.join(left_out)}: widen the terminal, or send the output to a file")


def _widths(texts: list[list[str]], right: set[int], limit: int) -> list[int]:
    """The width of each column that fits; text may be folded between words, and the first column is always
    there.
    """
    widest = [max(map(len, text)) for text in texts]
    least = [
        wide if index in right else max((len(word) for cell in text for word in cell.split()), default=0)
        for index, (text, wide) in enumerate(zip(texts, widest, strict=True))
    ]
    count = len(texts)
    while count > 1 and sum(least[:count]) + _GAP * count > limit:
        count -= 1
    widths = widest[:count]
    while sum(widths) + _GAP * count > limit:
        foldable = [index for index in range(count) if widths[index] > least[index]]
        if not foldable:
            break
        widths[max(foldable, key=lambda index: widths[index])] -= 1
    return widths


def _print(table: Table, on: Console = console) -> None:
    """Without the blanks that fill the last column."""
    if on.is_terminal:
        on.print(table)
        return
    with on.capture() as captured:
        on.print(table)
    for line in captured.get().splitlines():
        on.file.write(line.rstrip() + "\n")


def heading(title: str | None) -> None:
    if title:
        console.print()
        console.print(title, style="bold")


def name_and_summary(name: str, summary: str) -> None:
    """The first line about something that has a name."""
    shown = (harmless(name, keep=""), "bold"), "  ", (harmless(summary, keep=""), "dim")
    console.print(Text.assemble(*shown))


def note(text: str) -> None:
    """Something beside the result: on standard error."""
    progress_console.print(text, style="dim")


def warn(*texts: str) -> None:
    """What is probably not as it was meant to be: on standard error."""
    for text in texts:
        progress_console.print(f"warning: {text}", style="yellow", soft_wrap=True)


@contextmanager
def step(text: str, *, quiet: bool = False) -> Iterator[None]:
    """Shows that something is going on, on a terminal."""
    if quiet or not progress_console.is_terminal:
        yield
        return
    with progress_console.status(text):
        yield


@contextmanager
def percent(text: str, *, quiet: bool = False) -> Iterator[Callable[[float], None]]:
    """As `step`, for work that knows how far it is: yields what is told the share done, 0 to 1."""
    if quiet or not progress_console.is_terminal:
        yield lambda share: None
        return
    with progress_console.status(f"{text}, 0 %") as status:
        yield lambda share: status.update(f"{text}, {100 * share:.0f} %")
