"""The English side of the embedded corpus."""

from __future__ import annotations

from stages.shared.embedded.grammar import Clause, Draw, Phrase, Relative, Sentence, Tense
from stages.shared.embedded.lexicon import Verb


def render(sentence: Sentence, draw: Draw) -> str:
    """Return the sentence in English."""
    text = _words(sentence, draw)
    return text[0].upper() + text[1:] + ("?" if sentence.shape == "question" else ".")


def _words(sentence: Sentence, draw: Draw) -> str:
    if sentence.shape == "question" and sentence.link:
        return f"{sentence.link.english} {_question(sentence.main, draw)}".strip()
    if sentence.second is None or sentence.link is None:
        return _statement(sentence.main, draw, fronted=sentence.fronted)
    main, second = _statement(sentence.main, draw), _statement(sentence.second, draw)
    if sentence.shape == "coordinate":
        return f"{main}, {sentence.link.english} {second}"
    if sentence.second_first:
        return f"{sentence.link.english} {second}, {main}"
    return f"{main} {sentence.link.english} {second}"


def _statement(clause: Clause, draw: Draw, *, fronted: bool = False) -> str:
    head = f"{noun_phrase(clause.subject)} {predicate(clause)}"
    if fronted and clause.time:
        return f"{clause.time.english} {head}{_rest(clause, draw, time=False)}"
    return head + _rest(clause, draw)


def predicate(clause: Clause) -> str:
    """Return the verb of a statement with its auxiliaries and adverb of frequency, in agreement with the subject."""
    plural = clause.plural
    often = f"{clause.frequency.english} " if clause.frequency else ""
    if clause.modal:
        finite = clause.modal.plural if plural else clause.modal.singular
        if not clause.negated:
            return f"{finite} {often}{clause.verb.base}"
        auxiliary = f"{_do(plural, clause.tense)} " if clause.modal.negative.startswith("not") else ""
        return f"{auxiliary}{clause.modal.negative} {clause.verb.base}"
    if clause.negated:
        return f"{_do(plural, clause.tense)} not {clause.verb.base}"
    return often + finite_verb(clause.verb, clause.tense, plural)


def finite_verb(verb: Verb, tense: Tense, plural: bool) -> str:
    """Return a verb in the third person."""
    if tense == "past":
        return verb.past
    return verb.base if plural else verb.third


def noun_phrase(phrase: Phrase) -> str:
    """Return a noun phrase with its modifier and relative clause."""
    noun = phrase.noun.plural if phrase.plural else phrase.noun.singular
    words = f"{phrase.adjective.english} {noun}" if phrase.adjective else noun
    determiner = phrase.determiner.english
    text = f"{'an' if determiner == 'a' and words[0] in 'aeiou' else determiner} {words}"
    if phrase.modifier:
        text += f" {phrase.modifier[0]} {noun_phrase(phrase.modifier[2])}"
    return f"{text} {_relative(phrase, phrase.relative)}" if phrase.relative else text


def _relative(phrase: Phrase, clause: Relative) -> str:
    if clause.subject:
        verb = finite_verb(clause.verb, clause.tense, clause.subject.plural)
        return f"{'whom' if phrase.noun.relative == 'who' else 'that'} {noun_phrase(clause.subject)} {verb}"
    verb = finite_verb(clause.verb, clause.tense, phrase.plural)
    return f"{phrase.noun.relative} {verb} {noun_phrase(clause.object)}" if clause.object else f"{phrase.noun.relative} {verb}"


def _question(clause: Clause, draw: Draw) -> str:
    plural = clause.plural
    subject = noun_phrase(clause.subject)
    often = f"{clause.frequency.english} " if clause.frequency else ""
    if clause.modal and clause.modal.plural != "want to":
        return f"{clause.modal.singular} {subject} {often}{clause.verb.base}{_rest(clause, draw)}"
    wish = "want to " if clause.modal else ""
    return f"{_do(plural, clause.tense)} {subject} {often}{wish}{clause.verb.base}{_rest(clause, draw)}"


def _rest(clause: Clause, draw: Draw, *, time: bool = True) -> str:
    """Return objects, manner, place and time, each with a preceding space."""
    direct = f" {noun_phrase(clause.object)}" if clause.object else ""
    recipient = f" {noun_phrase(clause.recipient)}" if clause.recipient else ""
    if direct and recipient and draw.chance(40):
        objects = f"{direct} to{recipient}"
    else:
        objects = recipient + direct
    adverbs = (clause.manner, clause.place, clause.time if time else None)
    return objects + "".join(f" {adverb.english}" for adverb in adverbs if adverb)


def _do(plural: bool, tense: Tense) -> str:
    if tense == "past":
        return "did"
    return "do" if plural else "does"
