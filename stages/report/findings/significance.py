"""Paired tests of systems against a baseline, and their correction for several tests.

The test of every metric is approximate randomization (Riezler and Maxwell 2005), with ties counted as extreme: sacreBLEU's own test
counts only larger differences, and finds p = 1/1001 for two systems that differ in one sentence. Intervals of differences are by
paired bootstrap (Koehn 2004).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.shared.scoring.metrics import Comparison, build_metric, reference_streams, whole_words
from stages.shared.scoring.rouge import ROUGE, f_measures, tokens_name
from stages.shared.scoring.tokenizers import SUBWORDS, tokenizer_in

RESAMPLES = 1000
SEED = 12345
LEVEL = 0.05
"""Level below which an adjusted p marks a difference."""
TESTED = ("bleu", "chrf", "ter", *ROUGE)
"""Metrics whose corpus score depends only on sums over sentences."""
ROUNDING = 1e-9
"""Differences of scores, 0 to 100, that are closer than this are equal: sums of floats depend on their order."""

Statistics = NDArray[np.float64]
"""[N,K] sufficient statistics of each sentence: a corpus score depends only on their sums [K]."""
ScoreOf = Callable[[Statistics], float]
"""A function from summed statistics [K] to a corpus score."""


def statistics_of(
    metric: str, how: Comparison, systems: Iterable[Sequence[str]], references: Sequence[Sequence[str]]
) -> tuple[ScoreOf, list[Statistics]]:
    """Return the score function of a metric of `TESTED` and the statistics of each system."""
    whole_words(how, [text for texts in references for text in texts])
    systems, references = [whole_words(how, texts) for texts in systems], [whole_words(how, texts) for texts in references]
    if metric in ROUGE:
        tokens = tokens_name(how.language, how.tokenizer)
        values = [f_measures(metric, tokens, texts, references) for texts in systems]
        return mean_of, [np.array([[value, 1.0] for value in found]) for found in values]
    # sacreBLEU has no public access to statistics of chrF and TER; its own significance tests use these methods.
    found: Any = build_metric(metric, how)
    streams = reference_streams(references)
    rows = [found._extract_corpus_statistics(list(texts), streams) for texts in systems]
    return lambda sums: float(found._compute_score_from_stats(sums.tolist()).score), [np.array(row, dtype=float) for row in rows]


def comparison_of(signature: str) -> Comparison:
    """Return the conditions that a signature of sacreBLEU or ROUGE states. TER treats Chinese and Japanese alike, so either stands
    for both."""
    parts = dict(part.split(":", 1) for part in signature.split("|"))
    lowercase = parts["case"] == "lc"
    if parts.get("pre") == SUBWORDS:
        return Comparison(language="", tokenizer=SUBWORDS, lowercase=lowercase)
    if parts.get("tok") in ("english", "words"):  # ROUGE's names for the words of 13a
        return Comparison(language="en" if parts["tok"] == "english" else "", tokenizer="13a", lowercase=lowercase)
    language = "zh" if parts.get("asian") == "yes" else ""
    return Comparison(language=language, tokenizer=tokenizer_in(signature) if "tok" in parts else "13a", lowercase=lowercase)


def mean_of(sums: Statistics) -> float:
    """Return the mean of sentence scores from `sums` [2]: their sum and their number."""
    return float(sums[0] / sums[1])


def paired_bootstrap(score_of: ScoreOf, baseline: Statistics, system: Statistics) -> tuple[float, float]:
    """Return the limits of the 95 % interval of the difference of two corpus scores (system - baseline). The seed is fixed."""
    generator = np.random.default_rng(SEED)
    count = len(baseline)
    differences = np.empty(RESAMPLES)
    for index in range(RESAMPLES):
        weights = np.bincount(generator.integers(count, size=count), minlength=count)
        differences[index] = score_of(weights @ system) - score_of(weights @ baseline)
    low, high = np.quantile(differences, [0.025, 0.975])
    return float(low), float(high)


def trials_for(systems: int) -> int:
    """Return the number of trials with which Holm's correction over `systems` can still find a difference: p is at least
    1 / (trials + 1)."""
    return max(RESAMPLES, 50 * systems)


def randomization_test(score_of: ScoreOf, baseline: Statistics, system: Statistics, trials: int) -> float:
    """Return the two-sided p of the paired randomization test.

    The null hypothesis exchanges the two outputs of each sentence with probability 1/2. p is the probability of a difference of
    corpus scores that is at least the observed one. Sentences with equal statistics do not matter; if the others have at most
    `trials` exchanges, all are counted and p is exact, else p = (1 + extreme) / (1 + trials) over random ones with a fixed seed.
    """
    change = system - baseline
    change = change[change.any(axis=1)]
    base = baseline.sum(0)
    both = baseline.sum(0) + system.sum(0)
    observed = abs(score_of(system.sum(0)) - score_of(base))

    def is_extreme(exchanged: NDArray[np.bool_]) -> bool:
        sums: Statistics = base + change[exchanged].sum(0)
        difference: float = score_of(sums) - score_of(both - sums)
        return abs(difference) >= observed - ROUNDING

    exchanges = 2 ** len(change)
    if exchanges <= trials:
        extreme = sum(is_extreme(np.array(signs, dtype=bool)) for signs in product((False, True), repeat=len(change)))
        return float(extreme / exchanges)
    drawn = np.random.default_rng(SEED).integers(2, size=(trials, len(change)), dtype=bool)
    return (1 + sum(map(is_extreme, drawn))) / (1 + trials)


def randomization_tests(
    metric: str, how: Comparison, systems: Mapping[str, Sequence[str]], references: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Return the p of the randomization test of each system but the first, the baseline, in a metric of `TESTED`.

    `systems` holds hypotheses by name.
    """
    score_of, (baseline, *others) = statistics_of(metric, how, systems.values(), references)
    trials = trials_for(len(others))
    return {
        name: randomization_test(score_of, baseline, found, trials) for name, found in zip(list(systems)[1:], others, strict=True)
    }


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
