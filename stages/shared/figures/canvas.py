"""Style and panels of figures, and their conversion to SVG text."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#1d2433"
MUTED = "#667085"
RULE = "#d9dde5"
CARD = "#ffffff"
SERIES = (
    "#2f6fde", "#d9622b", "#16907a", "#8a55d7", "#b3831a", "#cf3f6f",
    "#3f8fb5", "#6d7a28", "#9a5b3c", "#4a4fa8", "#c05fc0", "#4c9a3f",
)  # fmt: skip
"""Colours of systems, in order."""
PANEL = (4.8, 3.3)
"""Width and height of a panel in inches, of which two fit side by side on a page and one on a phone."""
WIDE_PANEL = (6.4, 3.3)
"""Width and height of the panel of a figure that has only one."""
DASHES: tuple[tuple[float, ...], ...] = ((), (4, 2), (1, 1.5), (5, 1.5, 1, 1.5))
"""Lengths of strokes and gaps in the lines of a system's searches, in order, in widths of the line; empty: a solid line."""

STYLE = {
    "svg.fonttype": "none", "svg.hashsalt": "fewstep", "font.family": "sans-serif", "font.size": 10, "axes.edgecolor": RULE,
    "axes.labelcolor": MUTED, "axes.titlecolor": INK, "axes.titlesize": 10.5, "axes.titleweight": "bold",
    "axes.titlelocation": "left", "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "axes.axisbelow": True, "grid.color": RULE, "grid.linewidth": 0.6, "text.color": INK, "xtick.color": RULE,
    "ytick.color": RULE, "xtick.labelcolor": MUTED, "ytick.labelcolor": MUTED, "legend.frameon": False,
    "figure.facecolor": "none", "axes.facecolor": "none", "savefig.facecolor": "none",
}  # fmt: skip


def key(figure: Figure, marks: Sequence[Any], names: Sequence[str]) -> None:
    """Add a key of marks and names below a figure, which becomes taller by its height."""
    if not names:
        return
    columns = max(1, min(3, 115 // max(map(len, names))))
    figure.set_figheight(figure.get_figheight() + 0.21 * math.ceil(len(names) / columns))
    figure.legend(marks, names, loc="outside lower left", ncols=columns, fontsize=9)


def line(axes: Axes, series: Sequence[tuple[int, float]], **look: Any) -> None:
    """Plot a series of points; nothing if it is empty."""
    if series:
        axes.plot(*zip(*series, strict=True), **look)


def style() -> AbstractContextManager[None]:
    """Return a context in which figures have the style of the report."""
    import matplotlib

    return matplotlib.rc_context(STYLE)


def panel(size: tuple[float, float] = (9.6, 3.5)) -> tuple[Figure, Any]:
    """Return a figure of a size in inches, and its only panel."""
    figure = _figure(size)
    return figure, figure.subplots()


def panels() -> tuple[Figure, Any]:
    """Return a figure and its two panels, side by side."""
    figure = _figure((9.6, 3.5))
    return figure, figure.subplots(1, 2)


def _figure(size: tuple[float, float]) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    return Figure(figsize=size, layout=ConstrainedLayoutEngine(wspace=0.06))


def cycle(count: int) -> list[str]:
    """Return `count` colours; they repeat after the last of `SERIES`."""
    return [SERIES[index % len(SERIES)] for index in range(count)]


def colours_of(names: Iterable[str]) -> dict[str, str]:
    """Return a colour for each distinct name, in the order of their first occurrence."""
    unique = list(dict.fromkeys(names))
    return dict(zip(unique, cycle(len(unique)), strict=True))


def as_svg(figure: Figure) -> str:
    """Return the figure as an SVG document without its date."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def page_colour(colour: str) -> str:
    """Return a colour of `SERIES` as the variable of the page's style sheet, which depends on light and dark."""
    return f"var(--series{SERIES.index(colour)})" if colour in SERIES else colour


def inlined(svg: str, prefix: str, title: str) -> str:
    """Return an SVG document as an element of an HTML page: an image with a title, without prolog and external names, with unique
    ids and the page's colours.

    `prefix` is put before each id.
    """
    prefix = re.sub(r"\W", "-", prefix)
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", body, flags=re.DOTALL)
    opening, rest = body.split(">", 1)
    opening = re.sub(r' (xmlns(:\w+)?|width|height|version)="[^"]*"', "", opening)
    body = f"{opening}>{rest}".replace("xlink:href", "href")
    body = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{prefix}-", body)
    body = body.replace("<svg", f'<svg role="img" aria-labelledby="{prefix}-title"', 1)
    body = body.replace(">", f'><title id="{prefix}-title">{escape(title)}</title>', 1)
    for name, colour in {"ink": INK, "muted": MUTED, "rule": RULE, "card": CARD}.items():
        body = body.replace(colour, f"var(--{name})")
    for colour in SERIES:
        body = body.replace(colour, page_colour(colour))
    return body.strip()
