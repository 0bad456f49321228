"""Short English documents with summaries: one event, and several sentences of scenery.

A document has three to six sentences. One of the first three is the event, a clause with an object; in the others people and
animals sleep, dance or arrive. The summary is the event without its adjectives, adverbs and subordinate clauses. No sentence of a
document is therefore a good summary as it stands, and the task can be learned from a few thousand documents.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from stages.shared.embedded import english, grammar, lexicon
from stages.shared.embedded.grammar import Draw

SENTENCES = range(3, 7)
"""Numbers of sentences of a document."""
EARLY = range(3)
"""Positions of the event."""


def documents(part: str, start: int, count: int) -> Iterator[tuple[str, str]]:
    """Yield `count` pairs (document, summary) of a part from number `start`. Each is a pure function of the part and its number."""
    for index in range(start, start + count):
        yield document(f"document/{part}/{index}")


def document(name: str) -> tuple[str, str]:
    """Return the document of this name and its summary."""
    draw = Draw(name)
    clauses = [scenery(draw) for _ in range(draw.pick(SENTENCES) - 1)]
    main = event(draw)
    clauses.insert(draw.pick(EARLY), main)
    names = [f"{name}/told" if clause is main else f"{name}/{index}" for index, clause in enumerate(clauses)]
    text = " ".join(map(_sentence, clauses, names))
    return text, _sentence(core(main), f"{name}/told")  # the same seed: event and summary share their choices of words


def event(draw: Draw) -> grammar.Clause:
    """Draw a clause with an object."""
    while True:
        clause = grammar.clause(draw, rich=True)
        if clause.object:
            return clause


def scenery(draw: Draw) -> grammar.Clause:
    """Draw a clause of a subject, a verb and adverbs."""
    while True:
        clause = grammar.clause(draw, rich=True)
        if clause.verb in lexicon.INTRANSITIVE:
            return clause


def core(clause: grammar.Clause) -> grammar.Clause:
    """Return a clause without its optional parts: subject, verb and objects without adjectives and modifiers."""
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
