"""Apply a tuned length penalty."""

from __future__ import annotations

import json
from dataclasses import replace

from fewstep.config.search import SearchConfig
from stages.artifacts import Tuned


def with_tuned_penalty(search: SearchConfig, tuned: Tuned | None) -> SearchConfig:
    """Return the search with the length penalty that was chosen for it; the search itself if none was."""
    if tuned is None:
        return search
    found = json.loads((tuned.path / "tuned.json").read_text(encoding="utf-8"))
    return replace(search, length_penalty=float(found["length_penalty"]))  # type: ignore[call-arg]  # only such searches are tuned
