# SPDX-License-Identifier: Apache-2.0
"""HTML for notebooks and for pages of their own: tables, facts, bars. It needs no script, font or file.

Every text is escaped here, and nowhere else: what bundles and captures say goes in as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from wirewise.text import harmless

_STYLE = """
.wirewise { font-family: system-ui, sans-serif; font-size: 90%; line-height: 1.4; }
.wirewise h1 { font-size: 150%; } .wirewise h2 { font-size: 110%; margin: 1.2em 0 .3em; }
.wirewise table { border-collapse: collapse; margin: .3em 0 .8em; }
.wirewise th, .wirewise td { border: 0; padding: .15em .8em .15em 0; text-align: left; vertical-align: top; }
.wirewise th { font-weight: 600; border-bottom: 1px solid rgba(128, 128, 128, .5); }
.wirewise .right { text-align: right; font-variant-numeric: tabular-nums; }
.wirewise .shade { padding: .15em .8em .15em .6em; }
.wirewise .many { font-size: 85%; }
.wirewise .many th, .wirewise .many td { padding: .15em .3em; }
.wirewise .bar { display: inline-block; height: .7em; background: #4477aa; }
.wirewise .dim { opacity: .7; }
.wirewise .wide { overflow-x: auto; max-width: 100%; }
.wirewise .figures { display: grid; gap: 1em 2em; }
.wirewise .figures { grid-template-columns: repeat(auto-fit, minmax(min(100%, 26em), 1fr)); }
.wirewise figure { margin: 0; max-width: 36em; } .wirewise figcaption { font-weight: 600; }
.wirewise svg { display: block; width: 100%; } .wirewise figure p { margin: .2em 0; }
.wirewise svg text { font-size: 12px; fill: currentColor; }
.wirewise svg .grid { stroke: currentColor; stroke-opacity: .15; }
.wirewise .key { white-space: nowrap; margin-right: 1em; }
.wirewise .swatch { display: inline-block; width: 1em; height: .25em; margin-right: .4em; }
"""
_PAGE = """
:root { color-scheme: light dark; }
body { margin: 2em auto; max-width: 70em; padding: 0 1em; }
"""
_NOTHING_FROM_OUTSIDE = "default-src 'none'; style-src 'unsafe-inline'"
_SHADE = "68, 119, 170"
_BAR_EM = 12


def text(value: object) -> str:
    """A value as text of a page; no line ends before a percent sign."""
    return escape(harmless(str(value))).replace(" %", "\u00a0%")


def heading(title: str, level: int = 2) -> str:
    return f"<h{level}>{text(title)}</h{level}>"


def wide(markup: str) -> str:
    """What may be wider than a page scrolls by itself."""
    return f'<div class="wide">{markup}</div>'


def figures(markups: Iterable[str]) -> str:
    """Figures side by side, as many as there is room for."""
    return f'<div class="figures">{"".join(markups)}</div>'


def folded(summary: str, *parts: str, opened: bool = False) -> str:
    """Parts under a line that opens and closes them."""
    inside = f"<summary>{text(summary)}</summary>{''.join(parts)}"
    return f"<details{' open' if opened else ''}>{inside}</details>"


def listed(sentences: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{text(each)}</li>' for each in sentences)}</ul>"


def paragraph(content: str) -> str:
    return f"<p>{text(content)}</p>"


def table(
    head: Sequence[str], rows: Iterable[Sequence[Any]], *, right: Iterable[int] = (), words: int | None = None
) -> str:
    """A table; right: the columns to align right. words: the one of sentences, which may take many lines."""
    aligned = set(right)

    def line(cells: Sequence[Any], tag: str) -> str:
        kinds = (
            ' class="right"' if index in aligned else ' class="words"' if index == words else ""
            for index in range(len(cells))
        )
        return "".join(f"<{tag}{kind}>{text(c)}</{tag}>" for kind, c in zip(kinds, cells, strict=True))

    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    return f"<table><thead><tr>{line(head, 'th')}</tr></thead><tbody>{body}</tbody></table>"


def facts(rows: Iterable[tuple[str, Any]]) -> str:
    """Facts as two columns."""
    body = "".join(
        f'<tr><td class="dim">{text(label)}</td><td>{text(value)}</td></tr>' for label, value in rows
    )
    return f"<table><tbody>{body}</tbody></table>"


def bars(rows: Iterable[tuple[str, float, str]]) -> str:
    """Bars from the left: label, length (what is below 0 has none), and the value as text."""
    rows = list(rows)
    longest = max((length for _, length, _ in rows), default=0) or 1
    body = "".join(
        f'<tr><td>{text(label)}</td><td class="right">{text(value)}</td><td><span class="bar" '
        f'style="width: {_BAR_EM * max(0.0, length) / longest:.2f}em"></span></td></tr>'
        for label, length, value in rows
    )
    return f"<table><tbody>{body}</tbody></table>"


MANY_CLASSES = 8
"""From more on, the columns of a confusion matrix have numbers, which stand before the names of its rows."""


def confusion(classes: Sequence[str], counts: Sequence[Sequence[int]]) -> str:
    """Rows are what packets are, columns what is said of them; the darker, the larger a share of its row."""
    many = len(classes) > MANY_CLASSES
    rows = [f"{number} {name}" for number, name in enumerate(classes)] if many else classes
    columns = range(len(classes)) if many else classes
    head = "".join(f'<th class="right">{text(name)}</th>' for name in columns)
    body = ""
    for name, row in zip(rows, counts, strict=True):
        total = max(1, sum(row))
        shades = (f"rgba({_SHADE}, {0.8 * count / total:.2f})" for count in row)
        cells = "".join(
            f'<td class="right shade" style="background: {shade}">{f"{count:,}" if count else "·"}</td>'
            for count, shade in zip(row, shades, strict=True)
        )
        body += f"<tr><th>{text(name)}</th>{cells}</tr>"
    kind = ' class="many"' if many else ""
    return f"<table{kind}><thead><tr><th>is \\ said</th>{head}</tr></thead><tbody>{body}</tbody></table>"


def fragment(*parts: str) -> str:
    """Parts for a notebook's cell, `_repr_html_`."""
    return f'<div class="wirewise"><style>{_STYLE}</style>{"".join(parts)}</div>'


def page(title: str, *parts: str, style: str = "") -> str:
    """Parts as a page of its own, which fetches nothing: a browser is told to refuse it.

    style : more of CSS.
    """
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{text(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_NOTHING_FROM_OUTSIDE}">'
        f'<style>{_PAGE}{_STYLE}{style}</style></head><body class="wirewise"><h1>{text(title)}</h1>\n'
        + "\n".join(parts)
        + "\n</body></html>\n"
    )
