"""Take out what a network said twice in a row."""

from __future__ import annotations

from collections.abc import Sequence
from operator import eq

LONGEST = 4
"""Tokens of the longest repetition that is looked for."""


def deduplicate(ids: Sequence[int], longest: int = LONGEST) -> list[int]:
    """Without the second copy of any two equal n-grams side by side, up to `longest` tokens, the longer first.

    What is taken out may bring equal n-grams together: it is repeated until none are left. A repetition that was meant goes too.
    """
    kept = list(ids)
    width = longest
    while width:
        size = len(kept)
        kept = _sweep(kept, width)
        width = longest if len(kept) < size and width < longest else width - 1
    return kept


def _sweep(ids: list[int], width: int) -> list[int]:
    """Without second copies of n-grams of `width` tokens."""
    if not any(map(eq, ids, ids[width:])):  # most outputs
        return ids
    kept: list[int] = []
    for token in ids:
        kept.append(token)
        if len(kept) >= 2 * width and kept[-width:] == kept[-2 * width : -width]:
            del kept[-width:]
    return kept
