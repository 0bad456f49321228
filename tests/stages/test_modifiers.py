"""Modifiers of training pairs."""

import pytest

from fewstep.text.placeholders import placeholders
from stages.encode.modifiers import INSERTED, Modifiers, modified

PAIR = ("A man reads a good book.", "Ein Mann liest ein gutes Buch.")


def all_of(name: str, pair: tuple[str, str] = PAIR, pairs: int = 200) -> list[tuple[str, str]]:
    return [modified(Modifiers(**{name: 1.0}), number, *pair) for number in range(pairs)]


def test_case_and_punctuation_change_both_sides() -> None:
    assert set(all_of("upper_case")) == {("A MAN READS A GOOD BOOK.", "EIN MANN LIEST EIN GUTES BUCH.")}
    assert set(all_of("title_case", ("it's o'clock", "es ist ärgerlich"))) == {("It's O'clock", "Es Ist Ärgerlich")}
    assert set(all_of("remove_end_punctuation")) == {("A man reads a good book", "Ein Mann liest ein gutes Buch")}
    for kept in (("Hi!", "Hallo"), ("...", "..."), ("Hi", "Hallo")):
        assert set(all_of("remove_end_punctuation", kept)) == {kept}


def test_typos_change_one_word_in_ten_of_the_source_alone() -> None:
    words = " ".join("lettersabc" if number % 2 else "letters" for number in range(20))
    found = all_of("typos", (words, "ziel"))
    assert {target for _, target in found} == {"ziel"}
    for source, _ in found:
        differing = [new for new, old in zip(source.split(), words.split(), strict=True) if new != old]
        assert len(differing) <= 2, "a letter may be exchanged with an equal one"
    assert sum(source != words for source, _ in found) > 150
    assert {len(source) - len(words) for source, _ in found} == {-2, -1, 0, 1, 2}
    assert set(all_of("typos", ("a 12345 b", "x"))) == {("a 12345 b", "x")}, "no word with letters to mistype"


def test_a_placeholder_is_on_both_sides() -> None:
    found = all_of("placeholders")
    assert {text for text in INSERTED for pair in found if all(text in side for side in pair)} == set(INSERTED)
    for source, target in found:
        (one,) = placeholders(source)
        assert target in (f"{one[0]} {PAIR[1]}", f"{PAIR[1]} {one[0]}")
        assert source.replace(one[0], "").strip() == PAIR[0]


def test_shares_are_those_of_the_config_and_repeat() -> None:
    modifiers = Modifiers(upper_case=0.2, remove_end_punctuation=0.1)
    found = [modified(modifiers, number, *PAIR) for number in range(3000)]
    assert found == [modified(modifiers, number, *PAIR) for number in range(3000)]
    shares = [sum(pair[0] == text for pair in found) / 3000 for text in (PAIR[0].upper(), PAIR[0][:-1], PAIR[0])]
    assert shares == pytest.approx([0.2, 0.1, 0.7], abs=0.03)
