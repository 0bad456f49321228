"""Filters: each dropped pair has a reason, and the numbers of the ledger add up."""

import unicodedata
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.corpus import Filters
from stages.corpus.filters import REASONS, SAMPLES, Cleaner, SeenPairs, comparison_keys, normalise

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SMALL_TEXT = st.text("aB ß.1", max_size=4)


def strings(*texts: str) -> pa.StringArray:
    return pa.array(texts, pa.string())


def pairs(*rows: tuple[str, str]) -> pa.Table:
    return pa.table([pa.array(side, pa.string()) for side in zip(*rows, strict=True)] if rows else [[], []], ["source", "target"])


def cleaner(*excluded: str, languages: tuple[str, str] = ("en", "de"), **filters: Any) -> Cleaner:
    return Cleaner(Filters(**filters), *languages, comparison_keys(strings(*excluded)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  two   words\t\n", "two words"),
        ("no-break\u00a0and\u3000wide\u2028line", "no-break and wide line"),
        ("bell\x07 and\x00 zero", "bell and zero"),
        ("a \x00 b", "a b"),
        ("e\u0301te\u0301", "été"),
        ("e\x00\u0301", "é"),
        ("\ufeffbyte order mark", "byte order mark"),
        ("space\u2581mark", "space mark"),
        ("\x1c\x85a\x1fb", "a b"),
        ("join\u200der stays", "join\u200der stays"),
        ("", ""),
        (" \u2003\t", ""),
    ],
)
def test_normal_form(text: str, expected: str) -> None:
    assert normalise(strings(text)).to_pylist() == [expected]


@settings(max_examples=300)
@given(st.lists(TEXT, min_size=1, max_size=4))
def test_normal_form_agrees_with_the_reference(texts: list[str]) -> None:
    def obvious(text: str) -> str:
        text = "".join(c for c in text if c.isspace() or (unicodedata.category(c) != "Cc" and c != "\ufeff"))
        return " ".join(unicodedata.normalize("NFC", text).replace("\u2581", " ").split())

    once = normalise(strings(*texts))
    assert once.to_pylist() == [obvious(text) for text in texts]
    assert normalise(once).equals(once)


@pytest.mark.parametrize(
    ("filters", "pair", "reason"),
    [
        ({}, ("A man sleeps.", "Ein Mann schläft."), None),
        ({}, ("", "Ein Mann."), "empty"),
        ({}, ("A man.", ""), "empty"),
        ({"min_length": 2}, ("One", "Eins zwei"), "length"),
        ({"min_length": 2}, ("One two", "Eins zwei"), None),
        ({"max_length": 3}, ("one two three four", "eins zwei"), "length"),
        ({"max_length": 3}, ("one two three", "eins zwei drei"), None),
        ({"max_ratio": 2.0}, ("abcd", "abcdefghi"), "ratio"),
        ({"max_ratio": 2.0}, ("abcd", "abcdefgh"), None),
        ({"max_ratio": 2.0}, ("über" * 2, "ub" * 2), None),
        ({"max_ratio": 1.0, "ratio": "target"}, ("a long document" * 20, "short"), None),
        ({"max_ratio": 1.0, "ratio": "target"}, ("as long as", "this is it"), None),
        ({"max_ratio": 1.0, "ratio": "target"}, ("a document", "more than it"), "ratio"),
        ({"max_ratio": 1.0, "ratio": "target"}, ("a document", ""), "empty"),
        ({"min_letters": 0.5}, ("ab 12", "gut so"), None),
        ({"min_letters": 0.5}, ("ab 123", "gut so"), "letters"),
        ({"min_letters": 0.5}, ("gut so", "- ! ? x"), "letters"),
        ({"min_letters": 1.0}, ("हिन्दी में", "auf Hindi"), None),
        ({}, ("Same text", "Same text"), "identical"),
        ({}, ("Same text", "same text"), None),
        ({"drop_identical": False}, ("Same text", "Same text"), None),
        ({}, ("It is: a TEST!", "anders"), "overlap"),
        ({}, ("anders", "it is a test"), "overlap"),
        ({}, ("Die STRASSE ist lang", "etwas anderes"), "overlap"),
        ({}, ("it is a testament", "anders gesagt hier"), None),
    ],
)
def test_reasons(filters: dict[str, Any], pair: tuple[str, str], reason: str | None) -> None:
    books = cleaner("it is a test", "die Straße ist lang.", **filters)
    kept = [table.to_pylist() for table in books.clean([pairs(pair)])]
    assert {name: count for name, count in books.ledger.dropped.items() if count} == ({reason: 1} if reason else {})
    assert kept == ([[]] if reason else [[{"source": pair[0], "target": pair[1]}]])


def test_lengths_are_in_characters_for_languages_without_spaces() -> None:
    pair = ("I like it very much", "我非常喜欢它")
    assert next(iter(cleaner(languages=("en", "zh"), min_length=5, max_ratio=4.0).clean([pairs(pair)]))).num_rows == 1
    assert next(iter(cleaner(languages=("en", "de"), min_length=5, max_ratio=4.0).clean([pairs(pair)]))).num_rows == 0


