"""Paired bootstrap resampling of corpus BLEU (Koehn 2004)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sacrebleu.metrics import BLEU

SAMPLES = 1000
SEED = 12345


def sentence_statistics(metric: BLEU, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> NDArray[np.int64]:
    """[N,10] what corpus BLEU is a function of, by sentence: matches and totals of 1- to 4-grams, both lengths."""
    rows = []
    for hypothesis, texts in zip(hypotheses, references, strict=True):
        result = metric.corpus_score([hypothesis], [[text] for text in texts])
        rows.append([*result.counts, *result.totals, result.sys_len, result.ref_len])
    return np.array(rows, dtype=np.int64)


def bleu_of(metric: BLEU, sums: NDArray[np.int64]) -> float:
    """BLEU of summed statistics [10]."""
    values = [int(value) for value in sums]
    return float(metric.compute_bleu(values[:4], values[4:8], values[8], values[9], metric.smooth_method).score)


def paired_bootstrap(metric: BLEU, baseline: NDArray[np.int64], system: NDArray[np.int64]) -> dict[str, float]:
    """Difference in BLEU (system - baseline) on the same sentences, from their statistics [N,10].

    `delta`, the 95 % interval `low` to `high`, and the two-sided `p`: how often the difference, shifted to mean zero, is at
    least as large as the one seen. The seed is fixed.
    """
    generator = np.random.default_rng(SEED)
    count = len(baseline)
    differences = np.empty(SAMPLES)
    for sample in range(SAMPLES):
        weights = np.bincount(generator.integers(count, size=count), minlength=count)
        differences[sample] = bleu_of(metric, weights @ system) - bleu_of(metric, weights @ baseline)
    delta = bleu_of(metric, system.sum(0)) - bleu_of(metric, baseline.sum(0))
    extreme = int(np.sum(np.abs(differences - differences.mean()) >= abs(delta)))
    low, high = np.quantile(differences, [0.025, 0.975])
    values = {"delta": delta, "low": low, "high": high, "p": (extreme + 1) / (SAMPLES + 1)}
    return {name: round(float(value), 4) for name, value in values.items()}
