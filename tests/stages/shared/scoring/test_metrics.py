from __future__ import annotations

from math import exp

import pytest

from stages.errors import DataError
from stages.shared.scoring.metrics import Comparison, reference_streams, score, split_compounds
from stages.shared.scoring.tokenizers import tokenizer_of

GERMAN = Comparison(language="de", tokenizer="13a", lowercase=False)


@pytest.mark.parametrize(
    ("language", "tokenizer"),
    [
        ("de", "13a"),
        ("zh", "zh"),
        ("zh-CN", "zh"),
        ("ZH_tw", "zh"),
        ("ja", "ja-mecab"),
        ("ko", "ko-mecab"),
        ("en", "13a"),
        ("yue", "zh"),
        ("th", "char"),
        ("km-KH", "char"),
        ("jpn", "ja-mecab"),
        ("zho_Hant", "zh"),
        ("deu", "13a"),
    ],
)
def test_the_tokeniser_follows_the_language(language: str, tokenizer: str) -> None:
    assert tokenizer_of(language) == tokenizer


def test_a_sentence_without_spaces_is_more_than_one_word() -> None:
    how = Comparison(language="th", tokenizer=tokenizer_of("th"), lowercase=False)
    for metric in ("bleu", "tokenized_bleu"):
        assert 60 < score(metric, ["ฉันชอบแมวดำ"], [["ฉันชอบแมวขาว"]], how)["score"] < 100


def test_bleu_by_hand() -> None:
    # hypothesis a b c d e f, reference a b c d e g: 5/6, 4/5, 3/4, 2/3 of the n-grams match, equal lengths
    result = score("bleu", ["a b c d e f"], [["a b c d e g"]], GERMAN)
    assert result["score"] == pytest.approx(100 * (5 / 6 * 4 / 5 * 3 / 4 * 2 / 3) ** 0.25, abs=1e-3)
    assert result["precisions"] == pytest.approx([83.3333, 80, 75, 66.6667])
    assert (result["hypothesis_length"], result["reference_length"], result["length_ratio"]) == (6, 6, 1.0)


def test_brevity_penalty_by_hand() -> None:
    # every n-gram of the five words matches; the reference has eight
    result = score("bleu", ["a b c d e"], [["a b c d e f g h"]], GERMAN)
    assert result["score"] == pytest.approx(100 * exp(1 - 8 / 5), abs=1e-3)
    assert result["brevity_penalty"] == pytest.approx(exp(1 - 8 / 5), abs=1e-4)


def test_ter_by_hand() -> None:
    # one substitution in four words; then one shift in five
    assert score("ter", ["a b c x"], [["a b c d"]], GERMAN)["score"] == 25.0
    assert score("ter", ["b c d e a"], [["a b c d e"]], GERMAN)["score"] == 20.0


def test_signatures_name_the_settings() -> None:
    lowered = Comparison(language="de", tokenizer="13a", lowercase=True)
    texts, references = ["Ein Haus am See ."], [["ein haus am see ."]]
    bleu = score("bleu", texts, references, lowered)
    assert bleu["score"] == 100.0
    assert "tok:13a" in bleu["signature"]
    assert "case:lc" in bleu["signature"]
    mixed = score("bleu", texts, references, GERMAN)
    assert mixed["score"] < 100.0
    assert "case:mixed" in mixed["signature"]
    assert "nw:2" in score("chrf", texts, references, GERMAN)["signature"]
    assert "case:mixed" in score("ter", texts, references, GERMAN)["signature"]
    assert "pre:moses-a" in score("tokenized_bleu", texts, references, GERMAN)["signature"]


def test_several_references_and_fewer_for_some_sentences() -> None:
    references = [["a b c d e", "v w x y z"], ["k l m n o"]]
    assert reference_streams(references) == [["a b c d e", "k l m n o"], ["v w x y z", None]]
    result = score("bleu", ["v w x y z", "k l m n o"], references, GERMAN)
    assert result["score"] == 100.0
    assert "nrefs:var" in result["signature"]


def test_tokenised_bleu_splits_hyphens_where_compound_split_splits_them_as_gnmt_did() -> None:
    assert split_compounds("rich-text format") == "rich ##AT##-##AT## text format"
    texts, references = ["the rich-text format works ."], [["the rich-text form works ."]]
    # the rich @-@ text format works .   7 tokens, of which 6 match
    for name in ("tokenized_bleu", "compound_split_bleu"):
        result = score(name, texts, references, GERMAN)
        assert result["hypothesis_length"] == 7, name
        assert result["precisions"][0] == pytest.approx(100 * 6 / 7, abs=1e-4), name
    assert score("bleu", ["rich-text a b c"], [["rich-text a b c"]], GERMAN)["hypothesis_length"] == 4


def test_tokenised_bleu_splits_words_as_moses_does() -> None:
    result = score("tokenized_bleu", ["Das Haus, am See."], [["Das Haus, am See."]], GERMAN)
    assert result["hypothesis_length"] == 6
    assert result["score"] == 100.0


def test_chinese_is_split_into_characters_in_every_metric() -> None:
    chinese = Comparison(language="zh", tokenizer="zh", lowercase=False)
    for name in ("bleu", "tokenized_bleu", "ter"):
        assert 0 < score(name, ["他在家里看书。"], [["她在家里看书。"]], chinese)["score"] < 100, name
    assert score("tokenized_bleu", ["他在家里看书。"], [["她在家里看书。"]], chinese)["hypothesis_length"] == 7


def test_a_missing_tokeniser_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_ja_mecab.MeCab", None)
    with pytest.raises(DataError, match=r'pip install "sacrebleu\[ja\]"'):
        score("bleu", ["a"], [["a"]], Comparison(language="ja", tokenizer="ja-mecab", lowercase=False))


def test_over_and_under_translation_use_the_words_of_bleu() -> None:
    # "Ja, ja, ja." is ja , ja , ja . to 13a
    lowered = Comparison(language="de", tokenizer="13a", lowercase=True)
    texts, references = ["Ja, ja, ja."], [["Ja, ja."]]
    over = score("otem", texts, references, lowered)
    assert over["score"] == pytest.approx(100 * exp(1 - 4 / 6) * (2 / 6 * 2 / 5) ** 0.5, abs=1e-3)
    assert over["signature"].startswith("nrefs:1|case:lc|tok:13a|order:2|smooth:none|version:")
    assert score("otem", texts, references, GERMAN)["score"] == pytest.approx(
        100 * exp(1 - 4 / 6) * (2 / 6 * 1 / 5) ** 0.5, abs=1e-3
    )  # Ja once; (, ja) once too often, but (ja ,) only once in all
    under = score("utem", ["a b c d"], [["a b c d e"], ["x"]][:1], GERMAN)
    assert under["score"] == pytest.approx(100 * exp(1 - 4 / 5) * (1 / 120) ** 0.25, abs=1e-3)
    assert "order:4" in under["signature"]
    assert "nrefs:var" in score("utem", ["a", "b"], [["a"], ["b", "c"]], GERMAN)["signature"]
