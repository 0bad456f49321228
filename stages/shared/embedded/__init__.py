"""The embedded corpus: an endless, reproducible stream of English-German sentences from a grammar, and of `documents` built from
them.

Pair `index` of a part is a pure function of the part and the index. An English sentence has several German translations (synonyms,
an adverb or a clause in front), of which one is drawn. This makes parallel decoding hard, as do verbs at the end of a clause,
separable verbs, and agreement over a distance.
"""

from __future__ import annotations

from collections.abc import Iterator

from stages.shared.embedded import english, german, grammar
from stages.shared.embedded.document import documents
from stages.shared.embedded.grammar import Draw

__all__ = ["LANGUAGES", "LENGTHS", "documents", "pairs", "render"]

LANGUAGES = {"translation": ("en", "de"), "summarization": ("en", "en")}
"""Languages of the two sides of the embedded corpus of each task."""
LENGTHS = range(4, 26)
"""Numbers of words of either side."""


def pairs(part: str, start: int, count: int) -> Iterator[tuple[str, str]]:
    """Yield `count` pairs (English, German) of a part from number `start`."""
    for index in range(start, start + count):
        yield render(part, index)[1:]


def render(part: str, index: int) -> tuple[grammar.Sentence, str, str]:
    """Return the structure of pair `index` of a part, its English and its German sentence."""
    draw = Draw(f"{part}/{index}")
    while True:
        meaning = grammar.sentence(draw)
        source, target = english.render(meaning, draw), german.render(meaning, draw)
        if source.count(" ") + 1 in LENGTHS and target.count(" ") + 1 in LENGTHS:
            return meaning, source, target
