"""The language-independent structure of sentences of the embedded corpus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from random import Random
from typing import Literal, TypeVar

from stages.shared.embedded import lexicon
from stages.shared.embedded.lexicon import Adjective, Adverb, Conjunction, Determiner, Modal, Noun, Verb

Tense = Literal["present", "past"]


@dataclass(frozen=True, slots=True)
class Phrase:
    """A noun phrase."""

    determiner: Determiner
    adjective: Adjective | None
    noun: Noun
    modifier: tuple[str, str, Phrase] | None = None
    """English preposition, German preposition (dative) and their phrase."""
    relative: Relative | None = None

    @property
    def plural(self) -> bool:
        return self.determiner.plural


@dataclass(frozen=True, slots=True)
class Relative:
    """A relative clause. Its pronoun is the subject if `subject` is None, else the direct object."""

    verb: Verb
    tense: Tense
    subject: Phrase | None
    object: Phrase | None


@dataclass(frozen=True, slots=True)
class Clause:
    """A subject and its predicate."""

    subject: Phrase
    verb: Verb
    tense: Tense
    modal: Modal | None = None
    recipient: Phrase | None = None
    """Dative object."""
    object: Phrase | None = None
    """Accusative object."""
    negated: bool = False
    time: Adverb | None = None
    frequency: Adverb | None = None
    manner: Adverb | None = None
    place: Adverb | None = None
    disagrees: bool = False
    """True if the finite verb has the wrong number, in half of a minimal pair (`stages.shared.embedded.contrast`)."""

    @property
    def plural(self) -> bool:
        """True if the finite verb is in the plural."""
        return self.subject.plural != self.disagrees


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of one clause (a statement, or a question with the word `link`) or of two clauses joined by `link`."""

    shape: Literal["statement", "question", "coordinate", "subordinate", "reported"]
    main: Clause
    second: Clause | None = None
    link: Conjunction | None = None
    """Conjunction, or question word (empty for a yes-no question)."""
    second_first: bool = False
    """True if the English sentence begins with its subordinate clause."""
    fronted: bool = False
    """True if the English sentence begins with the adverb of time of its main clause."""


def sentence(draw: Draw) -> Sentence:
    """Draw a sentence."""
    kind = int(draw.pick(range(100)))
    if kind < 45:
        main = clause(draw, rich=True)
        return Sentence("statement", main, fronted=main.time is not None and draw.chance(20))
    if kind < 57:
        word = draw.pick(lexicon.QUESTION_WORDS)
        return Sentence("question", clause(draw, question=word.english), link=word)
    if kind < 70:
        return Sentence("coordinate", clause(draw), clause(draw), draw.pick(lexicon.COORDINATORS))
    tense: Tense = "past" if draw.chance(40) else "present"
    if kind < 82:
        reporter = Clause(phrase(draw, lexicon.PEOPLE, 30), draw.pick(lexicon.REPORTING), tense)
        return Sentence("reported", reporter, clause(draw, tense=tense), Conjunction("that", ("dass",)))
    link = draw.pick(lexicon.SUBORDINATORS if tense == "past" else lexicon.SUBORDINATORS + lexicon.PRESENT_SUBORDINATORS)
    return Sentence("subordinate", clause(draw, tense=tense), clause(draw, tense=tense), link, second_first=draw.chance(25))


def clause(draw: Draw, *, rich: bool = False, question: str | None = None, tense: Tense | None = None) -> Clause:
    """Draw a clause. A `rich` clause has more adverbs and more often a modifier between subject and verb."""
    tense = tense or ("past" if draw.chance(40) else "present")
    verb = _verb(draw)
    while question == "where" and not verb.place:
        verb = _verb(draw)
    modal = draw.pick(lexicon.MODALS) if tense == "present" and draw.chance(30) else None
    subject = subject_phrase(draw, verb, 40 if rich else 15)
    recipient = phrase(draw, lexicon.PEOPLE, 25) if verb.dative else None
    direct = phrase(draw, _nouns(verb.direct), 30) if verb.direct else None
    negated = question is None and draw.chance(15) and _can_be_negated(subject, recipient, direct, modal)
    more = 2 if rich else 1
    time = draw.pick(_times(tense, modal, negated)) if question != "when" and draw.chance(30 * more) else None
    return Clause(
        subject,
        verb,
        tense,
        modal,
        recipient,
        direct,
        negated,
        time,
        frequency=draw.pick(lexicon.FREQUENCIES)
        if time is None and not negated and question != "when" and draw.chance(15)
        else None,
        manner=draw.pick(lexicon.MANNERS) if verb.manner and not negated and draw.chance(20 * more) else None,
        place=draw.pick(lexicon.PLACES) if verb.place and not negated and question != "where" and draw.chance(15 * more) else None,
    )


