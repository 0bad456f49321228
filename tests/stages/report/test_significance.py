from __future__ import annotations

import random
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.report.findings.comparisons import Comparison as Difference
from stages.report.findings.comparisons import compare
from stages.report.findings.significance import (
    TESTED,
    comparison_of,
    holm,
    paired_bootstrap,
    randomization_test,
    randomization_tests,
    statistics_of,
    trials_for,
)
from stages.shared.scoring.metrics import Comparison, score

WORDS = "ein der die das haus hund katze see wald buch liest sieht schläft heute morgen".split(" ")  # noqa: SIM905


def sentences(count: int) -> list[str]:
    draw = random.Random(1)
    return [" ".join(draw.choices(WORDS, k=12)) for _ in range(count)]


def spoiled(texts: list[str], noise: float, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(word if draw.random() > noise else draw.choice(WORDS) for word in text.split()) for text in texts]


GERMAN = Comparison(language="de", tokenizer="13a", lowercase=False)


def one_reference(texts: list[str]) -> list[list[str]]:
    return [[text] for text in texts]


@pytest.mark.parametrize("metric", TESTED)
def test_statistics_reproduce_the_score_of_the_signature(metric: str) -> None:
    references = [[text, text.replace("hund", "see")] for text in sentences(30)]
    systems = [[*spoiled([texts[0] for texts in references], noise, seed)[:-1], ""] for noise, seed in ((0.2, 2), (0.4, 3))]
    for how in (GERMAN, Comparison(language="en", tokenizer="13a", lowercase=True)):
        scored = [score(metric, texts, references, how) for texts in systems]
        score_of, statistics = statistics_of(metric, comparison_of(scored[0]["signature"]), systems, references)
        assert [score_of(found.sum(0)) for found in statistics] == pytest.approx([found["score"] for found in scored], abs=1e-4)


def exact_p(metric: str, base: list[str], other: list[str], references: list[list[str]]) -> float:
    """The definition: the share of all exchanges of outputs whose difference of scores is at least the observed one."""

    def difference(first: list[str], second: list[str]) -> float:
        scores = [score(metric, texts, references, GERMAN)["score"] for texts in (first, second)]
        return abs(scores[0] - scores[1])

    observed, extreme, count = difference(base, other), 0, 0
    differing = [index for index in range(len(base)) if base[index] != other[index]]
    for chosen in product((False, True), repeat=len(differing)):
        first, second = list(base), list(other)
        for index, exchanged in zip(differing, chosen, strict=True):
            if exchanged:
                first[index], second[index] = second[index], first[index]
        extreme += difference(first, second) >= observed - 2e-4  # scores are rounded to four digits
        count += 1
    return extreme / count


@pytest.mark.parametrize("metric", TESTED)
@pytest.mark.parametrize("differing", [1, 2, 4])
def test_few_differences_have_the_exact_p(metric: str, differing: int) -> None:
    base = sentences(12)
    references, other = one_reference(base), [*spoiled(base[:differing], 0.5, 7), *base[differing:]]
    found = randomization_tests(metric, GERMAN, {"base": base, "other": other}, references)["other"]
    assert found == exact_p(metric, base, other, references)
    assert found >= 2 / 2**differing


@pytest.mark.parametrize("metric", ["bleu", "ter", "rougeL"])
def test_equal_scores_of_different_outputs_are_no_difference(metric: str) -> None:
    references = one_reference(sentences(50))
    found = randomization_tests(metric, GERMAN, {"a": ["eins zwei"] * 50, "b": ["drei vier"] * 50}, references)
    assert found == {"b": 1.0}


def test_random_exchanges_approach_the_exact_p() -> None:
    base = sentences(12)
    systems = [base, [*spoiled(base[:8], 0.3, 7), *base[8:]]]
    score_of, (first, second) = statistics_of("bleu", GERMAN, systems, one_reference(sentences(12)))
    exact = randomization_test(score_of, first, second, trials=2**8)
    assert randomization_test(score_of, first, second, trials=2**8 - 1) == pytest.approx(exact, abs=0.05)
    assert exact * 2**8 == int(exact * 2**8)


