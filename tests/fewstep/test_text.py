"""Text of the runtime: normalisation, sentences, repetitions, escapes and vocabularies."""

from __future__ import annotations

import logging
import random
import sys
import types
import unicodedata
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fewstep
import fewstep.__main__ as runtime
import pipeline.__main__ as application
from fewstep.families.stepwise.decoder import deduplicate
from fewstep.text import sentences
from fewstep.text.escape import escaped, log_to_stderr
from fewstep.text.normalise import MAX_MARKS, nfc, normalise
from fewstep.text.sentences import split, unsplit
from fewstep.vocabulary import clean
from pipeline.commands import translate
from pipeline.errors import DataError
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


# ---- texts are split into sentences and joined again, without a loss


LETTERS = "\ud800aB1. !?,。！？…।؟։:;\"'“”„«»()[]\n\r\t\v\x1c\x85\u00a0\u3000\u2028\u2029\u200b\u0301\x00😀漢M"


def rebuilt(text: str, language: str = "en") -> str:
    found = split(text, language)
    return "".join(part for pair in zip(found.sentences, [*found.gaps, ""], strict=False) for part in pair)


@given(text=st.text(LETTERS, max_size=60), language=st.sampled_from(["en", "de", "fr", "ja", "zh", "hi", "ar", "xx"]))
def test_sentences_and_gaps_are_the_text(text: str, language: str) -> None:
    found = split(text, language)
    assert rebuilt(text, language) == text.strip()
    assert all(one and one == one.strip() for one in found.sentences)
    assert not any(gap.strip() for gap in found.gaps)
    assert not any(len(one.splitlines()) > 1 for one in found.sentences), "the end of a line ends a sentence"


@given(text=st.text(LETTERS, max_size=60), window=st.integers(1, 20))
def test_windows_lose_nothing(text: str, window: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sentences, "WINDOW", window)
        assert rebuilt(text) == text.strip()


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("en", ["Dr. Smith paid 3.50 at 5 p.m. in the U.S. office.", "Did he?", "Yes!"]),
        ("de", ["Die 3. Auflage erschien z.B. in Bonn.", "Sie kostet 5 Euro.", "Wer kauft sie?"]),
        ("fr", ["J'ai vu M. Dupont.", "Il va bien\u00a0!", "Et vous\u00a0?"]),
        ("es", ["El Sr. López vive aquí.", "¿Dónde está?", "¡Hola!"]),
        ("ja", ["吾輩は猫である。", "名前はまだ無い。"]),
        ("zh-Hans", ["你好。", "我是学生！", "你呢？"]),
        ("hi", ["मैं घर गया।", "वह आया।"]),
        ("ru", ["Это Москва.", "Он пришёл."]),
        ("tlh", ["One of no known language.", "Another one."]),
    ],
)
def test_languages_have_rules(language: str, expected: list[str]) -> None:
    gap = "" if language in ("ja", "zh-Hans") else " "
    found = split(gap.join(expected), language)
    assert found.sentences == expected
    assert found.gaps == [gap] * (len(expected) - 1)


def test_long_sentences_stay_whole() -> None:
    long = "word " * 3000 + "end."
    assert split(f"First. {long} Last.", "en").sentences == ["First.", long, "Last."]
    assert split("x" * 5000, "en").sentences == ["x" * 5000]
    many = [f"Sentence number {number}." for number in range(1000)]
    assert split(" ".join(many), "en").sentences == many


def test_outputs_are_joined_as_the_text_was() -> None:
    found = split("  One.  Two!\n\n\tThree?\r\n", "en")
    assert found.join(["EINS.", "ZWEI!", "DREI?"], "de") == "EINS.  ZWEI!\n\n\tDREI?"
    assert found.join(["EINS.", "", "DREI?"], "de") == "EINS.  \n\n\tDREI?"
    assert split("你好。我来了。", "zh").join(["Hello.", "I came."], "en") == "Hello. I came."
    assert split("Hello. I came.\nBye.", "en").join(["你好。", "我来了。", "再见。"], "zh_CN") == "你好。我来了。\n再见。"
    assert unsplit(" One. Two. ").join(["EINS. ZWEI."], "de") == "EINS. ZWEI."
    assert split(" \n\t ", "en") == ([], [])
    assert split("", "en").join([], "de") == ""


