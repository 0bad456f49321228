"""Style, panels and keys of figures, and their conversion to SVG text."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, RULE, CARD = "#1d2433", "#667085", "#d9dde5", "#ffffff"
SERIES = ("#2f6fde", "#d9622b", "#16907a", "#8a55d7", "#b3831a", "#cf3f6f", "#3f8fb5", "#6d7a28")
"""Colours of systems, in order."""
KEY_COLUMNS, KEY_LETTERS = 3, 115
"""Largest number of columns in the key below a figure, and of letters in one of its rows."""
KEY_ROW = 0.21
"""Height of a row of the key, in inches."""
STROKES = ("solid", (0, (4, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)))
"""Line styles of the searches of a system, in order."""

STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "fewstep",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.edgecolor": RULE,
    "axes.labelcolor": MUTED,
    "axes.titlecolor": INK,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": RULE,
    "ytick.color": RULE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "legend.frameon": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}


def key(figure: Figure, marks: Sequence[Any], names: Sequence[str]) -> None:
    """Add a key of marks and names below the figure and make the figure taller by its height.

    A key beside or inside the figure would cover it if there are many names.
    """
    if not names:
        return
    columns = max(1, min(KEY_COLUMNS, KEY_LETTERS // max(map(len, names))))
    figure.set_figheight(figure.get_figheight() + KEY_ROW * math.ceil(len(names) / columns))
    figure.legend(marks, names, loc="outside lower left", ncols=columns, fontsize=9)


def line(axes: Axes, series: Sequence[tuple[int, float]], **look: Any) -> None:
    """Plot a series of points; nothing if it is empty."""
    if series:
        axes.plot(*zip(*series, strict=True), **look)


def style() -> AbstractContextManager[None]:
    """Return a context in which figures have the style of the report."""
    import matplotlib

    return matplotlib.rc_context(STYLE)


def panel() -> tuple[Figure, Any]:
    """Return a figure and its only panel."""
    figure = _figure()
    return figure, figure.subplots()


def panels() -> tuple[Figure, Any]:
    """Return a figure and its two panels, side by side."""
    figure = _figure()
    return figure, figure.subplots(1, 2)


def _figure() -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    return Figure(figsize=(9.6, 3.5), layout=ConstrainedLayoutEngine(wspace=0.06))


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


def inlined(svg: str, prefix: str) -> str:
    """Return an SVG document as an element of an HTML page: without prolog and external names, with unique ids and the page's
    colours.

    `prefix` is put before each id.
    """
    prefix = re.sub(r"\W", "-", prefix)
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r"<!--.*?-->", "", body, flags=re.DOTALL)
    opening, rest = body.split(">", 1)
    opening = re.sub(r' (xmlns(:\w+)?|width|height|version)="[^"]*"', "", opening)
    body = f"{opening}>{rest}".replace("xlink:href", "href")
    body = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{prefix}-", body)
    for name, colour in {
        "ink": INK,
        "muted": MUTED,
        "rule": RULE,
        "card": CARD,
        **{f"series{i}": c for i, c in enumerate(SERIES)},
    }.items():
        body = body.replace(colour, f"var(--{name})")
    return body.strip()
