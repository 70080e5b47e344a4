# SPDX-License-Identifier: Apache-2.0
"""Draws what a command printed as a terminal: `python -m scripts.picture TITLE < TEXT > PICTURE.svg`.

The picture needs nothing from elsewhere: it names the reader's own monospaced font.
"""

from __future__ import annotations

import io
import sys

from rich.console import Console
from rich.terminal_theme import MONOKAI

# rich's own format fetches a font from a server.
FORMAT = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, monospace; font-size: {char_height}px;
  line-height: {line_height}px; }}
.{unique_id}-title {{ font-family: sans-serif; font-size: 18px; font-weight: bold; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}"
  height="{terminal_height}"/></clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g>
</g>
</svg>
"""


def draw(title: str, text: str) -> str:
    """An SVG as wide as the longest line."""
    lines = text.rstrip("\n").split("\n")
    console = Console(
        record=True, width=max(map(len, lines)), file=io.StringIO(), highlight=False, markup=False
    )
    for index, line in enumerate(lines):
        console.print(line, style="" if index else "bold")
    return console.export_svg(title=title, theme=MONOKAI, code_format=FORMAT, unique_id="terminal")


if __name__ == "__main__":
    print(draw(sys.argv[1], sys.stdin.read()), end="")
