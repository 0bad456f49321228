"""Terms: words of a text that a translation has in a stated form."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple
from zlib import crc32

from fewstep.text.languages import UNSPACED
from fewstep.text.placeholders import PLACEHOLDER

__all__ = ["Term", "kept_spans", "shared_words", "words"]

_WORD = re.compile(rf"[^\W\d_{UNSPACED}](?:[^\W{UNSPACED}]|[-'’](?=[^\W{UNSPACED}]))*")
_QUOTED = re.compile(r"`[^`\n]+`_{0,2}")
SHARE = 4
"""One of this number of words that both sides of a pair have is a term in training."""
SHORTEST = 3
"""Letters of the shortest of them."""


class Term(NamedTuple):
    """A term of a text, and what stands for it in a translation."""

    start: int
    end: int
    target: str


def kept_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a text in which nothing is a term: placeholders, and what stands in backquotes."""
    return (one.span() for pattern in (PLACEHOLDER, _QUOTED) for one in pattern.finditer(text))


def words(text: str) -> Iterator[Term]:
    """Yield the words of scripts with spaces outside of `kept_spans`, at least three letters long, each as its own translation."""
    kept = list(kept_spans(text))
    for one in _WORD.finditer(text):
        if len(one[0]) >= SHORTEST and not any(start < one.end() and one.start() < end for start, end in kept):
            yield Term(one.start(), one.end(), one[0])


def shared_words(source: str, target: str) -> frozenset[str]:
    """Return a share of the words that occur in both sides of a pair equally often. The choice depends on the source alone."""
    counts = [Counter(one.target for one in words(side)) for side in (source, target)]
    return frozenset(
        word
        for word, count in counts[0].items()
        if counts[1][word] == count and crc32(f"{word}\0{source}".encode(errors="replace")) % SHARE == 0
    )
