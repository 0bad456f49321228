from __future__ import annotations

import random
from functools import partial

import numpy as np
import pytest
from sacrebleu.metrics import BLEU

from stages.report.findings.significance import bleu_of, paired_bootstrap, sentence_statistics, statistics_of
from stages.score.metrics import Comparison, score

WORDS = "ein der die das haus hund katze see wald buch liest sieht schläft heute morgen".split(" ")  # noqa: SIM905


def sentences(count: int) -> list[str]:
    draw = random.Random(1)
    return [" ".join(draw.choices(WORDS, k=12)) for _ in range(count)]


def spoiled(texts: list[str], noise: float, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(word if draw.random() > noise else draw.choice(WORDS) for word in text.split()) for text in texts]


def test_statistics_add_up_to_corpus_bleu() -> None:
    references = [[text, text.replace("hund", "see")] for text in sentences(30)]
    hypotheses = [*spoiled([texts[0] for texts in references], 0.3, 2)[:-1], ""]
    metric = BLEU()
    statistics = sentence_statistics(metric, hypotheses, references)
    assert statistics.shape == (30, 10)
    expected = metric.corpus_score(hypotheses, [list(stream) for stream in zip(*references, strict=True)]).score
    assert bleu_of(metric, statistics.sum(0)) == pytest.approx(expected)


def test_a_clear_difference_is_significant_and_a_random_one_is_not() -> None:
    metric, texts = BLEU(), sentences(80)
    references = [[text] for text in texts]
    good, bad, alike = (sentence_statistics(metric, spoiled(texts, n, s), references) for n, s in ((0.1, 2), (0.3, 3), (0.1, 4)))
    score_of = partial(bleu_of, metric)
    clear = paired_bootstrap(score_of, bad, good)
    assert clear["delta"] == pytest.approx(bleu_of(metric, good.sum(0)) - bleu_of(metric, bad.sum(0)), abs=1e-4)
    assert 0 < clear["low"] < clear["delta"] < clear["high"]
    assert clear["p"] < 0.01
    assert paired_bootstrap(score_of, good, alike)["p"] > 0.05
    assert paired_bootstrap(score_of, bad, good) == clear


def test_a_system_does_not_differ_from_itself() -> None:
    statistics = sentence_statistics(BLEU(), sentences(10), [[text] for text in sentences(10)])
    same = paired_bootstrap(partial(bleu_of, BLEU()), statistics, statistics.copy())
    assert same == {"delta": 0.0, "low": 0.0, "high": 0.0, "p": 1.0}


def test_swapping_the_sides_negates_the_difference() -> None:
    metric, texts = BLEU(), sentences(40)
    first, second = (sentence_statistics(metric, spoiled(texts, 0.2, seed), [[text] for text in texts]) for seed in (5, 6))
    score_of = partial(bleu_of, metric)
    there, back = paired_bootstrap(score_of, first, second), paired_bootstrap(score_of, second, first)
    assert np.allclose(
        [back["delta"], back["low"], back["high"], back["p"]], [-there["delta"], -there["high"], -there["low"], there["p"]]
    )


@pytest.mark.parametrize("metric", ["bleu", "rouge2", "rougeL", "rougeLsum"])
def test_statistics_reproduce_the_score_of_the_signature(metric: str) -> None:
    references = [[text, text.replace("hund", "see")] for text in sentences(30)]
    systems = [[*spoiled([texts[0] for texts in references], noise, seed)[:-1], ""] for noise, seed in ((0.2, 2), (0.4, 3))]
    how = Comparison(language="de", tokenizer="13a", lowercase=True)
    scored = [score(metric, texts, references, how) for texts in systems]
    score_of, statistics = statistics_of(metric, scored[0]["signature"], systems, references)
    assert [score_of(found.sum(0)) for found in statistics] == pytest.approx([found["score"] for found in scored], abs=1e-4)
    clear = paired_bootstrap(score_of, *statistics)
    assert clear["delta"] == pytest.approx(scored[1]["score"] - scored[0]["score"], abs=1e-3)
    assert clear["low"] < clear["delta"] < clear["high"] < 0
    assert clear["p"] < 0.01


@pytest.mark.parametrize(
    ("language", "tokenizer", "texts"),
    [
        ("ja", "ja-mecab", ["猫が庭にいる。", "犬が走る。"]),
        ("ko", "ko-mecab", ["고양이가 있다.", "개가 달린다."]),
        ("zh", "zh", ["猫在院子里。", "狗在跑。"]),
    ],
)
def test_signatures_of_tokenisers_with_versions_are_understood(language: str, tokenizer: str, texts: list[str]) -> None:
    pytest.importorskip({"ja": "MeCab", "ko": "mecab_ko"}.get(language, "sacrebleu"))
    references, systems = [[text] for text in texts], [texts, texts[::-1]]
    how = Comparison(language=language, tokenizer=tokenizer, lowercase=False)
    scored = [score("bleu", found, references, how) for found in systems]
    score_of, statistics = statistics_of("bleu", scored[0]["signature"], systems, references)
    assert [score_of(found.sum(0)) for found in statistics] == pytest.approx([found["score"] for found in scored], abs=1e-4)
