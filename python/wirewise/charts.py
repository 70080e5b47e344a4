# SPDX-License-Identifier: Apache-2.0
"""Line charts and scatter plots, drawn twice: as SVG, which needs nothing, and on the axes of matplotlib."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

from wirewise.html import text

COLOURS = ("#4477aa", "#cc5566", "#228833", "#aa7700", "#aa3377", "#117788")
"""Told apart by people who see few colours, on white and on black (after Paul Tol)."""

Points = Sequence[tuple[float, float]]

_WIDTH, _HEIGHT = 400, 276
_RIGHT, _TOP, _BOTTOM = 24, 30, 44
_CHARACTER = 7.5  # width of one, at most about


@dataclass(frozen=True)
class Axis:
    """One side of a chart. ticks : (value, text). log : values are above 0. low, high : its ends."""

    label: str
    low: float
    high: float
    ticks: Sequence[tuple[float, str]]
    log: bool = False

    def share(self, value: float) -> float:
        """Where a value lies, 0 at the low end, 1 at the high one; what is beyond lies on an end."""
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(max(value, low))
        return min(1.0, max(0.0, (value - low) / (high - low or 1)))

    @classmethod
    def shares(cls, label: str, low: float = 0.0) -> Axis:
        """From `low` to 1."""
        steps = [low + (1 - low) * step / 5 for step in range(6)]
        return cls(label, low, 1, [(value, f"{value:.2f}".rstrip("0").rstrip(".")) for value in steps])

    @classmethod
    def percents(cls, label: str, most: float) -> Axis:
        """From 0 to a round percentage at or above `most`, a share."""
        whole = cls.counts(label, 100 * max(most, 0.001))
        return cls(label, 0, whole.high / 100, [(value / 100, f"{said} %") for value, said in whole.ticks])

    @classmethod
    def steps(cls, label: str, names: Sequence[str]) -> Axis:
        """Places 0, 1, 2 ... at even distances, with these names."""
        return cls(label, 0, max(1, len(names) - 1), list(enumerate(names)))

    @classmethod
    def counts(cls, label: str, most: float) -> Axis:
        """From 0 to a round number at or above `most`."""
        unit = 10 ** math.floor(math.log10(max(most, 1e-9)))
        step = next(unit * part for part in (0.2, 0.5, 1, 2) if 6 * unit * part >= most or part == 2)
        ticks = [step * index for index in range(math.ceil(most / step) + 1)]
        return cls(label, 0, ticks[-1] or 1, [(value, f"{value:,.10g}") for value in ticks])


@dataclass(frozen=True)
class Line:
    """name : for the legend. marked : whether its points are drawn too."""

    name: str
    points: Points
    marked: bool = True


@dataclass(frozen=True)
class Dot:
    """A point with a name beside it. hollow : of lesser importance."""

    name: str
    at: tuple[float, float]
    hollow: bool = False


@dataclass(frozen=True)
class Chart:
    """Lines and dots on two axes. note : what a reader is to know of it, a sentence."""

    title: str
    x: Axis
    y: Axis
    lines: Sequence[Line] = ()
    dots: Sequence[Dot] = ()
    note: str = ""

    def to_html(self, *, titled: bool = True) -> str:
        """A figure with its legend."""
        legend = "".join(
            f'<span class="key"><span class="swatch" style="background: {colour}"></span>'
            f"{text(line.name)}</span> "
            for line, colour in zip(self.lines, cycle(COLOURS), strict=False)
            if line.name
        )
        note = f'<p class="dim">{text(self.note)}</p>' if self.note else ""
        caption = f"<figcaption>{text(self.title)}</figcaption>" if titled else ""
        return f"<figure>{caption}{self._svg()}<p>{legend}</p>{note}</figure>"

    def _svg(self) -> str:
        parts = [*self._axes(), *self._drawn()]
        return (
            f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{text(self.title)}">'
            f"{''.join(parts)}</svg>"
        )

    @property
    def _left(self) -> float:
        """Where the plot begins, beside its ticks."""
        return 14 + _CHARACTER * max((len(name) for _, name in self.y.ticks), default=0)

    def _place(self, point: tuple[float, float]) -> tuple[float, float]:
        x = self._left + (_WIDTH - self._left - _RIGHT) * self.x.share(point[0])
        y = _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * self.y.share(point[1])
        return round(x, 1), round(y, 1)

    def _axes(self) -> list[str]:
        bottom, left, right = _HEIGHT - _BOTTOM, self._left, _WIDTH - _RIGHT
        longest = max((len(name) for _, name in self.x.ticks), default=0)
        most = max(2, int((right - left) / (_CHARACTER * longest + 8)) + 1)
        parts = []
        for value, name in self.y.ticks:
            _, y = self._place((self.x.low, value))
            parts.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{y}" y2="{y}"/>')
            parts.append(f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{text(name)}</text>')
        for value, name in self.x.ticks[:: math.ceil(len(self.x.ticks) / most)]:
            x, _ = self._place((value, self.y.low))
            parts.append(f'<line class="grid" x1="{x}" x2="{x}" y1="{_TOP}" y2="{bottom}"/>')
            parts.append(f'<text x="{x}" y="{bottom + 16}" text-anchor="middle">{text(name)}</text>')
        centred = f'x="{(left + right) / 2}" y="{_HEIGHT - 6}" text-anchor="middle"'
        return [
            *parts,
            f"<text {centred}>{text(self.x.label)}</text>",
            # Above its ticks, where there is room for any.
            f'<text x="2" y="14">{text(self.y.label)}</text>',
        ]

    def _drawn(self) -> list[str]:
        parts = []
        for line, colour in zip(self.lines, cycle(COLOURS), strict=False):
            places = [self._place(point) for point in line.points]
            path = " ".join(f"{x},{y}" for x, y in places)
            parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
            if line.marked:
                for (x, y), (_, value) in zip(places, line.points, strict=True):
                    said = f"<title>{text(line.name)}: {value:.4f}</title>"
                    parts.append(f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}">{said}</circle>')
        return [*parts, *self._named_dots()]

    def _named_dots(self) -> list[str]:
        """Names go to the side where there is room, and below the names that are there already."""
        parts: list[str] = []
        taken: list[tuple[float, float, float]] = []
        for dot in sorted(self.dots, key=lambda dot: -dot.at[1]):
            x, y = self._place(dot.at)
            fill = "none" if dot.hollow else COLOURS[1]
            parts.append(f'<circle cx="{x}" cy="{y}" r="5" fill="{fill}" stroke="{COLOURS[1]}"/>')
            side, anchor = (-9, "end") if x > _WIDTH / 2 else (9, "start")
            length = _CHARACTER * len(dot.name)
            left = x + side - (length if side < 0 else 0)
            low = y + 18 if y < _TOP + 12 else y + 4
            while any(abs(low - other) < 13 and left < right and start < left + length
                      for other, start, right in taken):  # fmt: skip
                low += 1
            taken.append((low, left, left + length))
            parts.append(f'<text x="{x + side}" y="{low}" text-anchor="{anchor}">{text(dot.name)}</text>')
        return parts

    def draw(self, axes: Any) -> None:
        """The same on axes of matplotlib."""
        for line, colour in zip(self.lines, cycle(COLOURS), strict=False):
            x, y = zip(*line.points, strict=True)
            axes.plot(x, y, color=colour, label=line.name or None, marker="o" if line.marked else None, ms=4)
        for dot in self.dots:
            fill = "none" if dot.hollow else COLOURS[1]
            axes.scatter(*([value] for value in dot.at), facecolor=fill, edgecolor=COLOURS[1], zorder=3)
            right = self.x.share(dot.at[0]) > 0.5
            side, anchor = (-8, "right") if right else (8, "left")
            axes.annotate(dot.name, dot.at, xytext=(side, -12), textcoords="offset points", ha=anchor)
        for axis, name in ((self.x, "x"), (self.y, "y")):
            if axis.log:
                getattr(axes, f"set_{name}scale")("log")
            margin = 0 if axis.log else 0.02 * (axis.high - axis.low)
            getattr(axes, f"set_{name}lim")(axis.low - margin, axis.high + margin)
            getattr(axes, f"set_{name}ticks")([at for at, _ in axis.ticks], [said for _, said in axis.ticks])
            getattr(axes, f"set_{name}label")(axis.label)
        axes.grid(alpha=0.3)
        if any(line.name for line in self.lines):
            axes.legend()
