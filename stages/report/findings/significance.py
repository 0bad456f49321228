"""Paired bootstrap resampling of corpus BLEU or ROUGE (Koehn 2004)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stages.score.metrics import Comparison, build_metric
from stages.score.rouge import ROUGE, f_measures, tokens_of
from stages.score.tokenizers import tokenizer_in

if TYPE_CHECKING:
    from sacrebleu.metrics import BLEU

RESAMPLES = 1000
SEED = 12345

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
    parts = dict(part.split(":", 1) for part in signature.split("|"))
    bleu: Any = build_metric("bleu", Comparison(language="", tokenizer=tokenizer_in(signature), lowercase=parts["case"] == "lc"))
    return partial(bleu_of, bleu), [sentence_statistics(bleu, texts, references) for texts in systems]


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
