"""Text that is split into tokens already."""

import pyarrow as pa
import pytest

from fewstep.text.subwords import join_subwords
from stages.corpus.split_text import check_split
from stages.errors import DataError

NAMES = {"source": "train.en", "target": "train.de"}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("\u2581the \u2581cat", "tokens separated by spaces, without the mark \u2581 of SentencePiece"),
        ("a b un@@", "a whole word at the end of a line, without @@"),
        ("a b un@@ ", "a whole word at the end of a line, without @@"),
        ("@@", "a whole word at the end of a line, without @@"),
    ],
)
def test_other_text_is_refused_by_file_pair_and_side(line: str, expected: str) -> None:
    good = pa.table({"source": ["a@@ b", "c"], "target": ["a @@ b", ""]})
    check_split(good, 0, NAMES.__getitem__)
    bad = pa.table({"source": ["a@@ b", "c"], "target": ["a", line]})
    with pytest.raises(DataError) as raised:
        check_split(bad, 10, NAMES.__getitem__)
    assert str(raised.value).startswith(f"train.de, pair 12 (target): expected {expected}, got {line.rstrip()!r}; ")


@pytest.mark.parametrize(
    ("text", "joined"),
    [("un@@ like@@ ly .", "unlikely ."), ("a @@ b", "a b"), ("cut of@@", "cut of"), ("a@@b c", "a@@b c"), ("", "")],
)
def test_subwords_are_joined(text: str, joined: str) -> None:
    assert join_subwords(text) == joined
