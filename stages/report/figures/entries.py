"""Lines of entries: a colour for each system, a line style for each of its searches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stages.shared.figures.canvas import DASHES
from stages.shared.figures.drawing import Entry

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Colours = Mapping[str, str]
"""Colours of systems by name."""


def plot_entries(
    axes: Axes, curves: Mapping[str, Sequence[tuple[float, float]]], colours: Colours, **look: Any
) -> tuple[Entry, ...]:
    """Draw the points of each entry `system/search` as a line, and return the key."""
    seen, key = dict[str, int](), []
    for entry, points in curves.items():
        system = entry.partition("/")[0]
        dashes = DASHES[seen.get(system, 0) % len(DASHES)]
        seen[system] = seen.get(system, 0) + 1
        axes.plot(
            *zip(*points, strict=True), color=colours[system], linestyle=(0, dashes) if dashes else "solid", linewidth=1.6, **look
        )
        key.append(Entry(entry, colours[system], " ".join(f"{2 * length:g}" for length in dashes)))
    return tuple(key)
