"""Paired tests of systems against a baseline, and their correction for several tests.

Approximate randomization (Riezler and Maxwell 2005) is sacreBLEU's; the paired bootstrap (Koehn 2004) gives intervals of
differences, and tests the metrics that sacreBLEU does not have.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stages.score.metrics import Comparison, build_metric, reference_streams
from stages.score.rouge import ROUGE, f_measures, tokens_of
from stages.score.tokenizers import tokenizer_in

if TYPE_CHECKING:
    from sacrebleu.metrics import BLEU

RESAMPLES = 1000
SEED = 12345
LEVEL = 0.05
"""Level below which an adjusted p marks a difference."""
RANDOMIZED = ("bleu", "chrf", "ter")
"""Metrics with sacreBLEU's test."""

Statistics = NDArray[Any]
"""[N,K] sufficient statistics of each sentence: a corpus score depends only on their sums [K]."""
ScoreOf = Callable[[Statistics], float]
"""A function from summed statistics [K] to a corpus score."""


def statistics_of(
    metric: str, signature: str, systems: Sequence[Sequence[str]], references: Sequence[Sequence[str]]
) -> tuple[ScoreOf, list[Statistics]]:
    """Return the score function of a metric and the statistics of each system, computed as the signature of the metric states."""
    if metric in ROUGE:
        values = [f_measures(metric, tokens_of(signature), texts, references) for texts in systems]
        return mean_of, [np.array([[value, 1.0] for value in found]) for found in values]
    bleu: Any = build_metric("bleu", comparison_of(signature))
    return partial(bleu_of, bleu), [sentence_statistics(bleu, texts, references) for texts in systems]


def comparison_of(signature: str) -> Comparison:
    """Return the conditions that a sacreBLEU signature states. TER treats Chinese and Japanese alike, so either stands for both."""
    parts = dict(part.split(":", 1) for part in signature.split("|"))
    language = "zh" if parts.get("asian") == "yes" else ""
    return Comparison(
        language=language, tokenizer=tokenizer_in(signature) if "tok" in parts else "13a", lowercase=parts["case"] == "lc"
    )


def mean_of(sums: Statistics) -> float:
    """Return the mean of sentence scores from `sums` [2]: their sum and their number."""
    return float(sums[0] / sums[1])


def sentence_statistics(metric: BLEU, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> NDArray[np.int64]:
    """Return the statistics [N,10] of corpus BLEU: matches and totals of 1- to 4-grams, and the lengths of both sides."""
    rows = []
    for hypothesis, texts in zip(hypotheses, references, strict=True):
        result = metric.corpus_score([hypothesis], [[text] for text in texts])
        rows.append([*result.counts, *result.totals, result.sys_len, result.ref_len])
    return np.array(rows, dtype=np.int64)


def bleu_of(metric: BLEU, sums: NDArray[np.int64]) -> float:
    """Return BLEU from summed statistics [10]."""
    values = [int(value) for value in sums]
    return float(metric.compute_bleu(values[:4], values[4:8], values[8], values[9], metric.smooth_method).score)


def paired_bootstrap(score_of: ScoreOf, baseline: Statistics, system: Statistics) -> dict[str, float]:
    """Compare the corpus scores of two systems on the same sentences (system - baseline).

    Returns `delta`, the limits `low` and `high` of the 95 % interval, and the two-sided `p`: the fraction of resamples whose
    difference, shifted to mean zero, is at least as large as the observed one. The seed is fixed.
    """
    generator = np.random.default_rng(SEED)
    count = len(baseline)
    differences = np.empty(RESAMPLES)
    for index in range(RESAMPLES):
        weights = np.bincount(generator.integers(count, size=count), minlength=count)
        differences[index] = score_of(weights @ system) - score_of(weights @ baseline)
    delta = score_of(system.sum(0)) - score_of(baseline.sum(0))
    extreme = int(np.sum(np.abs(differences - differences.mean()) >= abs(delta)))
    low, high = np.quantile(differences, [0.025, 0.975])
    values = {"delta": delta, "low": low, "high": high, "p": (extreme + 1) / (RESAMPLES + 1)}
    return {name: round(float(value), 4) for name, value in values.items()}


def trials_for(systems: int) -> int:
    """Return the number of trials with which Holm's correction over `systems` can still find a difference: p is at least
    1 / (trials + 1)."""
    return max(RESAMPLES, 50 * systems)


def randomization_tests(
    metric: str, how: Comparison, systems: Mapping[str, Sequence[str]], references: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Return the p of sacreBLEU's paired approximate randomization test of each system but the first, the baseline.

    `metric` is one of `RANDOMIZED`; `systems` holds hypotheses by name. The p of hypotheses that equal the baseline's is 1:
    sacreBLEU would find a difference in every trial.
    """
    from sacrebleu.significance import PairedTest

    baseline = next(iter(systems))
    differing = [(name, list(texts)) for name, texts in systems.items() if name == baseline or texts != systems[baseline]]
    values = {name: 1.0 for name in systems if name != baseline}
    if len(differing) == 1:
        return values
    logging.getLogger("sacrebleu").setLevel(logging.WARNING)
    test = PairedTest(
        differing,
        {metric: build_metric(metric, how)},
        reference_streams(references),
        test_type="ar",
        n_samples=trials_for(len(systems) - 1),
    )
    _, found = test()
    names, results = found.pop("System"), next(iter(found.values()))
    return values | {name: float(result.p_value) for name, result in zip(names[1:], results[1:], strict=True)}


def holm(values: Mapping[str, float]) -> dict[str, float]:
    """Return the p values adjusted for their number (Holm 1979), by the same names.

    The smallest of m values is multiplied by m, the next one by m - 1, and so on; no adjusted value is below an earlier one.
    """
    adjusted: dict[str, float] = {}
    highest = 0.0
    for index, name in enumerate(sorted(values, key=values.__getitem__)):
        highest = max(highest, min(1.0, (len(values) - index) * values[name]))
        adjusted[name] = highest
    return {name: adjusted[name] for name in values}
