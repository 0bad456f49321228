"""Comparisons of entries with the baseline, on one test set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stages.report.findings.significance import (
    LEVEL,
    TESTED,
    comparison_of,
    holm,
    paired_bootstrap,
    randomization_tests,
    statistics_of,
)
from stages.shared.scoring.metrics import Comparison as Conditions

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
        """Whether the entry differs from the baseline after the correction, by a difference that the tables show."""
        return self.adjusted < LEVEL and round(self.delta, 2) != 0


def compare(
    baseline: str, texts: Texts, references: References, scores: Mapping[str, Mapping[str, Any]], metric: str
) -> dict[str, dict[str, Comparison]]:
    """Compare all entries with the baseline in `metric` and in the metrics of `TESTED` that all have, computed as the signatures
    state.

    `scores` are the metrics of each entry with scores and signatures. All entries have `metric`, which also gets intervals. Returns
    comparisons by entry and metric.
    """
    ordered = {baseline: texts[baseline]} | dict(texts)
    others = list(ordered)[1:]
    found: dict[str, dict[str, Comparison]] = {entry: {} for entry in others}
    for name in dict.fromkeys((metric, *TESTED)):
        if any(name not in found_scores for found_scores in scores.values()):
            continue
        how = comparison_of(scores[baseline][name]["signature"])
        values = randomization_tests(name, how, ordered, references)
        adjusted = holm(values)
        limits = _intervals(name, how, ordered, references) if name == metric else {}
        for entry in others:
            delta = round(scores[entry][name]["score"] - scores[baseline][name]["score"], 4)
            p, corrected = round(values[entry], 6), round(adjusted[entry], 6)
            found[entry][name] = Comparison(delta, p, corrected, *limits.get(entry, (None, None)))
    return found


def _intervals(metric: str, how: Conditions, texts: Texts, references: References) -> dict[str, tuple[float, float]]:
    """Return the 95 % interval of the difference of each entry from the first one, by paired bootstrap."""
    score_of, (base, *others) = statistics_of(metric, how, texts.values(), references)
    return {entry: paired_bootstrap(score_of, base, found) for entry, found in zip(list(texts)[1:], others, strict=True)}
