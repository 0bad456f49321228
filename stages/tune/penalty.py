"""The length penalty that a tuning chose."""

from __future__ import annotations

import json
from dataclasses import replace

from stages.artifacts import Tuned
from stages.families import PenalisedSearch, Search


def with_tuned_penalty(search: Search, tuned: Tuned | None) -> Search:
    """The search with the length penalty that was chosen for it."""
    if tuned is None:
        return search
    assert isinstance(search, PenalisedSearch)  # no other is tuned
    found = json.loads((tuned.path / "tuned.json").read_text(encoding="utf-8"))
    return replace(search, length_penalty=float(found["length_penalty"]))