def test_the_ratio_is_relative_to_the_median_of_the_text() -> None:
    english, chinese = "a sentence of some thirty letters", "\u53e5\u5b50" * 4  # a quarter of the characters
    rows = [(f"{english} {number}", f"{chinese}{number}") for number in range(1000)]
    unequal = [(english, chinese * 4), (english * 4, chinese)]  # four times the usual ratio, and a quarter of it
    books = cleaner(languages=("en", "zh"), max_ratio=3.0)
    kept = pa.concat_tables(books.clean([pairs(*rows[:600]), pairs(*rows[600:], *unequal)]))
    assert kept.to_pylist() == pairs(*rows).to_pylist()
    assert books.ledger.dropped["ratio"] == 2
    assert 0.2 < books.ledger.usual_ratio < 0.35


def test_a_few_pairs_have_no_usual_ratio() -> None:
    books = cleaner(max_ratio=3.0)
    list(books.clean([pairs(*[(f"some words and {n} more of them", f"few {n}") for n in range(100, 500)])]))
    assert (books.ledger.usual_ratio, books.ledger.dropped["ratio"]) == (1.0, 400)


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("Hello, world!", "hello world", True),
        ("HELLO world", "“hello” – world…", True),
        ("E-Mail", "email", True),
        ("Ⅻ", "ⅻ", True),
        ("Straße", "STRASSE", True),
        ("ΟΔΥΣΣΕΥΣ", "Οδυσσευς", True),
        ("e\u0301", "É", True),
        ("room 12", "room 13", False),
        ("haben", "häben", False),
        ("...", "!", False),
        ("...", "...", True),
        ("हिन्दी", "हिन्द", False),
    ],
)
def test_equal_comparison_keys(one: str, other: str, equal: bool) -> None:
    first, second = comparison_keys(normalise(strings(one, other))).to_pylist()
    assert (first == second) is equal


def test_keys_ignore_the_case_of_every_letter() -> None:
    letters = [chr(code) for code in range(0x250) if chr(code).isalpha()] + [chr(code) for code in range(0x370, 0x590)]
    letters = [c for c in letters if unicodedata.normalize("NFC", c) == c and c.isalpha()]
    plain, upper, folded = (comparison_keys(normalise(strings(*(f(c) for c in letters)))) for f in (str, str.upper, str.casefold))
    assert [c for c, a, b in zip(letters, plain.to_pylist(), folded.to_pylist(), strict=True) if a != b] == []
    # The dotless i is the one letter whose capital folds to another letter.
    assert [c for c, a, b in zip(letters, plain.to_pylist(), upper.to_pylist(), strict=True) if a != b] in ([], ["ı"])


@settings(max_examples=200)
@given(
    rows=st.lists(st.tuples(SMALL_TEXT, SMALL_TEXT), min_size=1, max_size=40),
    excluded=st.lists(SMALL_TEXT, max_size=3),
    cut=st.integers(1, 40),
)
def test_the_ledger_adds_up_and_kept_pairs_are_clean(rows: list[tuple[str, str]], excluded: list[str], cut: int) -> None:
    rows = [tuple(normalise(strings(*row)).to_pylist()) for row in rows]
    books = cleaner(*normalise(strings(*excluded)).to_pylist(), min_letters=0.3)
    tables = [pairs(*rows[start : start + cut]) for start in range(0, len(rows), cut)]
    kept = [(row["source"], row["target"]) for table in books.clean(tables) for row in table.to_pylist()]
    ledger = books.ledger
    assert ledger.pairs_in == len(rows)
    assert ledger.pairs_out == len(kept)
    assert ledger.pairs_in == ledger.pairs_out + sum(ledger.dropped.values())
    assert set(ledger.dropped) == set(REASONS)
    assert len(kept) == len(set(kept))
    forbidden = set(books.excluded.to_pylist())
    assert not forbidden & {key for side in zip(*kept, strict=True) for key in comparison_keys(strings(*side)).to_pylist()}
    for reason, samples in ledger.samples.items():
        assert len(samples) == min(SAMPLES, ledger.dropped[reason])
        assert all(rows[sample["pair"] - 1] == (sample["source"], sample["target"]) for sample in samples)
    order = iter(rows)
    assert all(any(row == other for other in order) for row in kept), "kept pairs stand in another order"


def test_samples_are_the_first_ones() -> None:
    books = cleaner()
    list(books.clean([pairs(*[("", f"x{i}") for i in range(3)]), pairs(*[("", f"x{i}") for i in range(3, 9)])]))
    assert [sample["target"] for sample in books.ledger.samples["empty"]] == [f"x{i}" for i in range(SAMPLES)]
    assert [sample["pair"] for sample in books.ledger.samples["empty"]] == [1, 2, 3, 4, 5]


@given(st.lists(st.lists(st.integers(0, 30), max_size=20), max_size=20))
def test_first_occurrences_agree_with_a_set(batches: list[list[int]]) -> None:
    seen, known = SeenPairs(), set[int]()
    for batch in batches:
        expected = []
        for number in batch:
            expected.append(number not in known)
            known.add(number)
        mask = seen.first_time([str(number) for number in batch], ["x"] * len(batch))
        assert mask.tolist() == expected
    sizes = [len(level) for level in seen.levels]
    assert sum(sizes) == len(known)
    assert all(larger >= 2 * smaller for larger, smaller in pairwise(sizes))
    assert all((np.diff(level.astype(object)) > 0).all() for level in seen.levels)


def test_pairs_with_equal_concatenations_differ() -> None:
    assert SeenPairs().first_time(["a b", "a"], ["c", "b c"]).all()
