"""Figures of one or more panels with a key, which a page can arrange to its width."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Literal

from stages.shared.figures.canvas import CARD, DASHES, INK, as_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Plot

Colours = Mapping[str, str]
"""Colours of systems by name."""

ROW = 16
"""Height of a row of a key, in points."""
LETTER = 5.6
"""Mean width of a letter of a key, in points."""
STROKE_WIDTH = 26
"""Width of a mark and its margin, in points."""


@dataclass(frozen=True)
class Panel:
    """A panel of a figure: an SVG document."""

    title: str
    svg: str


@dataclass(frozen=True)
class Entry:
    """An entry of a key."""

    name: str
    colour: str
    dashes: str = ""
    """Lengths of strokes and gaps of its line, as in `stroke-dasharray`; empty for a solid line."""
    number: str = ""
    """Number in its point; empty for an entry with a line."""

    def mark(self, x: float, y: float) -> str:
        """Return the mark of the entry as SVG, 20 points wide from `x`, with `y` as its vertical middle."""
        if not self.number:
            line = f'stroke="{self.colour}" stroke-width="2" stroke-dasharray="{self.dashes}"'
            return f'<path d="M{x:g},{y:g}h20" fill="none" {line}/>'
        text = f'text-anchor="middle" font-size="8" fill="{CARD}"'
        middle = f'<circle cx="{x + 10:g}" cy="{y:g}" r="6.5" fill="{self.colour}"/>'
        return f'{middle}<text x="{x + 10:g}" y="{y + 3:g}" {text}>{escape(self.number)}</text>'


@dataclass(frozen=True)
class Drawing:
    """The panels and the key of a figure."""

    panels: tuple[Panel, ...]
    key: tuple[Entry, ...] = ()

    def document(self) -> str:
        """Return one SVG document with the panels side by side and the key below them."""
        sizes = [_size(panel.svg) for panel in self.panels]
        width = sum(size[0] for size in sizes)
        height = max(size[1] for size in sizes)
        parts = []
        x = 0.0
        for index, (panel, size) in enumerate(zip(self.panels, sizes, strict=True)):
            parts.append(_nested(panel.svg, f"p{index}-", x, size))
            x += size[0]
        rows, key = _key(self.key, width, height)
        total = height + rows * ROW
        names = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
        opening = f'<svg {names} width="{width:g}pt" height="{total:g}pt" viewBox="0 0 {width:g} {total:g}">'
        return f"{opening}\n{''.join(parts)}{key}</svg>\n"


@dataclass(frozen=True)
class Figure:
    """A drawing with its name and its caption."""

    name: str
    drawing: Drawing
    caption: str
    layout: Literal["panels", "page", "own"] = "panels"
    """`panels`: panels side by side, or one above the other where the page is narrow; `page`: as wide as the page, or wider than a
    narrow one; `own`: at its own size."""


def panel_of(title: str, figure: Plot) -> Panel:
    """Return a drawn figure as a panel."""
    return Panel(title, as_svg(figure))


def plot_entries(
    axes: Axes, curves: Mapping[str, Sequence[tuple[float, float]]], colours: Colours, **look: Any
) -> tuple[Entry, ...]:
    """Draw the points of each entry `system/search` as a line, and return the key."""
    seen = dict[str, int]()
    key = []
    for entry, points in curves.items():
        system = entry.partition("/")[0]
        dashes = DASHES[seen.get(system, 0) % len(DASHES)]
        seen[system] = seen.get(system, 0) + 1
        axes.plot(
            *zip(*points, strict=True), color=colours[system], linestyle=(0, dashes) if dashes else "solid", linewidth=1.6, **look
        )
        key.append(Entry(entry, colours[system], " ".join(f"{2 * length:g}" for length in dashes)))
    return tuple(key)


def _size(svg: str) -> tuple[float, float]:
    found = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    assert found is not None, "matplotlib writes a viewBox"
    return float(found[1]), float(found[2])


def _nested(svg: str, prefix: str, x: float, size: tuple[float, float]) -> str:
    inner = svg[svg.index("<svg") :].split(">", 1)[1]
    inner = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{prefix}", inner)
    return f'<svg x="{x:g}" y="0" width="{size[0]:g}" height="{size[1]:g}" viewBox="0 0 {size[0]:g} {size[1]:g}">{inner}'


def _key(entries: Sequence[Entry], width: float, top: float) -> tuple[int, str]:
    """Return the number of rows of a key, and the key as SVG."""
    if not entries:
        return 0, ""
    cell = STROKE_WIDTH + LETTER * max(len(entry.name) for entry in entries) + 12
    columns = max(1, int(width // cell))
    rows = math.ceil(len(entries) / columns)
    parts = []
    for index, entry in enumerate(entries):
        x = 8 + index // rows * cell
        y = top + ROW * (index % rows + 0.5)
        text = f'<text x="{x + STROKE_WIDTH:g}" y="{y + 3.5:g}" font-family="sans-serif" font-size="10" fill="{INK}">'
        parts.append(f"{entry.mark(x, y)}{text}{escape(entry.name)}</text>\n")
    return rows, "".join(parts)
