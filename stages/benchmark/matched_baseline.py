"""With what an entry of the benchmark is compared like for like."""

from __future__ import annotations

from collections.abc import Mapping

from models.aggressive.config import AggressiveSearch
from models.lattice.config import LatticeSearch
from models.stepwise.config import StepwiseSearch
from stages.families import Search

COMMON = {"fp32": "float32", "bf16": "bfloat16"}
"""Precisions by the name that stepwise searches have for them."""


def peer(search: Search, baselines: Mapping[str, Search]) -> str | None:
    """Of the searches of the baseline's system the first that has what `search` has: engine, precision, list of words, and a beam
    or samples, of the same width and pruning where both searches are of the stepwise family. None: none has."""
    return next((name for name, other in baselines.items() if _kind(other) == _kind(search) and _equally_wide(search, other)), None)


def _kind(search: Search) -> tuple[str, str, str, tuple[int, int] | None]:
    ways = search.strategy if search.strategy in ("beam", "sample") else "one hypothesis"
    engine = "auto" if isinstance(search, LatticeSearch | AggressiveSearch) else search.engine
    precision = search.verifier_precision if isinstance(search, AggressiveSearch) else search.precision
    listed = None
    if not isinstance(search, LatticeSearch) and search.shortlist_words is not None:
        listed = search.shortlist_words, search.shortlist_links
    return ways, engine, COMMON.get(precision, precision), listed


def _equally_wide(one: Search, other: Search) -> bool:
    if not (isinstance(one, StepwiseSearch) and isinstance(other, StepwiseSearch) and one.strategy == "beam"):
        return True
    return (one.beam_size, one.prune) == (other.beam_size, other.prune)
