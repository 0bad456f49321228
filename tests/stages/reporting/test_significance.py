from __future__ import annotations

import random
from functools import partial

import numpy as np
import pytest
from sacrebleu.metrics import BLEU

from stages.reporting.significance import bleu_of, paired_bootstrap, sentence_statistics

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


def test_a_clear_difference_is_significant_and_chance_is_not() -> None:
    metric, texts = BLEU(), sentences(80)
    references = [[text] for text in texts]
    good, bad, alike = (sentence_statistics(metric, spoiled(texts, n, s), references) for n, s in ((0.1, 2), (0.3, 3), (0.1, 4)))
    clear = paired_bootstrap(partial(bleu_of, metric), bad, good)
    assert clear["delta"] == pytest.approx(bleu_of(metric, good.sum(0)) - bleu_of(metric, bad.sum(0)), abs=1e-4)
    assert 0 < clear["low"] < clear["delta"] < clear["high"]
    assert clear["p"] < 0.01
    assert paired_bootstrap(partial(bleu_of, metric), good, alike)["p"] > 0.05
    assert paired_bootstrap(partial(bleu_of, metric), bad, good) == clear


def test_a_system_does_not_differ_from_itself() -> None:
    statistics = sentence_statistics(BLEU(), sentences(10), [[text] for text in sentences(10)])
    assert paired_bootstrap(partial(bleu_of, BLEU()), statistics, statistics.copy()) == {
        "delta": 0.0,
        "low": 0.0,
        "high": 0.0,
        "p": 1.0,
    }


def test_swapping_the_sides_turns_the_difference_around() -> None:
    metric, texts = BLEU(), sentences(40)
    first, second = (sentence_statistics(metric, spoiled(texts, 0.2, seed), [[text] for text in texts]) for seed in (5, 6))
    there, back = (
        paired_bootstrap(partial(bleu_of, metric), first, second),
        paired_bootstrap(partial(bleu_of, metric), second, first),
    )
    assert np.allclose(
        [back["delta"], back["low"], back["high"], back["p"]], [-there["delta"], -there["high"], -there["low"], there["p"]]
    )
