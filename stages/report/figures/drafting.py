"""Figures of drafting (Xia et al. 2022, figure 4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stages.report.figures.canvas import as_svg, cycle, panels, style
from stages.report.findings.drafting import VERIFIED

CAPTION = (
    "Left: tokens a pass of the verifier, from the sentence with the fewest to the one with the most. Right: the mean against the "
    "width of a block, for searches that differ in it."
)


def acceptance(entries: Mapping[str, Mapping[str, Any]]) -> str:
    """Draw tokens per pass over sentences (left) and their mean by draft width (right). `entries` hold `decode.json` by entry."""
    verified = {name: decoded for name, decoded in entries.items() if decoded["search"]["strategy"] in VERIFIED}
    widths: dict[str, dict[int, float]] = {}
    for name, decoded in verified.items():
        if width := decoded["search"]["draft_width"]:
            widths.setdefault(name.replace(f"-draft_width{width}", ""), {})[width] = decoded["drafting"]["tokens_per_pass"]
    with style():
        drawn, (left, right) = panels()
        for (name, decoded), colour in zip(verified.items(), cycle(len(verified)), strict=True):
            quantiles = decoded["drafting"]["quantiles"]
            percents = [100 * index / (len(quantiles) - 1) for index in range(len(quantiles))]
            left.plot(percents, quantiles, color=colour, label=name)
        left.set(title="Over sentences", xlabel="sentences, %", ylabel="tokens a pass", ylim=(0, None))
        left.legend(fontsize=8)
        for (name, means), colour in zip(widths.items(), cycle(len(widths)), strict=True):
            right.plot(sorted(means), [means[width] for width in sorted(means)], color=colour, marker="o", label=name)
        if widths:
            right.set(title="By width of a block", xlabel="drafted tokens", ylim=(0, None))
            right.legend(fontsize=8)
        else:
            right.remove()
        return as_svg(drawn)
