"""The figure of the recall of candidate tables (Deng and Rush 2021, figure 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stages.shared.figures.canvas import as_svg, cycle, line, panel, style


def recall_curves(curves: Mapping[str, Sequence[tuple[int, float]]]) -> str:
    """Draw recall (0 to 1) against K on a binary logarithmic scale, with a line for each name."""
    with style():
        return _recall_curves(curves)


def _recall_curves(curves: Mapping[str, Sequence[tuple[int, float]]]) -> str:
    figure, axes = panel()
    for (name, curve), colour in zip(curves.items(), cycle(len(curves)), strict=True):
        line(
            axes,
            [(count, 100 * share) for count, share in curve],
            color=colour,
            linewidth=1.8,
            marker="o",
            markersize=3,
            label=name,
        )
    ticks = sorted({count for curve in curves.values() for count, _ in curve})
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, labels=[str(count) for count in ticks])
    axes.set(title="Recall of target tokens, %", xlabel="K, candidates of a slot")
    axes.set_ylim(0, 100)
    axes.legend(fontsize=9)
    return as_svg(figure)
