"""Figures of the lattices of a sequence-to-lattice system, as SVG text (Deng and Rush 2021, figures 2 and 4)."""

from __future__ import annotations

from collections.abc import Mapping

from stages.report.figures import SERIES, as_svg, key, panel, panels, style


def ranks(words: Mapping[int, int], edges: Mapping[int, int]) -> str:
    """Counts by class of rank (1, 2, 4 for 3 and 4, ...): of words left, of edges right."""
    with style():
        figure, pair = panels()
        for axes, counts, title in zip(pair, (words, edges), ("Words", "Pairs of neighbours"), strict=True):
            total, classes = max(1, sum(counts.values())), sorted(counts)
            shares = [100 * counts[rank] / total for rank in classes]
            axes.bar(range(len(classes)), shares, color=SERIES[0])
            axes.set_xticks(range(len(classes)), labels=[str(rank) for rank in classes])
            axes.set(title=f"{title}, %", xlabel="rank before the search, up to")
            axes.grid(visible=False, axis="x")
        return as_svg(figure)


def latencies(milliseconds: Mapping[str, Mapping[str, float]]) -> str:
    """Milliseconds by class of lengths and part, stacked."""
    with style():
        figure, axes = panel()
        lengths = list(milliseconds)
        heights = [0.0] * len(lengths)
        for place, part in enumerate(next(iter(milliseconds.values()), {})):
            values = [milliseconds[length][part] for length in lengths]
            axes.bar(range(len(lengths)), values, bottom=heights, color=SERIES[place], label=part)
            heights = [height + value for height, value in zip(heights, values, strict=True)]
        axes.set_xticks(range(len(lengths)), labels=lengths)
        axes.set(title="Milliseconds a sentence", xlabel="words of the output")
        axes.grid(visible=False, axis="x")
        key(figure, *axes.get_legend_handles_labels())
        return as_svg(figure)
