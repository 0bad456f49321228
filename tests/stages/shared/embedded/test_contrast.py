"""Minimal pairs differ in one verb, at the stated distance from its subject."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from itertools import islice

import pytest

from stages.shared.embedded import lexicon, pairs
from stages.shared.embedded.contrast import LENGTHS, Contrast, Language, bands, contrasts, label

PAIRS: dict[Language, list[Contrast]] = {"de": list(contrasts("de", 140)), "en": list(contrasts("en", 100))}
LANGUAGES: tuple[Language, ...] = ("de", "en")


def test_the_pairs_are_unchanged() -> None:
    """The demo, tests and artifacts depend on the pairs: one changed sentence would change all of them."""
    text = "\n".join("\t".join(pair) for pair in pairs("train", 0, 2000))
    assert hashlib.sha256(text.encode()).hexdigest() == "e901c573a6ea11f876c175cc14281a97d64cfc072cf09a93142db5adf859bc84"


@pytest.mark.parametrize("target", LANGUAGES)
def test_right_and_wrong_differ_in_one_verb(target: Language) -> None:
    for pair in PAIRS[target]:
        right, wrong = pair.right.split(), pair.wrong.split()
        assert len(right) == len(wrong)
        assert sum(one != other for one, other in zip(right, wrong, strict=True)) == 1, pair
        assert len(right) in LENGTHS
        assert len(pair.source.split()) in LENGTHS


def singular_and_plural() -> dict[Language, dict[str, str]]:
    """Return the plural of every singular finite form."""
    groups = (lexicon.TRANSITIVE, lexicon.INTRANSITIVE, lexicon.DATIVE, lexicon.DITRANSITIVE, lexicon.REPORTING)
    verbs = [verb for group in groups for verb in group]
    forms = [german for verb in verbs for german in verb.german]
    german_forms = {"hat": "haben", "ist": "sind", **{modal.german_singular: modal.german_plural for modal in lexicon.MODALS}}
    german_forms |= {particle + verb.third: particle + verb.infinitive for verb in forms for particle in ("", verb.particle)}
    english = {"does": "do", "wants": "want", **{verb.third.split()[0]: verb.base.split()[0] for verb in verbs}}
    return {"de": german_forms, "en": english}


def changed(pair: Contrast) -> tuple[int, str, str]:
    """The position of the verb, and its right and its wrong form without punctuation."""
    words = zip(pair.right.rstrip(".").split(), pair.wrong.rstrip(".").split(), strict=True)
    ((place, right, wrong),) = [(i, one.rstrip(","), other.rstrip(",")) for i, (one, other) in enumerate(words) if one != other]
    return place, right, wrong


@pytest.mark.parametrize("target", LANGUAGES)
def test_the_wrong_form_is_the_other_number_of_the_right_one(target: Language) -> None:
    forms = singular_and_plural()[target]
    plurals = 0
    for pair in PAIRS[target]:
        _, right, wrong = changed(pair)
        assert forms.get(right) == wrong or forms.get(wrong) == right, pair
        plurals += forms.get(wrong) == right
    assert plurals == len(PAIRS[target]) // 2, "who always says the singular is right half of the time"


@pytest.mark.parametrize("target", LANGUAGES)
def test_the_distance_leads_from_the_verb_to_a_noun_of_that_number(target: Language) -> None:
    nouns = lexicon.NOUNS.values()
    if target == "de":
        singular = {word.singular for noun in nouns for word in noun.german}
        plural = {word.plural for noun in nouns for word in noun.german}
    else:
        singular, plural = {noun.singular for noun in nouns}, {noun.plural for noun in nouns}
    forms = singular_and_plural()[target]
    for pair in PAIRS[target]:
        place, right, wrong = changed(pair)
        subject = re.sub(r"\W", "", pair.right.split()[place - pair.distance])
        assert subject in (singular if forms.get(right) == wrong else plural), pair


@pytest.mark.parametrize("target", LANGUAGES)
def test_bands_have_equal_numbers_of_pairs(target: Language) -> None:
    found = Counter(next(label(band) for band in bands(target) if pair.distance in band) for pair in PAIRS[target])
    assert found == dict.fromkeys(map(label, bands(target)), 20)
    assert max(pair.distance for pair in PAIRS[target]) >= (13 if target == "de" else 7)


@pytest.mark.parametrize("target", LANGUAGES)
def test_pairs_are_distinct_and_a_smaller_number_is_a_prefix(target: Language) -> None:
    assert len({pair.right for pair in PAIRS[target]}) == len(PAIRS[target])
    assert list(contrasts(target, 30)) == PAIRS[target][:30]
    assert len(list(islice(contrasts(target, 10**9), 2))) == 2
    assert list(contrasts(target, 0)) == []


def test_labels_of_distances() -> None:
    assert [label(band) for band in bands("de")] == ["1", "2", "3-4", "5-6", "7-9", "10-12", "13+"]
    assert [label(band) for band in bands("en")] == ["1", "2", "3-4", "5-6", "7-9"]
    covered = [distance for band in bands("de") for distance in band]
    assert covered == list(range(1, LENGTHS.stop))


def test_known_pairs() -> None:
    """Pairs are a function of their number: a change needs another version of the stage."""
    assert PAIRS["de"][1] == Contrast(
        "Every farmer works although the farmer sleeps now.",
        "Jeder Landwirt arbeitet, obgleich der Bauer jetzt schläft.",
        "Jeder Landwirt arbeitet, obgleich der Bauer jetzt schlafen.",
        2,
    )
    assert PAIRS["en"][4].wrong.endswith(
        "the famous guest who brought along the small bags listen to these famous teachers at the weekend."
    )
    assert PAIRS["en"][4].distance == 7


def test_no_english_verb_whose_wrong_form_is_its_past() -> None:
    """A form such as "read" would be correct as a past."""
    assert not any(changed(pair)[1:] in (("reads", "read"), ("read", "reads")) for pair in PAIRS["en"])
