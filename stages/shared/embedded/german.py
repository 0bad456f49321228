"""The German side of the embedded corpus: declension, verb clusters and the position of the finite verb.

The finite verb is second in a main clause, first in a question and last in a subordinate clause; other verbs are at the end.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from stages.shared.embedded.grammar import Clause, Draw, Phrase, Relative, Sentence, Tense
from stages.shared.embedded.lexicon import NO, Conjunction, Determiner, Gender, GermanNoun, GermanVerb, Modal, Verb

Case = Literal["nominative", "accusative", "dative"]
Column = Literal["m", "f", "n", "plural"]

CASES: tuple[Case, ...] = ("nominative", "accusative", "dative")


def _table(**columns: str) -> dict[tuple[Column, Case], str]:
    """Return endings by column and case; `-` is an empty ending."""
    return {
        (column, case): "" if ending == "-" else ending  # type: ignore[misc]
        for column, endings in columns.items()
        for case, ending in zip(CASES, endings.split(), strict=True)
    }


DEFINITE = _table(m="der den dem", f="die die der", n="das das dem", plural="die die den")
"""Definite articles, and relative pronouns in the nominative and accusative."""
DETERMINER_ENDINGS = {
    "demonstrative": _table(m="er en em", f="e e er", n="es es em", plural="e e en"),
    "ein": _table(m="- en em", f="e e er", n="- - em", plural="e e en"),
    "strong": _table(plural="e e en"),
    "fixed": _table(plural="- - -"),
}
WEAK = _table(m="e en en", f="e e en", n="e e en", plural="en en en")
MIXED = _table(m="er en en", f="e e en", n="es es en", plural="en en en")
STRONG = _table(plural="e e en")
ADJECTIVE_ENDINGS = {"definite": WEAK, "demonstrative": WEAK, "ein": MIXED, "strong": STRONG, "fixed": STRONG}
"""Adjective endings after a determiner of each declension."""


class Cluster(NamedTuple):
    """The verbs of a clause."""

    finite: str
    """The finite verb of a main clause, without particle."""
    end: str
    """Particle, participle or infinitive at the end of a main clause; may be empty."""
    last: str
    """All verbs in the order of a subordinate clause."""


def render(sentence: Sentence, draw: Draw) -> str:
    """Return the sentence in German; `draw` chooses among translations of words."""
    text = _words(sentence, draw).removesuffix(",")
    return text[0].upper() + text[1:] + ("?" if sentence.shape == "question" else ".")


def _words(sentence: Sentence, draw: Draw) -> str:
    if sentence.shape == "question" and sentence.link:
        return _question(sentence.main, sentence.link, draw)
    if sentence.second is None or sentence.link is None:
        return main_clause(sentence.main, draw, front=35)
    link = draw.variant(sentence.link.german)
    if sentence.shape == "coordinate":
        main, second = main_clause(sentence.main, draw, front=20), main_clause(sentence.second, draw)
        return f"{main.removesuffix(',')}{link} {second}" if link.startswith(",") else f"{main} {link} {second}"
    second = f"{link} {subordinate_clause(sentence.second, draw)}"
    if sentence.shape == "subordinate" and sentence.second_first != draw.chance(15):
        return f"{second}, {main_clause(sentence.main, draw, after_clause=True)}"
    return f"{main_clause(sentence.main, draw).removesuffix(',')}, {second}"


def main_clause(clause: Clause, draw: Draw, *, front: int = 0, after_clause: bool = False) -> str:
    """Return a main clause, with the finite verb in second position.

    With a probability of `front` per cent an adverb precedes the verb. After a subordinate clause the verb comes first. The result
    may end with the comma of a relative clause.
    """
    subject = noun_phrase(clause.subject, "nominative", draw)
    verbs = cluster(clause, draw)
    middle = _middle(clause, draw)
    movable = [slot for slot in ("time", "place") if slot in middle]
    if after_clause:
        start = f"{verbs.finite} {subject}"
    elif movable and draw.chance(front):
        start = f"{middle.pop(draw.pick(movable))} {verbs.finite} {subject}"
    else:
        start = f"{subject} {verbs.finite}"
    return " ".join([start, *middle.values(), *([verbs.end] if verbs.end else [])])


def subordinate_clause(clause: Clause, draw: Draw) -> str:
    """Return a subordinate clause without conjunction: all verbs are at the end, the finite verb last."""
    subject = noun_phrase(clause.subject, "nominative", draw)
    return " ".join([subject, *_middle(clause, draw).values(), cluster(clause, draw).last])


def _question(clause: Clause, word: Conjunction, draw: Draw) -> str:
    verbs = cluster(clause, draw)
    subject = noun_phrase(clause.subject, "nominative", draw)
    words = [draw.variant(word.german), verbs.finite, subject, *_middle(clause, draw).values(), verbs.end]
    return " ".join(filter(None, words))


def cluster(clause: Clause, draw: Draw) -> Cluster:
    """Return the verbs of a clause in agreement with its subject."""
    return verb_cluster(draw.variant(clause.verb.german), clause.tense, clause.modal, clause.plural)


def verb_cluster(verb: GermanVerb, tense: Tense, modal: Modal | None, plural: bool) -> Cluster:
    """Return a present, a perfect, or a modal with infinitive, in the third person."""
    if modal:
        finite = modal.german_plural if plural else modal.german_singular
        infinitive = verb.particle + verb.infinitive
        return Cluster(finite, infinitive, f"{infinitive} {finite}")
    if tense == "past":
        finite = {"haben": ("hat", "haben"), "sein": ("ist", "sind")}[verb.auxiliary][plural]
        return Cluster(finite, verb.participle, f"{verb.participle} {finite}")
    finite = verb.infinitive if plural else verb.third
    return Cluster(finite, verb.particle, verb.particle + finite)


def _middle(clause: Clause, draw: Draw) -> dict[str, str]:
    """Return the parts between the verbs in order: time, dative, accusative, negation, manner, place."""
    words: dict[str, str] = {}
    if moment := clause.time or clause.frequency:
        words["time"] = draw.variant(moment.german)
    if clause.recipient:
        words["recipient"] = noun_phrase(clause.recipient, "dative", draw)
    none = clause.negated and clause.object is not None and clause.object.determiner.english == "a"
    if clause.object:
        words["object"] = noun_phrase(clause.object, "accusative", draw, NO if none else None)
    if clause.negated and not none:
        words["not"] = "nicht"
    if clause.manner:
        words["manner"] = draw.variant(clause.manner.german)
    if clause.place:
        words["place"] = draw.variant(clause.place.german)
    return words


def noun_phrase(phrase: Phrase, case: Case, draw: Draw, determiner: Determiner | None = None) -> str:
    """Return a noun phrase with its modifier and relative clause. A relative clause ends with a comma."""
    noun = draw.variant(phrase.noun.german)
    column: Column = "plural" if phrase.plural else noun.gender
    words = [article(determiner or phrase.determiner, column, case)]
    if phrase.adjective:
        ending = ADJECTIVE_ENDINGS[(determiner or phrase.determiner).declension][column, case]
        words.append(draw.variant(phrase.adjective.german) + ending)
    words.append(inflected(noun, phrase.plural, case))
    if phrase.modifier:
        words += [phrase.modifier[1], noun_phrase(phrase.modifier[2], "dative", draw)]
    text = " ".join(words)
    return f"{text}, {_relative(phrase, phrase.relative, noun.gender, draw)}," if phrase.relative else text


def article(determiner: Determiner, column: Column, case: Case) -> str:
    """Return a determiner in agreement with its noun."""
    if determiner.declension == "definite":
        return DEFINITE[column, case]
    return determiner.stem + DETERMINER_ENDINGS[determiner.declension][column, case]


def inflected(noun: GermanNoun, plural: bool, case: Case) -> str:
    """Return a noun in the given number and case."""
    if plural:
        return noun.dative_plural if case == "dative" else noun.plural
    return noun.singular if case == "nominative" else noun.oblique


def _relative(phrase: Phrase, clause: Relative, gender: Gender, draw: Draw) -> str:
    column: Column = "plural" if phrase.plural else gender
    if clause.subject:
        words = [DEFINITE[column, "accusative"], noun_phrase(clause.subject, "nominative", draw)]
    else:
        words = [DEFINITE[column, "nominative"], *([noun_phrase(clause.object, "accusative", draw)] if clause.object else [])]
    return " ".join([*words, _last(clause.verb, clause.tense, (clause.subject or phrase).plural, draw)])


def _last(verb: Verb, tense: Tense, plural: bool, draw: Draw) -> str:
    return verb_cluster(draw.variant(verb.german), tense, None, plural).last
