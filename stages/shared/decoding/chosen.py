"""Apply the options of a search that the tune stage chose."""

from __future__ import annotations

import json
from dataclasses import replace

from fewstep.config.options import Shortlist
from fewstep.config.search import SearchConfig
from stages.artifacts import Tuned


def with_tuned_options(search: SearchConfig, tuned: Tuned | None) -> SearchConfig:
    """Return the search with the options that were chosen for it; the search itself if none were."""
    if tuned is None:
        return search
    found = json.loads((tuned.path / "tuned.json").read_text(encoding="utf-8"))
    if "shortlist" in found:
        size = found["shortlist"]
        search = search.with_shortlist(None if size["tokens"] is None else Shortlist(tokens=size["tokens"], links=size["links"]))
    if "length_penalty" in found:
        search = replace(search, length_penalty=float(found["length_penalty"]))  # type: ignore[call-arg]  # it has a penalty
    return search
