"""Texts are split into sentences and joined again, without a loss."""

import sys
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewstep.text import sentences
from fewstep.text.sentences import split, unsplit

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
