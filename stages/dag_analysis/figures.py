"""Figures of posteriors and vertex statistics of Directed Acyclic Transformers (Huang et al. 2022, figures 3 and 15)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stages.shared.figures.canvas import MUTED, SERIES, as_svg, cycle, panels, style


def posteriors(tokens: Sequence[str], networks: Mapping[str, Sequence[Sequence[float]]]) -> str:
    """Draw the posterior over vertices of each token, with a panel for each network (one or two). Posteriors have shape [M][L]."""
    with style():
        figure, (left, right) = panels()
        if len(networks) == 1:
            right.remove()
        for axes, (name, rows) in zip((left, right), networks.items(), strict=False):
            for token, row, colour in zip(tokens, rows, cycle(len(tokens)), strict=True):
                axes.plot(row, color=colour, linewidth=1.4)
                peak = max(range(len(row)), key=row.__getitem__)
                label = token.replace("$", r"\$")
                axes.annotate(
                    label, (peak, row[peak]), xytext=(0, 3), textcoords="offset points", ha="center", fontsize=7, rotation=90
                )
            axes.set(title=name, xlabel="vertex", ylim=(0, 1.35), yticks=(0, 0.5, 1))
            axes.margins(x=0.02)
        left.set_ylabel("probability given the target")
        return as_svg(figure)


def statistics(joint: Sequence[Sequence[int]], out_degrees: Mapping[str, int]) -> str:
    """Draw the joint distribution of passing and token probabilities (left, as areas) and of out-degrees (right, in per cent)."""
    with style():
        figure, (left, right) = panels()
        total, cells = max(1, sum(map(sum, joint))), len(joint)
        points = [
            (
                (column + 0.5) / cells,
                (row + 0.5) / cells,
                3000 * count / total,
                _colour((row + 0.5) / cells, (column + 0.5) / cells),
            )
            for row, counts in enumerate(joint)
            for column, count in enumerate(counts)
            if count
        ]
        if points:
            xs, ys, areas, colours = zip(*points, strict=True)
            left.scatter(xs, ys, s=areas, c=colours, alpha=0.8, linewidths=0)
        left.set(title="Vertices", xlabel="probability of the best token", ylabel="passing probability", xlim=(0, 1), ylim=(0, 1))
        reached = max(1, sum(out_degrees.values()))
        right.bar(
            [int(degree) for degree in out_degrees], [100 * count / reached for count in out_degrees.values()], color=SERIES[0]
        )
        right.set(title="Successors of a vertex, % of vertices", xlabel="distinct tokens at the end of 80 % of its transitions")
        right.set_xticks([int(degree) for degree in out_degrees])
        right.grid(visible=False, axis="x")
        return as_svg(figure)


def _colour(passing: float, token: float) -> str:
    """Return the colour of the category of a vertex: likely, confident, vague, or another."""
    if passing > 0.5:
        return SERIES[0]
    if token > 0.5:
        return SERIES[2]
    return SERIES[1] if max(passing, token) < 0.2 else MUTED
