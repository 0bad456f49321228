"""ROUGE computed by hand, in English and other languages, with one and with several references."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.errors import DataError
from stages.shared.scoring.metrics import Comparison, score
from stages.shared.scoring.rouge import ROUGE, f_measures, sentences, tokens_name, tokens_of, words

TEXTS = st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=8).map(" ".join)


def rouge(metric: str, hypothesis: str, *references: str, language: str = "de", tokenizer: str = "13a") -> dict[str, Any]:
    return score(metric, [hypothesis], [references], Comparison(language=language, tokenizer=tokenizer, lowercase=False))


def test_by_hand() -> None:
    # 3 of 4 words of the hypothesis are among the 5 of the reference, and 1 of 3 pairs of words among 4
    hypothesis, reference = "a b x d", "d a b c e"
    assert rouge("rouge1", hypothesis, reference)["score"] == pytest.approx(100 * 2 * 3 / (4 + 5), abs=1e-4)
    assert rouge("rouge2", hypothesis, reference)["score"] == pytest.approx(100 * 2 * 1 / (3 + 4), abs=1e-4)
    # the longest common subsequence is a b
    assert rouge("rougeL", hypothesis, reference)["score"] == pytest.approx(100 * 2 * 2 / (4 + 5), abs=1e-4)


def longest_common(one: list[str], other: list[str]) -> int:
    if not one or not other:
        return 0
    if one[-1] == other[-1]:
        return longest_common(one[:-1], other[:-1]) + 1
    return max(longest_common(one[:-1], other), longest_common(one, other[:-1]))


@given(TEXTS, TEXTS)
def test_one_pair_agrees_with_brute_force(hypothesis: str, reference: str) -> None:
    one, other = hypothesis.split(), reference.split()
    for metric, n in (("rouge1", 1), ("rouge2", 2)):
        grams = [Counter(tuple(text[i : i + n]) for i in range(len(text) - n + 1)) for text in (one, other)]
        total = sum(grams[0].values()) + sum(grams[1].values())
        expected = 200 * sum((grams[0] & grams[1]).values()) / total if total else 0
        assert f_measures(metric, "words", [hypothesis], [[reference]]) == pytest.approx([expected])
    total = len(one) + len(other)
    expected = 200 * longest_common(one, other) / total if total else 0
    for metric in ("rougeL", "rougeLsum"):  # each is one sentence
        assert f_measures(metric, "words", [hypothesis], [[reference]]) == pytest.approx([expected])


def test_a_corpus_scores_the_mean_and_of_several_references_the_best_counts() -> None:
    how = Comparison(language="de", tokenizer="13a", lowercase=False)
    result = score("rougeL", ["a b", "c", ""], [["x y", "a b"], ["c d d"], ["a"]], how)
    assert result["score"] == pytest.approx((100 + 50 + 0) / 3, abs=1e-4)
    assert "nrefs:var" in result["signature"]


def test_english_words_are_stemmed_and_those_of_other_languages_keep_their_letters() -> None:
    assert rouge("rouge1", "The doctors walked.", "the doctor walks", language="en")["score"] == 100.0
    assert rouge("rouge1", "Die Ärzte", "die Arzt")["score"] == 50.0
    assert rouge("rouge1", "Grüße", "grüße")["score"] == 100.0
    assert rouge("rouge1", "schön", "schnell")["score"] == 0.0
    # (rouge-score itself knows only the letters a to z)
    assert words("schön, нет; हिन्दी n'a 3") == ["schön", "нет", "हिन्दी", "n", "a", "3"]
    assert rouge("rouge1", "нет", "да", language="ru")["score"] == 0.0


def test_the_order_of_sentences_does_not_matter_for_rougelsum() -> None:
    hypothesis, reference = "One two three. Four five six!", "Four five six. One two three."
    assert rouge("rougeLsum", hypothesis, reference, language="en")["score"] == 100.0
    assert rouge("rougeL", hypothesis, reference, language="en")["score"] == 50.0
    assert sentences("One. Two? 3.5 and more! 他在家。她不在。 End") == [
        "One.",
        "Two?",
        "3.5 and more!",
        "他在家。",
        "她不在。",
        "End",
    ]


def test_languages_without_spaces_take_sacrebleus_tokens() -> None:
    assert rouge("rouge1", "他在家", "她在家", language="zh", tokenizer="zh")["score"] == pytest.approx(100 * 2 / 3, abs=1e-4)
    assert rouge("rouge1", "ABC", "abd", language="th", tokenizer="char")["score"] == pytest.approx(100 * 2 / 3, abs=1e-4)


def test_signatures_name_the_settings() -> None:
    for metric in ROUGE:
        english, german = (rouge(metric, "a", "a", language=language)["signature"] for language in ("en-GB", "de"))
        assert english.startswith("nrefs:1|case:lc|tok:english|stem:porter|")
        assert german.startswith("nrefs:1|case:lc|tok:words|stem:no|")
        assert "rouge-score-0." in english
        assert ("sentences:" in english) == (metric == "rougeLsum")
        assert (tokens_of(english), tokens_of(german)) == ("english", "words")
    assert tokens_name("en", "char") == "char"


def test_a_missing_tokeniser_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_ja_mecab.MeCab", None)
    with pytest.raises(DataError, match=r'pip install "sacrebleu\[ja\]"'):
        rouge("rougeL", "a", "a", language="ja", tokenizer="ja-mecab")
