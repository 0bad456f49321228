"""Statistics of drafting by test set, and their table (Xia et al. 2022, table 2)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from stages.report import ReportInputs

VERIFIED = ("gad", "gad++", "sample")
"""Strategies whose drafts are verified."""
CAPTION = (
    "Tokens a pass: output tokens without EOS divided by passes of the verifier; each pass adds one token of the verifier. "
    "Accepted: percentage of drafted tokens that were accepted. By position: percentage of accepted tokens at each position of a "
    "block, given that all earlier positions were accepted. Fell back: percentage of sentences that stopped drafting."
)


def read(inputs: ReportInputs) -> dict[str, dict[str, dict[str, Any]]]:
    """Return `decode.json` (with `search` and `drafting`) of each entry that drafts, by test set and entry."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for item in inputs.evaluated:
        path = item.hypotheses.path / "decode.json"
        decoded = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        if "drafting" in decoded:
            found.setdefault(item.test, {})[item.entry] = decoded
    return found


def table(test: str, entries: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
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
    return {"title": f"Drafting on {test}", "caption": CAPTION, "columns": columns, "rows": rows}
