"""Engines that other packages bring, which may not be installed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from stages.errors import StageError


def foreign(search: Any) -> bool:
    """Does CTranslate2 decode?"""
    return getattr(search, "engine", "auto") == "ctranslate2"


def missing_engine(search: Any) -> str | None:
    """What a user is told where the engine of a search is not installed here."""
    if not foreign(search) or find_spec("ctranslate2") is not None:
        return None
    return "the package ctranslate2 for engine ctranslate2 (pip install 'fewstep[ctranslate2]')"


def check_engine(search: Any) -> None:
    """Raises StageError where the engine of a search is not installed here."""
    if missing := missing_engine(search):
        raise StageError(f"search {search.name}: expected {missing}, got none on this machine")
