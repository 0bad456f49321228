"""Removal of immediate repetitions from outputs."""

from __future__ import annotations

from collections.abc import Sequence
from operator import eq

MAX_NGRAM = 4
"""Tokens of the longest repetition that is removed."""


def deduplicate(ids: Sequence[int], max_ngram: int = MAX_NGRAM) -> list[int]:
    """Remove the second copy of any two equal adjacent n-grams of up to `max_ngram` tokens, longer ones first.

    A removal may bring equal n-grams together, so it is repeated until none are left. Intended repetitions are removed too.
    """
    kept = list(ids)
    width = max_ngram
    while width:
        size = len(kept)
        kept = _sweep(kept, width)
        width = max_ngram if len(kept) < size and width < max_ngram else width - 1
    return kept


def _sweep(ids: list[int], width: int) -> list[int]:
    """Remove second copies of n-grams of `width` tokens."""
    if not any(map(eq, ids, ids[width:])):  # most outputs
        return ids
    kept: list[int] = []
    for token in ids:
        kept.append(token)
        if len(kept) >= 2 * width and kept[-width:] == kept[-2 * width : -width]:
            del kept[-width:]
    return kept
