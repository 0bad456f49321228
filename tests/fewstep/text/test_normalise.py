from __future__ import annotations

import unicodedata

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewstep.text.normalise import normalise
from stages.shared.normalise import normalise as normalise_array

SPECIAL = (
    "a \u00a0\u202f\u00ad\u200b\u200c\u200d\u200e\u2060\u2066\ufeff\u2028\u3000\u2581\u0301\u0308e\u1100\u1161ب\u0915"
    "\u094d\u2000\t\x00\x85\N{WOMAN}"
)
texts = st.text(st.one_of(st.sampled_from(SPECIAL), st.characters(exclude_categories=["Cs"])), max_size=12)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Tu viens\u202f? Oui\u00a0!", "Tu viens\u202f? Oui\u00a0!"),
        ("a\u00a0\u00a0b", "a\u00a0b"),
        ("a \u00a0b\u202f\tc", "a b c"),
        ("\u00a0a\u202f", "a"),
        ("re\u00adads a bo\u2060ok\u200b", "reads a book"),
        ("\u200e\u202aA man\u202c\u2066.\u2069", "A man."),
        ("Auf\u200clage bo\u200dok", "Auflage book"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("\u0915\u094d\u200d\u0937", "\u0915\u094d\u200d\u0937"),
        ("\N{WOMAN}\u200d\N{PERSONAL COMPUTER}", "\N{WOMAN}\u200d\N{PERSONAL COMPUTER}"),
        ("e\u00ad\u0301", "\u00e9"),
        ("a\u2028b\u2029c\x85d\u3000e", "a b c d e"),
        ("a\x00b\x1fc\ufeff", "ab c"),
        ("  two   words\t\n", "two words"),
        ("a \x00 b", "a b"),
        ("e\x00\u0301", "\u00e9"),
        (" \u2003\t", ""),
        ("\u2581a\u2581\u2581b", "a b"),
    ],
)
def test_the_rule(text: str, expected: str) -> None:
    assert normalise(text) == expected


@given(texts)
def test_normalisation_is_idempotent_and_composed(text: str) -> None:
    once = normalise(text)
    assert normalise(once) == once
    assert unicodedata.is_normalized("NFC", once)
    assert not set(once) & set("\u00ad\u200b\u200e\u2060\ufeff\n\t\u2028\u2581")


@given(st.lists(texts, max_size=4))
def test_arrays_are_normalised_as_single_texts(lines: list[str]) -> None:
    assert normalise_array(pa.array(lines, pa.string())).to_pylist() == [normalise(line) for line in lines]
