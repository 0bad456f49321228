"""Minimum Bayes risk: the hypothesis that is nearest to all of them (Kumar and Byrne 2004; with chrF as Freitag et al. 2022)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


def consensus(texts: Sequence[str]) -> int:
    """Return the index of the text with the highest mean chrF to all texts; the first one on a tie.

    The texts stand for a sample of the teacher's distribution: one that occurs several times counts as often. Raises ValueError for
    no texts.
    """
    from sacrebleu.metrics import CHRF

    if not texts:
        raise ValueError("texts: expected at least one, got none")
    weights = Counter(texts)
    metric = CHRF()

    def utility(text: str) -> float:
        others = ((other, weight) for other, weight in weights.items() if other != text)
        return 100.0 * weights[text] + sum(weight * float(metric.sentence_score(text, [other]).score) for other, weight in others)

    values = {text: utility(text) for text in weights}
    best = max(values.values())
    return next(index for index, text in enumerate(texts) if values[text] == best)
