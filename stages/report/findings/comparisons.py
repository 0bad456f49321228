"""Comparisons of entries with the baseline, on one test set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stages.report.findings.significance import (
    LEVEL,
    RANDOMIZED,
    comparison_of,
    holm,
    paired_bootstrap,
    randomization_tests,
    statistics_of,
)

Texts = Mapping[str, Sequence[str]]
"""Hypotheses by entry."""
References = Sequence[Sequence[str]]


@dataclass(frozen=True)
class Comparison:
    """The difference of an entry from the baseline in one metric."""

    delta: float
    """Score of the entry minus that of the baseline."""
    p: float
    """Two-sided p of a paired test over the sentences."""
    adjusted: float
    """`p` after Holm's correction for all entries that are compared in this metric."""
    low: float | None = None
    """Lower limit of the 95 % interval of the difference, by paired bootstrap; None if no interval was computed."""
    high: float | None = None
    """Upper limit of the interval."""

    @property
    def significant(self) -> bool:
        """Whether the entry differs from the baseline after the correction."""
        return self.adjusted < LEVEL


def compare(
    baseline: str, texts: Texts, references: References, scores: Mapping[str, Mapping[str, Any]], metric: str
) -> dict[str, dict[str, Comparison]]:
    """Compare all entries with the baseline in `metric` and in the metrics of `RANDOMIZED` that all have, computed as the
    signatures state.

    `scores` are the metrics of each entry with scores and signatures. All entries have `metric`, which also gets intervals. Returns
    comparisons by entry and metric.
    """
    others = [entry for entry in texts if entry != baseline]
    ordered = {entry: texts[entry] for entry in (baseline, *others)}
    intervals = _bootstraps(metric, scores[baseline][metric]["signature"], ordered, references)
    found: dict[str, dict[str, Comparison]] = {entry: {} for entry in others}
    for name in dict.fromkeys((metric, *RANDOMIZED)):
        if any(name not in found_scores for found_scores in scores.values()):
            continue
        if name in RANDOMIZED:
            values = randomization_tests(name, comparison_of(scores[baseline][name]["signature"]), ordered, references)
        else:
            values = {entry: test["p"] for entry, test in intervals.items()}
        adjusted = holm(values)
        for entry in others:
            delta = round(scores[entry][name]["score"] - scores[baseline][name]["score"], 4)
            limits = (intervals[entry]["low"], intervals[entry]["high"]) if name == metric else (None, None)
            found[entry][name] = Comparison(delta, round(values[entry], 6), round(adjusted[entry], 6), *limits)
    return found


def _bootstraps(metric: str, signature: str, texts: Texts, references: References) -> dict[str, dict[str, float]]:
    """Return the paired bootstrap of each entry against the first one."""
    score_of, statistics = statistics_of(metric, signature, list(texts.values()), references)
    base, *others = statistics
    return {entry: paired_bootstrap(score_of, base, found) for entry, found in zip(list(texts)[1:], others, strict=True)}
