"""Engines of other packages, which may not be installed."""

from __future__ import annotations

from importlib.util import find_spec

from fewstep.config.search import SearchConfig
from stages.errors import StageError


def missing_engine(search: SearchConfig) -> str | None:
    """Return what to install for the engine of a search; None if it is installed."""
    if not search.uses_ctranslate2 or find_spec("ctranslate2") is not None:
        return None
    return "the package ctranslate2 for engine ctranslate2 (pip install 'fewstep[ctranslate2]')"


def check_engine(search: SearchConfig) -> None:
    """Raise StageError if the engine of a search is not installed on this machine."""
    if missing := missing_engine(search):
        raise StageError(f"search {search.label}: expected {missing}, found no such package on this machine")