def subject_phrase(draw: Draw, verb: Verb, distance: int) -> Phrase:
    """Draw a subject. With a probability of `distance` per cent a relative clause or prepositional phrase separates it from the
    verb."""
    nouns = lexicon.PEOPLE + lexicon.ANIMALS if verb in lexicon.INTRANSITIVE and not verb.manner else lexicon.PEOPLE
    head = phrase(draw, nouns, 35, every=True)
    if not draw.chance(distance):
        return head
    if head.noun in lexicon.PEOPLE and draw.chance(50):
        return Phrase(head.determiner, head.adjective, head.noun, relative=relative(draw))
    english, german, names = draw.pick(lexicon.MODIFIERS)
    inner = phrase(draw, _nouns(names), 25)
    return Phrase(head.determiner, head.adjective, head.noun, modifier=(english, german, inner))


def relative(draw: Draw) -> Relative:
    """Draw a relative clause about a person."""
    tense: Tense = "past" if draw.chance(40) else "present"
    verb = draw.pick(lexicon.TRANSITIVE)
    if draw.chance(40) and "man" in verb.direct:
        return Relative(verb, tense, subject=phrase(draw, lexicon.PEOPLE, 30), object=None)
    return Relative(verb, tense, subject=None, object=phrase(draw, _nouns(verb.direct), 30))


def phrase(draw: Draw, nouns: tuple[Noun, ...], plural: int, *, every: bool = False) -> Phrase:
    """Draw a noun phrase, in the plural with a probability of `plural` per cent. `every` permits the determiner "every"
    (subjects)."""
    noun = draw.pick(nouns)
    if draw.chance(plural):
        determiner = draw.pick(lexicon.PLURAL_DETERMINERS)
    elif every and draw.chance(7):
        determiner = lexicon.EVERY
    else:
        determiner = draw.pick(lexicon.SINGULAR_DETERMINERS)
    kinds = lexicon.THING_ADJECTIVES if noun in lexicon.THINGS else lexicon.PERSON_ADJECTIVES
    return Phrase(determiner, draw.pick(kinds) if draw.chance(40) else None, noun)


def _verb(draw: Draw) -> Verb:
    kind = draw.pick(range(100))
    if kind < 60:
        return draw.pick(lexicon.TRANSITIVE)
    if kind < 80:
        return draw.pick(lexicon.INTRANSITIVE)
    return draw.pick(lexicon.DATIVE if kind < 88 else lexicon.DITRANSITIVE)


def _nouns(names: tuple[str, ...]) -> tuple[Noun, ...]:
    return tuple(lexicon.NOUNS[name] for name in names)


def _times(tense: Tense, modal: Modal | None, negated: bool) -> tuple[Adverb, ...]:
    if tense == "past":
        return lexicon.PAST_TIMES
    if negated:
        return lexicon.ONCE
    return lexicon.COMING_TIMES if modal else lexicon.PRESENT_TIMES


def _can_be_negated(subject: Phrase, recipient: Phrase | None, direct: Phrase | None, modal: Modal | None) -> bool:
    """Return whether the negation has the same scope in both languages: the only vague phrase is an object with "a"."""
    if subject.determiner.english in lexicon.VAGUE or (modal and not modal.negative):
        return False
    if recipient and recipient.determiner.english in lexicon.VAGUE:
        return False
    return direct is None or direct.determiner.english not in lexicon.VAGUE - {"a"}


T = TypeVar("T")


class Draw:
    """A generator of random choices that is seeded by a name."""

    def __init__(self, name: str) -> None:
        # Python guarantees equal values across versions only for `random()` of an integer seed.
        self._random = Random(int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")).random

    def chance(self, percent: int) -> bool:
        """Return True with the given probability in per cent."""
        return self._random() * 100 < percent

    def pick(self, choices: Sequence[T]) -> T:
        """Return one of the choices; all are equally likely."""
        return choices[int(self._random() * len(choices))]

    def variant(self, choices: Sequence[T]) -> T:
        """Return one of several translations: the first with probability 2/3."""
        if len(choices) == 1 or self._random() * 3 < 2:
            return choices[0]
        return choices[1 + int(self._random() * (len(choices) - 1))]
