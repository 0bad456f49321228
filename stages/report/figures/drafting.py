"""Figures of drafting (Xia et al. 2022, figure 4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stages.report.figures.entries import plot_entries
from stages.report.findings.drafting import VERIFIED
from stages.shared.figures.canvas import PANEL, WIDE_PANEL, panel, style
from stages.shared.figures.drawing import Drawing, panel_of

OVER_SENTENCES = "Tokens a pass of the verifier, from the sentence with the fewest to the one with the most."
BY_WIDTH = "The other panel: their mean against the width of a block, for searches that differ in it."


def acceptance(entries: Mapping[str, Mapping[str, Any]], colours: Mapping[str, str]) -> Drawing:
    """Draw tokens per pass over sentences (left) and their mean by draft width (right). `entries` hold `decode.json` by entry."""
    verified = {name: decoded for name, decoded in entries.items() if decoded["search"]["strategy"] in VERIFIED}
    widths: dict[str, dict[int, float]] = {}
    for name, decoded in verified.items():
        if width := decoded["search"]["draft_width"]:
            widths.setdefault(name.replace(f"-draft_width{width}", ""), {})[width] = decoded["drafting"]["tokens_per_pass"]
    several = {name: means for name, means in widths.items() if len(means) > 1}
    with style():
        left, axes = panel(PANEL if several else WIDE_PANEL)
        key = plot_entries(axes, {name: _by_percent(decoded) for name, decoded in verified.items()}, colours)
        axes.set(title="Over sentences", xlabel="sentences, %", ylabel="tokens a pass", ylim=(0, None))
        panels = [panel_of("Tokens a pass over sentences", left)]
        if several:
            right, axes = panel(PANEL)
            plot_entries(axes, {name: sorted(means.items()) for name, means in several.items()}, colours, marker="o")
            axes.set(title="By width of a block", xlabel="drafted tokens", ylabel="tokens a pass", ylim=(0, None))
            panels.append(panel_of("Tokens a pass by width of a block", right))
        return Drawing(tuple(panels), key)


def _by_percent(decoded: Mapping[str, Any]) -> list[tuple[float, float]]:
    quantiles = decoded["drafting"]["quantiles"]
    return [(100 * index / (len(quantiles) - 1), value) for index, value in enumerate(quantiles)]
