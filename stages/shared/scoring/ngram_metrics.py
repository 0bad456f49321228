"""Metrics from counts of n-grams: over-translation, under-translation, and precision at the ends of hypotheses.

Sentences are lists of words. `references` holds the references of each sentence, at least one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import exp, log
from typing import Any

Words = Sequence[str]
Counts = Counter[tuple[str, ...]]

OVER, UNDER = 2, 4
"""Longest n-grams of OTEM and UTEM, as in their paper."""
ENDS = {"all": slice(None), **{f"first {n}": slice(n) for n in (5, 10, 15)}, **{f"last {n}": slice(-n, None) for n in (5, 10, 15)}}
"""Parts of a hypothesis whose precision is computed (Imamura and Sumita 2020, Table 3)."""
END_ORDERS = (1, 4)
"""Lengths of the n-grams of this precision."""


def otem(hypotheses: Sequence[Words], references: Sequence[Sequence[Words]]) -> float:
    """Return OTEM (Yang et al. 2018), the degree of over-translation: lower is better, 0 is best, unsmoothed.

    OTEM = lp exp(mean_n ln p_n) for n = 1, 2, where p_n is the fraction of n-grams that occur more often than in a reference, and
    lp = exp(1 - r / c) if the hypotheses have c >= r words, r being the words of the closest references.
    """
    totals, excess = [0] * OVER, [0] * OVER
    for hypothesis, texts in zip(hypotheses, references, strict=True):
        for order in range(OVER):
            counts = ngrams(hypothesis, order + 1)
            known = [ngrams(text, order + 1) for text in texts]
            totals[order] += counts.total()
            excess[order] += sum(_excess(count, [k[ngram] for k in known]) for ngram, count in counts.items())
    said, expected = _lengths(hypotheses, references)
    return _mean(excess, totals) * (exp(1 - expected / said) if said and said >= expected else 1.0)


def _excess(count: int, allowed: Sequence[int]) -> int:
    """The number of superfluous occurrences of an n-gram: the smallest positive excess over any reference, or 0.

    An n-gram that is not in a reference may occur once.
    """
    found = [count - max(times, 1) for times in allowed if count > max(times, 1)]
    return min(found, default=0)


def utem(hypotheses: Sequence[Words], references: Sequence[Sequence[Words]]) -> float:
    """Return UTEM (Yang et al. 2018), the degree of under-translation: lower is better, 0 is best, unsmoothed.

    UTEM = lp exp(mean_n ln p_n) for n = 1 to 4, where p_n is the fraction of n-grams of the references that are missing (with
    several references: the smallest number of missing n-grams divided by the largest total), and lp = exp(1 - c / r) if the
    hypotheses have c <= r words, r being the words of the closest references.
    """
    totals, missing = [0] * UNDER, [0] * UNDER
    for hypothesis, texts in zip(hypotheses, references, strict=True):
        for order in range(UNDER):
            said = ngrams(hypothesis, order + 1)
            known = [counts for text in texts if (counts := ngrams(text, order + 1))]
            totals[order] += max((counts.total() for counts in known), default=0)
            missing[order] += min(((counts - said).total() for counts in known), default=0)
    length, expected = _lengths(hypotheses, references)
    return _mean(missing, totals) * (exp(1 - length / expected) if expected and length <= expected else 1.0)


def ngrams(words: Words, order: int) -> Counts:
    """Return the counts of the n-grams of `order` words."""
    return Counter(tuple(words[start : start + order]) for start in range(len(words) - order + 1))


def _lengths(hypotheses: Sequence[Words], references: Sequence[Sequence[Words]]) -> tuple[int, int]:
    """The numbers of words of the hypotheses, and of the references that are closest in length (on a tie, the shorter)."""
    closest = [
        min(map(len, texts), key=lambda length: (abs(length - len(hypothesis)), length))
        for hypothesis, texts in zip(hypotheses, references, strict=True)
    ]
    return sum(map(len, hypotheses)), sum(closest)


def _mean(parts: Sequence[int], totals: Sequence[int]) -> float:
    """The geometric mean of the fractions; 0 if one of them is 0 or undefined."""
    if not all(parts):
        return 0.0
    return exp(sum(log(part / total) for part, total in zip(parts, totals, strict=True)) / len(parts))


def head_and_tail(hypotheses: Sequence[Words], references: Sequence[Sequence[Words]], longer_than: int = 30) -> dict[str, Any]:
    """Return the n-gram precision in per cent of parts of hypotheses (`ENDS`) against whole references.

    Only sentences whose first reference has more than `longer_than` words are counted. The result is {sentences, longer_than,
    precision: {order: {part: value}}}.
    """
    pairs = [(words, texts) for words, texts in zip(hypotheses, references, strict=True) if len(texts[0]) > longer_than]
    precision = {
        str(order): {name: _precision([(words[part], texts) for words, texts in pairs], order) for name, part in ENDS.items()}
        for order in END_ORDERS
    }
    return {"sentences": len(pairs), "longer_than": longer_than, "precision": precision}


def _precision(pairs: Sequence[tuple[Words, Sequence[Words]]], order: int) -> float | None:
    """The clipped precision of BLEU: an n-gram counts at most as often as in the reference that has it most often. None without
    n-grams."""
    matches, total = 0, 0
    for words, texts in pairs:
        counts = ngrams(words, order)
        total += counts.total()
        matches += (counts & _max_counts(ngrams(text, order) for text in texts)).total()
    return round(100 * matches / total, 4) if total else None


def _max_counts(counts: Iterator[Counts]) -> Counts:
    result: Counts = Counter()
    for each in counts:
        result |= each
    return result
