"""Figures of BLEU by length, and of quality against diversity."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from stages.shared.figures.canvas import WIDE_PANEL, panel, style
from stages.shared.figures.drawing import Colours, Drawing, Entry, panel_of, plot_entries


def length_curves(curves: Mapping[str, Sequence[tuple[str, float | None]]], colours: Colours) -> Drawing:
    """Draw BLEU by reference length, with a line for each entry `system/search`. All lines have the same bins; values may be
    missing."""
    with style():
        figure, axes = panel(WIDE_PANEL)
        heights = {entry: [math.nan if bleu is None else bleu for _, bleu in points] for entry, points in curves.items()}
        key = plot_entries(
            axes, {entry: list(enumerate(line)) for entry, line in heights.items()}, colours, marker="o", markersize=3
        )
        names = [name for name, _ in next(iter(curves.values()))]
        axes.set_xticks(range(len(names)), labels=names)
        axes.set(title="BLEU", xlabel="words of the reference")
        axes.margins(x=0.03)
        return Drawing((panel_of("BLEU by the length of the reference", figure),), key)


def quality_diversity(points: Mapping[str, tuple[float, float]], colours: Colours) -> Drawing:
    """Draw points (pairwise BLEU, BLEU) of entries `system/search`; the points of one system are joined by a line."""
    with style():
        figure, axes = panel(WIDE_PANEL)
        systems = list(dict.fromkeys(entry.partition("/")[0] for entry in points))
        for system in systems:
            own = sorted(position for entry, position in points.items() if entry.partition("/")[0] == system)
            axes.plot(*zip(*own, strict=True), color=colours[system], linewidth=1.4, marker="o", markersize=5)
        for entry, position in points.items():
            search = entry.partition("/")[2]
            axes.annotate(search, position, xytext=(5, 5), textcoords="offset points", fontsize=8)
        axes.set(title="BLEU of samples", xlabel="pairwise BLEU among samples (lower is more diverse)")
        axes.margins(x=0.1, y=0.15)
        key = tuple(Entry(system, colours[system]) for system in systems)
        return Drawing((panel_of("Quality against diversity of samples", figure),), key)
