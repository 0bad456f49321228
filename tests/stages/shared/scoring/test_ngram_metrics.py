from __future__ import annotations

from math import exp, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.shared.scoring.ngram_metrics import head_and_tail, otem, utem

SENTENCES = st.lists(st.lists(st.sampled_from("abc"), max_size=7), min_size=1, max_size=4)


def words(text: str) -> list[str]:
    return text.split()


def alone(text: str) -> list[list[str]]:
    return [text.split()]


def test_otem_by_hand() -> None:
    # a is said once too often among three words; no pair is
    assert otem([words("a a b")], [alone("a b")]) == 0.0
    # y x y x y against x y: y two and x one too often of 5, (y x) once again and (x y) one too often of 4
    first = otem([words("y x y x y")], [alone("x y")])
    assert first == pytest.approx(exp(1 - 2 / 5) * sqrt(3 / 5 * 2 / 4))
    both = otem([words("a a b"), words("y x y x y")], [alone("a b"), alone("x y")])
    assert both == pytest.approx(exp(1 - 4 / 8) * sqrt(4 / 8 * 2 / 6))


def test_an_ngram_that_is_in_no_reference_may_occur_once() -> None:
    assert otem([words("q r s t")], [alone("a b")]) == 0.0
    assert otem([words("q r q r")], [alone("a b c d e")]) == pytest.approx(sqrt(2 / 4 * 1 / 3))  # shorter: no length penalty


def test_the_smallest_positive_excess_over_several_references_counts() -> None:
    # a: 4 times; 1 too many for the first reference, 3 for the second, none for the third
    hypothesis, references = words("a a a a"), [words("a a a x"), words("a x x x"), words("a a a a")]
    assert otem([hypothesis], [references]) == pytest.approx(sqrt(1 / 4 * 1 / 3))


def test_utem_by_hand() -> None:
    # of a b c d e: e, (d e), (c d e), (b c d e) are missing
    assert utem([words("a b c d")], [alone("a b c d e")]) == pytest.approx(exp(1 - 4 / 5) * (1 / 5 * 1 / 4 * 1 / 3 * 1 / 2) ** 0.25)
    assert utem([words("a b c d e f")], [alone("a b c d e")]) == 0.0
    # of the first: x, (a x), (x b), (a x b), (x b c) and both of four are missing; all of the second, which has more n-grams
    references = [words("a x b c d"), words("z z z z z z")]
    missing, totals = (1, 2, 2, 2), (6, 5, 4, 3)
    product = 1.0
    for part, total in zip(missing, totals, strict=True):
        product *= part / total
    assert utem([words("a b c d")], [references]) == pytest.approx(exp(1 - 4 / 5) * product**0.25)


def test_everything_is_missing_from_an_empty_hypothesis() -> None:
    assert utem([[]], [alone("a b c d")]) == pytest.approx(exp(1))
    assert otem([[]], [alone("a b")]) == 0.0
    assert utem([[]], [[[]]]) == otem([[]], [[[]]]) == 0.0


@given(SENTENCES)
def test_a_reference_has_neither_over_nor_under_translation(sentences: list[list[str]]) -> None:
    references = [[sentence] for sentence in sentences]
    assert otem(sentences, references) == utem(sentences, references) == 0.0


@given(SENTENCES, SENTENCES)
def test_both_are_bounded(hypotheses: list[list[str]], references: list[list[str]]) -> None:
    count = min(len(hypotheses), len(references))
    for metric in (otem, utem):
        assert 0.0 <= metric(hypotheses[:count], [[text] for text in references[:count]]) <= exp(1)


def test_precision_of_head_and_tail_by_hand() -> None:
    hypothesis = words("a b c d e x f g h i y z")
    reference = [*words("a b c d e f g h i"), *["w"] * 22]
    found = head_and_tail([hypothesis, words("short")], [[reference], [words("too short")]])
    assert (found["sentences"], found["longer_than"]) == (1, 30)
    one, four = found["precision"]["1"], found["precision"]["4"]
    assert one["all"] == 75.0
    assert one["first 5"] == 100.0
    assert one["first 10"] == 90.0
    assert one["last 5"] == 60.0
    assert one["last 15"] == one["first 15"] == one["all"]
    assert four["first 5"] == 100.0
    assert four["last 5"] == 0.0
    assert four["last 10"] == pytest.approx(100 / 7, abs=1e-4)  # f g h i of seven


def test_precision_is_clipped_by_the_largest_count_in_a_reference() -> None:
    references = [words("a b c"), words("a a d")]
    found = head_and_tail([words("a a a b")], [references], longer_than=2)
    assert found["precision"]["1"]["all"] == 75.0
    assert found["precision"]["4"]["all"] == 0.0


def test_without_long_sentences_there_is_no_precision() -> None:
    found = head_and_tail([words("a b")], [[words("a b")]], longer_than=2)
    assert found["sentences"] == 0
    assert set(found["precision"]["1"].values()) == {None}
