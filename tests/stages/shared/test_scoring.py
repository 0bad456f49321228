"""Metrics computed by hand: BLEU, TER, ROUGE, over- and under-translation, precision at the ends."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from math import exp, sqrt
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.errors import DataError, StageError
from stages.report.findings.significance import comparison_of
from stages.shared.scoring import kytea
from stages.shared.scoring.metrics import Comparison, decoded, reference_streams, score, split_compounds
from stages.shared.scoring.ngram_metrics import head_and_tail, otem, utem
from stages.shared.scoring.rouge import ROUGE, f_measures, sentences, tokens_name, tokens_of, words
from stages.shared.scoring.tokenizers import tokenizer_of

GERMAN = Comparison(language="de", tokenizer="13a", lowercase=False)


@pytest.mark.parametrize(
    ("language", "tokenizer"),
    [
        ("de", "13a"), ("zh", "zh"), ("zh-CN", "zh"), ("ZH_tw", "zh"), ("ja", "ja-mecab"), ("ko", "ko-mecab"), ("en", "13a"),
        ("yue", "zh"), ("th", "char"), ("km-KH", "char"), ("jpn", "ja-mecab"), ("zho_Hant", "zh"), ("deu", "13a"),
    ],
)  # fmt: skip
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


@pytest.mark.parametrize("metric", ["bleu", "rougeL"])
def test_a_missing_tokeniser_names_what_to_install(monkeypatch: pytest.MonkeyPatch, metric: str) -> None:
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_ja_mecab.MeCab", None)
    with pytest.raises(DataError, match=r'pip install "sacrebleu\[ja\]"'):
        score(metric, ["a"], [["a"]], Comparison(language="ja", tokenizer="ja-mecab", lowercase=False))


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
        "One.", "Two?", "3.5 and more!", "他在家。", "她不在。", "End",
    ]  # fmt: skip


def test_languages_without_spaces_take_sacrebleus_tokens() -> None:
    assert rouge("rouge1", "他在家", "她在家", language="zh", tokenizer="zh")["score"] == pytest.approx(100 * 2 / 3, abs=1e-4)
    assert rouge("rouge1", "ABC", "abd", language="th", tokenizer="char")["score"] == pytest.approx(100 * 2 / 3, abs=1e-4)


def test_signatures_of_rouge_name_the_settings() -> None:
    for metric in ROUGE:
        english, german = (rouge(metric, "a", "a", language=language)["signature"] for language in ("en-GB", "de"))
        assert english.startswith("nrefs:1|case:lc|tok:english|stem:porter|")
        assert german.startswith("nrefs:1|case:lc|tok:words|stem:no|")
        assert "rouge-score-0." in english
        assert ("sentences:" in english) == (metric == "rougeLsum")
        assert (tokens_of(english), tokens_of(german)) == ("english", "words")
    assert tokens_name("en", "char") == "char"


SENTENCES = st.lists(st.lists(st.sampled_from("abc"), max_size=7), min_size=1, max_size=4)


def split(text: str) -> list[str]:
    return text.split()


def alone(text: str) -> list[list[str]]:
    return [text.split()]


def test_otem_by_hand() -> None:
    # a is said once too often among three words; no pair is
    assert otem([split("a a b")], [alone("a b")]) == 0.0
    # y x y x y against x y: y two and x one too often of 5, (y x) once again and (x y) one too often of 4
    first = otem([split("y x y x y")], [alone("x y")])
    assert first == pytest.approx(exp(1 - 2 / 5) * sqrt(3 / 5 * 2 / 4))
    both = otem([split("a a b"), split("y x y x y")], [alone("a b"), alone("x y")])
    assert both == pytest.approx(exp(1 - 4 / 8) * sqrt(4 / 8 * 2 / 6))


def test_an_ngram_that_is_in_no_reference_may_occur_once() -> None:
    assert otem([split("q r s t")], [alone("a b")]) == 0.0
    assert otem([split("q r q r")], [alone("a b c d e")]) == pytest.approx(sqrt(2 / 4 * 1 / 3))  # shorter: no length penalty


def test_the_smallest_positive_excess_over_several_references_counts() -> None:
    # a: 4 times; 1 too many for the first reference, 3 for the second, none for the third
    hypothesis, references = split("a a a a"), [split("a a a x"), split("a x x x"), split("a a a a")]
    assert otem([hypothesis], [references]) == pytest.approx(sqrt(1 / 4 * 1 / 3))


def test_utem_by_hand() -> None:
    # of a b c d e: e, (d e), (c d e), (b c d e) are missing
    assert utem([split("a b c d")], [alone("a b c d e")]) == pytest.approx(exp(1 - 4 / 5) * (1 / 5 * 1 / 4 * 1 / 3 * 1 / 2) ** 0.25)
    assert utem([split("a b c d e f")], [alone("a b c d e")]) == 0.0
    # of the first: x, (a x), (x b), (a x b), (x b c) and both of four are missing; all of the second, which has more n-grams
    references = [split("a x b c d"), split("z z z z z z")]
    missing, totals = (1, 2, 2, 2), (6, 5, 4, 3)
    product = 1.0
    for part, total in zip(missing, totals, strict=True):
        product *= part / total
    assert utem([split("a b c d")], [references]) == pytest.approx(exp(1 - 4 / 5) * product**0.25)


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
    hypothesis = split("a b c d e x f g h i y z")
    reference = [*split("a b c d e f g h i"), *["w"] * 22]
    found = head_and_tail([hypothesis, split("short")], [[reference], [split("too short")]])
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
    references = [split("a b c"), split("a a d")]
    found = head_and_tail([split("a a a b")], [references], longer_than=2)
    assert found["precision"]["1"]["all"] == 75.0
    assert found["precision"]["4"]["all"] == 0.0


def test_without_long_sentences_there_is_no_precision() -> None:
    found = head_and_tail([split("a b")], [[split("a b")]], longer_than=2)
    assert found["sentences"] == 0
    assert set(found["precision"]["1"].values()) == {None}


def test_entities_of_moses_become_characters() -> None:
    assert decoded(["it &apos;s &quot; a &amp; b &quot; &#91; &lt; &#124; &#93;", "AT&T &amp;apos;"]) == [
        'it \'s " a & b " [ < | ]',
        "AT&T &apos;",
    ]


@pytest.mark.parametrize("name", ["bleu", "chrf", "ter", "tokenized_bleu", "rougeL"])
def test_split_text_is_scored_as_whole_words(name: str) -> None:
    """As the same text without `@@`, whose tokens are not split again (multi-bleu), and its signature says so."""
    split = Comparison(language="de", tokenizer="subwords", lowercase=False)
    plain = Comparison(language="de", tokenizer="none", lowercase=False)
    hypotheses, references = ["ein un@@ mög@@ lich@@ er Satz , ja", "so ist es"], [["ein un@@ mög@@ licher Satz ."], ["so war es"]]
    joined = [text.replace("@@ ", "") for text in hypotheses]
    found = score(name, hypotheses, references, split)
    same = "bleu" if name == "tokenized_bleu" else name  # the text has its tokens already
    expected = score(same, joined, [[text.replace("@@ ", "") for text in texts] for texts in references], plain)
    assert found["score"] == expected["score"]
    assert 0 < found["score"] < 100
    assert "subwords" in found["signature"]
    if name != "rougeL":
        assert comparison_of(found["signature"]).tokenizer == "subwords"


def test_words_of_kytea_are_read_in_one_run_of_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-in: a word for each character. BLEU is then that of characters."""
    program = tmp_path / "kytea"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nassert sys.argv[1:] == ['-out', 'tok']\n"
        f"open({str(tmp_path / 'runs')!r}, 'a').write('run\\n')\n"
        "for line in sys.stdin:\n    print(' '.join(line.strip().replace(' ', '')))\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(kytea, "_words", {})
    monkeypatch.setattr(kytea, "PROGRAM", replace(kytea.PROGRAM, executable=str(program)))
    hypotheses, references = ["猫が魚を食べた", "犬が走った", ""], [["猫は魚を食べた"], ["犬が走った"], ["鳥"]]
    found = {}
    for tokenizer in ("kytea", "char"):
        how = Comparison(language="ja", tokenizer=tokenizer, lowercase=False)
        found[tokenizer] = {name: score(name, hypotheses, references, how) for name in ("bleu", "tokenized_bleu")}
    assert found["kytea"]["bleu"]["score"] == found["kytea"]["tokenized_bleu"]["score"] == found["char"]["bleu"]["score"] > 0
    assert "tok:kytea" in found["kytea"]["bleu"]["signature"]
    assert found["kytea"]["tokenized_bleu"]["signature"].endswith("pre:kytea")
    assert (tmp_path / "runs").read_text() == "run\nrun\n"  # references, and hypotheses
    assert comparison_of(found["kytea"]["bleu"]["signature"]).tokenizer == "kytea"


@pytest.mark.parametrize(
    ("body", "message"), [("print(1)", "for each of 2 texts, got 1 and exit code 0"), ("sys.exit('no model')", "no model")]
)
def test_a_kytea_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, message: str) -> None:
    (tmp_path / "kytea").write_text(f"#!{sys.executable}\nimport sys\n{body}\n")
    (tmp_path / "kytea").chmod(0o755)
    monkeypatch.setattr(kytea, "PROGRAM", replace(kytea.PROGRAM, executable=str(tmp_path / "kytea")))
    with pytest.raises(StageError, match=message):
        kytea.read(["新しい文一", "新しい文二"])
