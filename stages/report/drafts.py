"""What the report tells of drafting: a table, and figures after Xia et al. 2022 (figure 4, table 2)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stages.report.figures import as_svg, cycle, panels, style

if TYPE_CHECKING:
    from stages.report import ReportInputs

VERIFIED = ("gad", "gad++", "sample")
CAPTION = (
    "Tokens a pass: tokens without the end over passes of the verifier, with the token of its own that every pass adds. Accepted: "
    "share of drafts that were kept. By place: of the drafts at the first, second, ... place of a block that all before were "
    "kept of, the share that was kept too, per cent. Fell back: sentences whose drafting did not pay and stopped."
)
FIGURE = (
    "Left: tokens a pass of the verifier over sentences, from the sentence that gains least to the one that gains most. Right: the "
    "mean against the width of a block, for searches that differ in it."
)


def read(inputs: ReportInputs) -> dict[str, dict[str, dict[str, Any]]]:
    """By test set and entry: the search and what its decoding told of drafting."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for item in inputs.evaluated:
        path = item.hypotheses.path / "decode.json"
        told = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        if "drafting" in told:
            found.setdefault(item.test, {})[f"{item.system}/{item.search}"] = told
    return found


def table(test: str, entries: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """A row for each entry."""
    columns = ["Entry", "Tokens a pass", "Passes", "Accepted", "By place", "Fell back"]
    rows = [
        [
            name,
            f"{told['drafting']['tokens_per_pass']:.2f}",
            f"{told['drafting']['passes']:.2f}",
            f"{100 * told['drafting']['accepted']:.1f} %",
            " ".join(f"{100 * share:.0f}" for share in told["drafting"]["acceptance"]),
            f"{100 * told['drafting']['fell_back']:.1f} %",
        ]
        for name, told in entries.items()
    ]
    return {"title": f"Drafting on {test}", "caption": CAPTION, "columns": columns, "rows": rows}


def figure(entries: Mapping[str, Mapping[str, Any]]) -> str:
    """Tokens a pass over sentences, and against the width of a block."""
    verified = {name: told for name, told in entries.items() if told["search"]["strategy"] in VERIFIED}
    widths: dict[str, dict[int, float]] = {}
    for name, told in verified.items():
        if told["search"]["draft_width"]:
            kind = name.replace(f"-k{told['search']['draft_width']}", "")
            widths.setdefault(kind, {})[told["search"]["draft_width"]] = told["drafting"]["tokens_per_pass"]
    with style():
        drawn, (left, right) = panels()
        for (name, told), colour in zip(verified.items(), cycle(len(verified)), strict=True):
            quantiles = told["drafting"]["quantiles"]
            left.plot([100 * place / (len(quantiles) - 1) for place in range(len(quantiles))], quantiles, color=colour, label=name)
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