@pytest.mark.parametrize("metric", ["bleu", "chrf", "ter", "rougeL"])
def test_randomization_finds_a_clear_difference_and_none_between_equals(metric: str) -> None:
    texts = sentences(60)
    base = spoiled(texts, 0.1, 2)
    systems = {"base": base, "worse": spoiled(texts, 0.4, 3), "same": list(base), "alike": spoiled(texts, 0.1, 9)}
    found = randomization_tests(metric, GERMAN, systems, one_reference(texts))
    assert list(found) == ["worse", "same", "alike"]
    assert found["worse"] == 1 / (trials_for(3) + 1)
    assert found["same"] == 1.0
    assert found["alike"] > 0.05


def test_swapping_the_sides_negates_the_interval_and_keeps_p() -> None:
    texts = sentences(40)
    score_of, (first, second) = statistics_of(
        "bleu", GERMAN, [spoiled(texts, 0.2, 5), spoiled(texts, 0.3, 6)], one_reference(texts)
    )
    low, high = paired_bootstrap(score_of, first, second)
    assert paired_bootstrap(score_of, second, first) == pytest.approx((-high, -low))
    assert low < score_of(second.sum(0)) - score_of(first.sum(0)) < high
    assert randomization_test(score_of, first, second, 500) == randomization_test(score_of, second, first, 500)
    assert paired_bootstrap(score_of, first, first) == (0.0, 0.0)


@pytest.mark.parametrize(("delta", "marked"), [(0.004, False), (-0.0049, False), (0.006, True), (-2.0, True)])
def test_a_difference_that_rounds_to_zero_is_not_marked(delta: float, marked: bool) -> None:
    assert Difference(delta, p=0.001, adjusted=0.001).significant == marked
    assert not Difference(delta, p=0.04, adjusted=0.08).significant


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_rejects_what_the_step_down_procedure_rejects(values: list[float]) -> None:
    adjusted = holm({str(index): p for index, p in enumerate(values)})
    rejected = set()
    for rank, index in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        if values[index] > 0.05 / (len(values) - rank):
            break
        rejected.add(str(index))
    assert {name for name, p in adjusted.items() if p <= 0.05} == rejected
    assert all(values[int(name)] <= p <= 1 for name, p in adjusted.items())


def test_comparisons_are_those_of_the_scores_with_an_interval_for_the_main_metric() -> None:
    texts = sentences(40)
    references = [[text] for text in texts]
    systems = {"x/beam": spoiled(texts, 0.3, 2), "base/beam": spoiled(texts, 0.1, 3), "y/beam": spoiled(texts, 0.2, 4)}
    scores = {name: {m: score(m, found, references, GERMAN) for m in ("bleu", "ter")} for name, found in systems.items()}
    found = compare("base/beam", systems, references, scores, "bleu")
    assert list(found) == ["x/beam", "y/beam"]
    for entry, metrics in found.items():
        assert list(metrics) == ["bleu", "ter"]
        for metric, comparison in metrics.items():
            expected = scores[entry][metric]["score"] - scores["base/beam"][metric]["score"]
            assert comparison.delta == pytest.approx(expected, abs=1e-3)
        assert metrics["bleu"].low < metrics["bleu"].delta < metrics["bleu"].high
        assert metrics["ter"].low is None
    assert found["x/beam"]["bleu"].significant
    values = [found[entry]["bleu"] for entry in found]
    assert min(value.adjusted for value in values) == pytest.approx(2 * min(value.p for value in values), abs=1e-4)


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
    score_of, statistics = statistics_of("bleu", comparison_of(scored[0]["signature"]), systems, references)
    assert [score_of(found.sum(0)) for found in statistics] == pytest.approx([found["score"] for found in scored], abs=1e-4)
