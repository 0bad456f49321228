"""The part of the report on drafting: its statistics by test set (Xia et al. 2022, table 2 and figure 4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stages.shared.figures.canvas import PANEL, WIDE_PANEL, panel, style
from stages.shared.figures.drawing import Colours, Drawing, Figure, panel_of, plot_entries
from stages.shared.report_parts import Artifacts, Json, Part, Table, read

VERIFIED = ("gad", "gad++", "sample")
"""Strategies whose drafts are verified."""
CAPTION = (
    "Tokens a pass: output tokens without EOS divided by passes of the verifier; each pass adds one token of the verifier. "
    "Accepted: percentage of drafted tokens that were accepted. By position: percentage of accepted tokens at each position of a "
    "block, given that all earlier positions were accepted. Fell back: percentage of sentences that stopped drafting."
)
OVER_SENTENCES = "Tokens a pass of the verifier, from the sentence with the fewest to the one with the most."
BY_WIDTH = "The other panel: their mean against the width of a block, for searches that differ in it."


def show(artifacts: Artifacts, colours: Colours) -> Part:
    """Return a table of the entries of each test set that draft, and a figure of those whose drafts are verified."""
    drafts = {
        test: drafting
        for test, entries in read(artifacts, "decode.json").items()
        if (drafting := {entry: decoded for entry, decoded in entries.items() if "drafting" in decoded})
    }
    tables = [drafting_table(test, entries) for test, entries in drafts.items()]
    figures = [figure for test, entries in drafts.items() for figure in _figures(test, entries, colours)]
    return Part(tables=tables, figures=figures)


def _figures(test: str, entries: Mapping[str, Json], colours: Colours) -> Iterator[Figure]:
    if any(decoded["search"]["strategy"] in VERIFIED for decoded in entries.values()):
        drawn = acceptance(entries, colours)
        parts = [f"Drafting on {test}.", OVER_SENTENCES, BY_WIDTH]
        yield Figure(f"drafting.{test}", drawn, " ".join(parts[: len(drawn.panels) + 1]))


def drafting_table(test: str, entries: Mapping[str, Json]) -> Table:
    """Return a table with a row for each entry."""
    columns = ["Entry", "Tokens a pass", "Passes", "Accepted", "By position", "Fell back"]
    rows = [
        [
            name,
            f"{decoded['drafting']['tokens_per_pass']:.2f}",
            f"{decoded['drafting']['passes']:.2f}",
            f"{100 * decoded['drafting']['accepted']:.1f} %",
            " ".join(f"{100 * share:.0f}" for share in decoded["drafting"]["acceptance"]),
            f"{100 * decoded['drafting']['fell_back']:.1f} %",
        ]
        for name, decoded in entries.items()
    ]
    return Table(f"Drafting on {test}", columns, rows, CAPTION)


def acceptance(entries: Mapping[str, Json], colours: Colours) -> Drawing:
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
