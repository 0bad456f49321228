"""Figures of lattices (Deng and Rush 2021, figures 2 and 4)."""

from __future__ import annotations

from collections.abc import Mapping

from stages.shared.figures.canvas import SERIES, as_svg, key, panel, panels, style


def rank_histograms(tokens: Mapping[int, int], bigrams: Mapping[int, int]) -> str:
    """Draw histograms of the ranks of tokens (left) and bigrams (right). Keys are upper ends of classes: 1, 2, 4 (ranks 3, 4),
    ..."""
    with style():
        figure, pair = panels()
        for axes, counts, title in zip(pair, (tokens, bigrams), ("Tokens", "Bigrams"), strict=True):
            total, classes = max(1, sum(counts.values())), sorted(counts)
            shares = [100 * counts[rank] / total for rank in classes]
            axes.bar(range(len(classes)), shares, color=SERIES[0])
            axes.set_xticks(range(len(classes)), labels=[str(rank) for rank in classes])
            axes.set(title=f"{title}, %", xlabel="rank before the search, up to")
            axes.grid(visible=False, axis="x")
        return as_svg(figure)


def latencies(milliseconds: Mapping[str, Mapping[str, float]]) -> str:
    """Draw stacked bars of milliseconds by class of output lengths and part of decoding."""
    with style():
        figure, axes = panel()
        lengths = list(milliseconds)
        heights = [0.0] * len(lengths)
        for index, part in enumerate(next(iter(milliseconds.values()), {})):
            values = [milliseconds[length][part] for length in lengths]
            axes.bar(range(len(lengths)), values, bottom=heights, color=SERIES[index], label=part)
            heights = [height + value for height, value in zip(heights, values, strict=True)]
        axes.set_xticks(range(len(lengths)), labels=lengths)
        axes.set(title="Milliseconds a sentence", xlabel="tokens of the output")
        axes.grid(visible=False, axis="x")
        key(figure, *axes.get_legend_handles_labels())
        return as_svg(figure)
