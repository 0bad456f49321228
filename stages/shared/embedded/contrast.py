"""Minimal pairs: a translation, and the same translation with one finite verb in the wrong number (LingEval97, Sennrich 2017).

The number of a verb is harder to predict the further the verb is from its subject. All distances are therefore drawn equally often,
and so are singular and plural subjects: a system that always prefers one number is correct in half of the pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Literal, NamedTuple

from stages.shared.embedded import english, german, grammar, lexicon
from stages.shared.embedded.grammar import Clause, Draw, Sentence
from stages.shared.embedded.lexicon import Conjunction, Noun

Language = Literal["en", "de"]

LENGTHS = range(4, 26)
"""Words of a sentence."""
BANDS = (range(1, 2), range(2, 3), range(3, 5), range(5, 7), range(7, 10), range(10, 13), range(13, 26))
"""Bands of distances. English verbs are at most as far from their subjects as the fifth band."""

_MARK = "*"


class Contrast(NamedTuple):
    """A source, its translation, and the same translation with one verb in the wrong number."""

    source: str
    right: str
    wrong: str
    distance: int
    """Words from the noun of the subject to its verb; 1 if they are adjacent."""


def bands(target: Language) -> tuple[range, ...]:
    """Return the bands of distances of pairs with targets of a language."""
    return BANDS if target == "de" else BANDS[:5]


def label(band: range) -> str:
    """Return the name of a band: `1`, `3-4`, `13+`."""
    if band == BANDS[-1]:
        return f"{band.start}+"
    return str(band.start) if len(band) == 1 else f"{band.start}-{band.stop - 1}"


def contrasts(target: Language, number: int) -> Iterator[Contrast]:
    """Yield the first `number` distinct pairs with targets of a language.

    Bands alternate, and so does the grammatical number within each band.
    """
    wanted = bands(target)
    seen = set()
    for index in range(number):
        band = wanted[index % len(wanted)]
        plural = bool(index // len(wanted) % 2)
        for attempt in count():
            found = _contrast(target, f"contrast/{target}/{index}/{attempt}", plural, band)
            if found and found.right not in seen:
                seen.add(found.right)
                yield found
                break


def _contrast(target: Language, name: str, plural: bool, band: range) -> Contrast | None:
    """Draw a pair. Return None unless the subject of its last clause has the given number and is as far from its verb as `band`."""
    meaning = _sentence(Draw(f"{name}/meaning"))
    clause = meaning.second or meaning.main
    if clause.subject.plural is not plural or not (target == "de" or _shows_number(clause)):
        return None
    written, read = (german, english) if target == "de" else (english, german)

    def words(changed: Clause) -> list[str]:
        sentence = replace(meaning, second=changed) if meaning.second else replace(meaning, main=changed)
        return str(written.render(sentence, Draw(f"{name}/target"))).split()

    right, wrong = words(clause), words(replace(clause, disagrees=True))
    verb = next(position for position, (one, other) in enumerate(zip(right, wrong, strict=True)) if one != other)
    noun = next(position for position, word in enumerate(words(_marked(clause))) if _MARK in word)
    if verb - noun not in band:
        return None
    source = read.render(meaning, Draw(f"{name}/source"))
    fits = len(right) in LENGTHS and source.count(" ") + 1 in LENGTHS
    return Contrast(source, " ".join(right), " ".join(wrong), verb - noun) if fits else None


def _shows_number(clause: Clause) -> bool:
    """Return whether the English verb form differs by number and is not also a past form (as "read" is)."""
    if clause.modal:
        return clause.modal.singular != clause.modal.plural
    return clause.tense == "present" and clause.verb.base != clause.verb.past


def _sentence(draw: Draw) -> Sentence:
    """Draw a statement, alone or followed by a subordinate clause. The verb of the last clause is the one in question."""
    if draw.chance(40):
        return Sentence("statement", grammar.clause(draw, rich=True))
    tense: grammar.Tense = "past" if draw.chance(40) else "present"
    last = grammar.clause(draw, rich=True, tense=tense)
    if draw.chance(60):
        reporter = Clause(grammar.phrase(draw, lexicon.PEOPLE, 30), draw.pick(lexicon.REPORTING), tense)
        return Sentence("reported", reporter, last, Conjunction("that", ("dass",)))
    return Sentence("subordinate", grammar.clause(draw, tense=tense), last, draw.pick(lexicon.SUBORDINATORS))


def _marked(clause: Clause) -> Clause:
    """Mark the noun of the subject, so that it can be found in the sentence."""
    noun = clause.subject.noun
    words = tuple(word._replace(singular=word.singular + _MARK, plural=word.plural + _MARK) for word in noun.german)
    marked = Noun(noun.singular + _MARK, noun.plural + _MARK, words, noun.relative)
    return replace(clause, subject=replace(clause.subject, noun=marked))
