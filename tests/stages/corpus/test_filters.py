"""Filters: each dropped pair has a reason, and the numbers of the ledger add up."""

import unicodedata
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.corpus import Filters
from stages.corpus.filters import Cleaner, comparison_keys
from stages.corpus.ledger import SAMPLES, Ledger
from stages.corpus.length_ratio import usual_ratio
from stages.shared.text.normalise import normalise

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SMALL_TEXT = st.text("aB ß.1", max_size=4)


def strings(*texts: str) -> pa.StringArray:
    return pa.array(texts, pa.string())


def pairs(*rows: tuple[str, str]) -> pa.Table:
    return pa.table([pa.array(side, pa.string()) for side in zip(*rows, strict=True)] if rows else [[], []], ["source", "target"])


def clean(
    *tables: pa.Table,
    excluded: tuple[str, ...] = (),
    languages: tuple[str, str] = ("en", "de"),
    usual: float | None = None,
    **filters: Any,
) -> tuple[Ledger, list[tuple[str, str]]]:
    """Return the ledger of a text and the pairs that are left. `usual` replaces the text's own ratio of lengths."""
    ratio = usual_ratio(tables) if usual is None else usual
    cleaner = Cleaner(Filters(**filters), *languages, comparison_keys(strings(*excluded)), ratio)
    ledger, kept = Ledger(), list[tuple[str, str]]()
    for table in tables:
        mask = ledger.enter(table, cleaner.masks(table), ledger.pairs_in)
        kept += [(row["source"], row["target"]) for row in table.filter(pa.array(mask)).to_pylist()]
    return ledger, kept


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
    ledger, kept = clean(pairs(pair), excluded=("it is a test", "die Straße ist lang."), usual=1.0, **filters)
    assert {name: count for name, count in ledger.dropped.items() if count} == ({reason: 1} if reason else {})
    assert kept == ([] if reason else [pair])


def test_lengths_are_in_characters_for_languages_without_spaces() -> None:
    pair = ("I like it very much", "我非常喜欢它")
    for language in ("zh", "zh_CN", "zho"):
        assert clean(pairs(pair), languages=("en", language), min_length=5, max_ratio=4.0)[1] == [pair]
    assert clean(pairs(pair), languages=("en", "de"), min_length=5, max_ratio=4.0)[1] == []


def test_the_ratio_is_relative_to_the_median_of_the_text() -> None:
    english, chinese = "a sentence of some thirty letters", "\u53e5\u5b50" * 4  # a quarter of the characters
    rows = [(f"{english} {number}", f"{chinese}{number}") for number in range(1000)]
    unequal = [(english, chinese * 4), (english * 4, chinese)]  # four times the usual ratio, and a quarter of it
    tables = (pairs(*rows[:600]), pairs(*rows[600:], *unequal))
    ledger, kept = clean(*tables, languages=("en", "zh"), max_ratio=3.0)
    assert kept == rows
    assert ledger.dropped["ratio"] == 2
    assert 0.2 < usual_ratio(tables) < 0.35


@pytest.mark.parametrize("count", [1, 40])
def test_a_few_pairs_in_two_scripts_are_kept(count: int) -> None:
    rows = [(f"some words and {n} more of them", f"{n}" + "\u53e5\u5b50" * 3) for n in range(100, 100 + count)]
    assert clean(pairs(*rows), languages=("en", "zh"), max_ratio=3.0)[1] == rows


def test_words_without_end_are_dropped() -> None:
    good, word = ("A link: " + "x" * 1000, "Ein Verweis"), "x" * 1001
    ledger, kept = clean(pairs(good, (f"A key {word}", f"Ein Wort {word}!")), max_ratio=200.0, min_letters=0.1, usual=1.0)
    assert (ledger.dropped["word"], kept) == (1, [good])
    japanese = ("A document. " * 60, "\u53e5" * 1500)
    assert clean(pairs(japanese), languages=("en", "ja"), max_length=2000)[1] == [japanese]


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


def test_samples_are_the_first_ones() -> None:
    ledger, _ = clean(pairs(*[("", f"x{i}") for i in range(3)]), pairs(*[("", f"x{i}") for i in range(3, 9)]))
    assert [sample["target"] for sample in ledger.samples["empty"]] == [f"x{i}" for i in range(SAMPLES)]
    assert [sample["pair"] for sample in ledger.samples["empty"]] == [1, 2, 3, 4, 5]


@given(st.permutations(range(6)))
def test_ledgers_of_parts_add_up_in_any_order(order: list[int]) -> None:
    rows = [("" if i % 2 else "one of the words", f"eines {i}") for i in range(30)]
    tables = [pairs(*rows[start : start + 5]) for start in range(0, 30, 5)]
    cleaner, whole = Cleaner(Filters(), "en", "de", comparison_keys(strings()), 1.0), Ledger()
    for number in order:
        part = Ledger()
        part.enter(tables[number], cleaner.masks(tables[number]), 5 * number)
        whole.add(part)
    assert whole == clean(*tables)[0]
