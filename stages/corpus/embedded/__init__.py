"""The embedded corpus: English-German sentences made by rule, without end, and the same everywhere; `documents` are made of them.

Pair `index` of a part is a pure function of the two. One English sentence has several German translations (synonyms, an adverb
or a clause in front), of which one is drawn: what makes parallel decoding hard, besides verbs at the end of the clause, verbs
that are parted from their particle, and agreement over a distance.
"""

from __future__ import annotations

from collections.abc import Iterator

from stages.corpus.embedded import english, german, grammar
from stages.corpus.embedded.document import documents
from stages.corpus.embedded.draw import Draw

__all__ = ["LANGUAGES", "LENGTHS", "documents", "pairs", "render"]

LANGUAGES = {"translation": ("en", "de"), "summarization": ("en", "en")}
"""Languages of the two sides of what is embedded for each task."""
LENGTHS = range(4, 26)
"""Words of either side."""


def pairs(part: str, start: int, count: int) -> Iterator[tuple[str, str]]:
    """Pairs (English, German) number `start`, `start + 1`, ... of a part."""
    for index in range(start, start + count):
        yield render(part, index)[1:]


def render(part: str, index: int) -> tuple[grammar.Sentence, str, str]:
    """What pair `index` of a part says, in English and in German."""
    draw = Draw(f"{part}/{index}")
    while True:
        meaning = grammar.sentence(draw)
        source, target = english.render(meaning, draw), german.render(meaning, draw)
        if source.count(" ") + 1 in LENGTHS and target.count(" ") + 1 in LENGTHS:
            return meaning, source, target