def test_a_defect_of_the_library_leaves_the_text_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        pass

    def fail(language: str, text: str) -> list[str]:
        raise PanicException("index out of bounds")

    monkeypatch.setitem(sys.modules, "sentencex", types.SimpleNamespace(segment=fail))
    assert split("One. Two.\nThree.", "en").sentences == ["One. Two.", "Three."]


# ---- deduplicate


FEW = st.lists(st.integers(7, 9), max_size=24)
"""Sentences over three tokens, which have many repetitions."""


def repeats(ids, longest=4):
    return [
        (start, width)
        for width in range(1, longest + 1)
        for start in range(len(ids) - 2 * width + 1)
        if ids[start : start + width] == ids[start + width : start + 2 * width]
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("a", "a"),
        ("aa", "a"),
        ("aaaaa", "a"),
        ("abab", "ab"),
        ("abcabcabc", "abc"),
        ("abcdabcde", "abcde"),
        ("abcdeabcde", "abcdeabcde"),  # five tokens are left alone
        ("abba", "aba"),
        ("xabbabcx", "xabcx"),  # the deletion makes ab and ab adjacent
        ("aabaab", "ab"),
        ("abcbcbd", "abcbd"),
        ("abacab", "abacab"),
    ],
)
def test_known_repetitions(text, expected):
    assert "".join(deduplicate(text)) == expected


@given(FEW)
def test_no_adjacent_repetition_is_left_and_the_second_time_changes_nothing(ids):
    clean = deduplicate(ids)
    assert not repeats(clean)
    assert deduplicate(clean) == clean


@given(FEW, st.integers(0, 5))
def test_only_what_repeats_is_touched(ids, longest):
    kept = deduplicate(ids, longest)
    assert not repeats(kept, longest)
    if not repeats(ids, longest):
        assert kept == ids
    rest = iter(ids)
    assert all(token in rest for token in kept), "not a part of it in its order"
    assert set(kept) == set(ids)
    assert kept[:1] == ids[:1]


@given(FEW)
def test_the_argument_stays_as_it_was(ids):
    before = list(ids)
    deduplicate(ids)
    assert ids == before


# ---- foreign text does nothing but show


ATTACK = "\x1b]0;owned\x07\x1b[2J\u202eevil\x9b31m\r"


@given(st.text())
def test_what_is_escaped_shows_and_is_reversible(text: str) -> None:
    found = escaped(text)
    assert all(letter in "\n\t" or ord(letter) > 0x9F or 0x20 <= ord(letter) < 0x7F for letter in found)
    assert "\\" in text or found.encode("latin-1", "backslashreplace").decode("unicode_escape") == text


def test_ordinary_text_stays() -> None:
    text = "schön\t漢字 😀 नमस्ते a\u200db\n"
    assert escaped(text) == text


def test_errors_and_warnings_begin_no_command_of_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        logging.getLogger("fewstep").warning("a name: %s", ATTACK)
        raise DataError(f"a name: {ATTACK}")

    for handler in list(logging.root.handlers):
        monkeypatch.setattr(logging.root, "handlers", [one for one in logging.root.handlers if one is not handler])
    log_to_stderr()
    monkeypatch.setattr(translate, "translate_files", fail)
    monkeypatch.setattr(translate, "system_directory", lambda *_: None)
    assert application.main(["translate", "x"]) == 2
    assert runtime.main(["translate", f"nowhere{ATTACK}"]) == 2
    assert runtime.main(["serve", f"nowhere{ATTACK}"]) == 2
    error = capsys.readouterr().err
    assert error.count("\\x1b[2J\\u202eevil\\x9b31m\\r") == 4
    assert not set(error) & set(ATTACK) & {"\x1b", "\x07", "\x9b", "\r", "\u202e"}


# ---- lines are normalised in time that does not depend on their combining marks, and unknown pieces are named


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
    (found,) = normalise_array(pa.array([line])).to_pylist()
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
