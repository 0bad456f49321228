"""Lines are normalised in time that does not depend on their combining marks, and unknown pieces are named."""

import random
import unicodedata
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fewstep
from fewstep.text.normalise import MAX_MARKS, nfc
from fewstep.vocabulary import clean
from stages.shared.normalise import normalise

MARKS = "\u0301\u0316\u0327\u0345\u093c\u05b0\U0001d16d"
"""Combining marks of different classes."""


@given(st.text(f"aé한{MARKS}-\u200d 😀\u0903", max_size=80))
def test_text_without_long_runs_is_in_nfc(text: str) -> None:
    assert nfc(text) == unicodedata.normalize("NFC", text)


def test_long_runs_of_marks_are_parted_and_kept() -> None:
    rng = random.Random(1)
    marks = "".join(rng.choice(MARKS) for _ in range(10 * MAX_MARKS + 7))
    found = nfc(f"x{marks}y")
    assert found.count("\u034f") == 10
    assert sorted(found.replace("\u034f", "")) == sorted(f"x{marks}y")
    assert max(map(len, found.split("\u034f"))) <= MAX_MARKS + 1
    assert nfc(found) == found


def test_half_a_million_marks_in_the_worst_order_are_normalised() -> None:
    """Their canonical order takes minutes where it is made at once."""
    line = "a" + "\u0301\u0316" * 250_000
    assert len(clean(line, 1)) == pytest.approx(len(line), rel=0.05)
    (found,) = normalise(pa.array([line])).to_pylist()
    assert found == clean(line, 1), "one rule for training text and requests"


def test_a_surrogate_is_one_replacement_and_a_pair_is_its_character() -> None:
    assert clean("a\ud800b\ud83d\ude00", 1) == "a\ufffdb😀"


def test_what_a_system_did_not_read_is_reported(systems: dict[str, Path]) -> None:
    system = fewstep.load(systems["autoregressive"])
    text = f"ein hund läuft. drei ☃ hund ☃ 漢 ein\ufffd\ud800\n\n{'ein ' * 30}"
    (((found, *_), blank),) = [system.hypotheses([text, " "], 1)]
    assert (found.sentences, found.replaced) == (3, 2)
    assert found.cut == len(system.source_pieces.encode("ein " * 30)) - system.max_source_tokens
    assert {"☃", "漢"} <= set("".join(found.unknown))
    assert len(set(found.unknown)) == len(found.unknown)
    assert blank == [fewstep.Translation("", 0.0, 0, {}, sentences=0)]
    parts = [system.hypotheses([part], 1, one_sentence_per_line=True)[0][0] for part in text.replace(". ", ".\n\n").split("\n\n")]
    assert [part.sentences for part in parts] == [1, 1, 1]
    assert found.text == f"{parts[0].text} {parts[1].text}\n\n{parts[2].text}"
    assert (found.score, found.steps) == (sum(part.score for part in parts), sum(part.steps for part in parts))
    assert found.statistics["margin"] == min(part.statistics["margin"] for part in parts)
    assert system.translate([text], one_sentence_per_line=True) != system.translate([text])


def test_long_sentences_are_refused_on_request(systems: dict[str, Path]) -> None:
    system = fewstep.load(systems["autoregressive"])
    with pytest.raises(ValueError, match=r"^line 8: expected sentences of at most 23 tokens, got 30 \('ein ein"):
        system.translate(["ein", f"hund.\n{'ein ' * 30}"], first_line=7, refuse_long=True)
    assert len(system.translate([f"hund.\n{'ein ' * 30}"])) == 1


def test_counts_of_drafts_are_added_over_sentences(systems: dict[str, Path]) -> None:
    system = fewstep.load(systems["head"])
    lines = ["ein hund läuft", "zwei katze springt schnell blau"]
    parts = [ranked[0].statistics for ranked in system.hypotheses(lines, 1, "gad")]
    ((found,),) = system.hypotheses(["\n".join(lines)], 1, "gad")
    assert found.statistics["drafted"] == sum(part["drafted"] for part in parts)
    assert sum(found.statistics["proposed_at"]) == sum(sum(part["proposed_at"]) for part in parts)


def test_ranks_of_several_sentences_are_joined(systems: dict[str, Path]) -> None:
    system = fewstep.load(systems["autoregressive"])
    ranked = [system.hypotheses([line], 3, "beam")[0] for line in ("ein hund", "drei")]
    (found,) = system.hypotheses(["ein hund\ndrei"], 3, "beam")
    assert [one.text for one in found] == [f"{one.text}\n{other.text}" for one, other in zip(*ranked, strict=True)]
