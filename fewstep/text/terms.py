"""Terms: words of a text that a translation has in a stated form."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple
from zlib import crc32

from fewstep.text.languages import UNSPACED
from fewstep.text.placeholders import PLACEHOLDER

_WORD = re.compile(rf"[^\W\d_{UNSPACED}](?:[^\W{UNSPACED}]|[-'’](?=[^\W{UNSPACED}]))*")
_QUOTED = re.compile(r"``[^\n]+?``|`[^`\n]+`_{0,2}")
SHARE = 4
"""One of this number of words that both sides of a pair have is a term in training."""
SHORTEST = 3
"""Letters of the shortest of them."""


class Term(NamedTuple):
    """A term of a text, and what stands for it in a translation."""

    start: int
    end: int
    target: str


def kept_characters(text: str) -> bytearray:
    """Return 1 for each character of a text in which nothing is a term: placeholders, and what stands in backquotes."""
    kept = bytearray(len(text))
    for pattern in (PLACEHOLDER, _QUOTED):
        for one in pattern.finditer(text):
            kept[one.start() : one.end()] = b"\1" * (one.end() - one.start())
    return kept


def words(text: str) -> Iterator[Term]:
    """Yield the words of scripts with spaces outside of `kept_characters`, at least three letters long, each as its own
    translation."""
    kept = kept_characters(text)
    for one in _WORD.finditer(text):
        if len(one[0]) >= SHORTEST and 1 not in kept[one.start() : one.end()]:
            yield Term(one.start(), one.end(), one[0])


def shared_words(source: str, target: str) -> frozenset[str]:
    """Return a share of the words that occur in both sides of a pair equally often. The choice depends on the source alone."""
    counts = [Counter(one.target for one in words(side)) for side in (source, target)]
    return frozenset(
        word
        for word, count in counts[0].items()
        if counts[1][word] == count and crc32(f"{word}\0{source}".encode(errors="replace")) % SHARE == 0
    )
