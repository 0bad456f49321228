"""Searches of a step: the engines that they need, and the options that were tuned for them."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.util import find_spec

from fewstep.config.options import Shortlist
from fewstep.config.search import SearchConfig
from stages.artifacts import Tuned
from stages.errors import StageError


def missing_engine(search: SearchConfig) -> str | None:
    """Return what to install for the engine of a search; None if it is installed."""
    if not search.uses_ctranslate2 or find_spec("ctranslate2") is not None:
        return None
    return "the package ctranslate2 for engine ctranslate2 (pip install ctranslate2)"


def check_engine(search: SearchConfig) -> None:
    """Raise StageError if the engine of a search is not installed on this machine."""
    if missing := missing_engine(search):
        raise StageError(f"search {search.label}: expected {missing}, found no such package on this machine")


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
