"""Documents with summaries: short stories in English in which one thing happens to something or somebody, amid scenery.

A document has three to six sentences, in any order. In one, among the first three, somebody does something to somebody or
something; in the others people and animals sleep, dance, arrive. The summary is that one sentence without its adjectives,
adverbs and clauses. So neither the first sentence nor any other copied whole is a good summary, and what is one can be learned
from a few thousand documents.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from stages.corpus.embedded import english, grammar, lexicon
from stages.corpus.embedded.draw import Draw

SENTENCES = range(3, 7)
"""Sentences of a document."""
EARLY = range(3)
"""Places of the sentence that is summarised."""


def documents(part: str, start: int, count: int) -> Iterator[tuple[str, str]]:
    """Pairs (document, summary) number `start`, `start + 1`, ... of a part; each is a pure function of the two."""
    for index in range(start, start + count):
        yield document(f"document/{part}/{index}")


def document(name: str) -> tuple[str, str]:
    """The document of this name, and its summary."""
    draw = Draw(name)
    clauses = [scenery(draw) for _ in range(draw.pick(SENTENCES) - 1)]
    told = event(draw)
    clauses.insert(draw.pick(EARLY), told)
    names = [f"{name}/told" if clause is told else f"{name}/{index}" for index, clause in enumerate(clauses)]
    text = " ".join(map(_sentence, clauses, names))
    return text, _sentence(core(told), f"{name}/told")  # with the same choices as the sentence that it sums up


def event(draw: Draw) -> grammar.Clause:
    """Draw a clause with an object."""
    while True:
        clause = grammar.clause(draw, rich=True)
        if clause.object:
            return clause


def scenery(draw: Draw) -> grammar.Clause:
    """Draw a clause with nothing but a subject, a verb and adverbs."""
    while True:
        clause = grammar.clause(draw, rich=True)
        if clause.verb in lexicon.INTRANSITIVE:
            return clause


def core(clause: grammar.Clause) -> grammar.Clause:
    """Who did what (to whom): a clause without all that could be left out."""
    return replace(
        clause,
        subject=_bare(clause.subject),
        recipient=clause.recipient and _bare(clause.recipient),
        object=clause.object and _bare(clause.object),
        time=None,
        frequency=None,
        manner=None,
        place=None,
    )


def _bare(phrase: grammar.Phrase) -> grammar.Phrase:
    return grammar.Phrase(phrase.determiner, None, phrase.noun)


def _sentence(clause: grammar.Clause, name: str) -> str:
    return english.render(grammar.Sentence("statement", clause), Draw(name))
