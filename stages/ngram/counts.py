"""What counts of n-grams tell besides BLEU: over- and under-translation, and precision at the ends of hypotheses.

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
"""Longest n-grams of OTEM and UTEM, as their authors have them."""
ENDS = {"all": slice(None), **{f"first {n}": slice(n) for n in (5, 10, 15)}, **{f"last {n}": slice(-n, None) for n in (5, 10, 15)}}
"""Parts of a hypothesis whose precision is told (Imamura and Sumita 2020, Table 3)."""
END_ORDERS = (1, 4)


def otem(hypotheses: Sequence[Words], references: Sequence[Sequence[Words]]) -> float:
    """Over-translation (Yang et al. 2018): how much is said more often than in a reference; 0 is best, unsmoothed.

    lp exp(mean_n ln p_n), n = 1 and 2: p_n is the share of the n-grams that are too many, lp = exp(1 - r / c) where the c words
    are no fewer than the r of the closest references.
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
    """By how much an n-gram is said too often: to say once what a reference does not say is no over-translation.

    Of several references the least that is not 0 counts: one which says it often does not clear the others.
    """
    found = [count - max(times, 1) for times in allowed if count > max(times, 1)]
    return min(found, default=0)


def utem(hypotheses: Sequence[Words], references: Sequence[Sequence[Words]]) -> float:
    """Under-translation (Yang et al. 2018): how much of a reference is not said; 0 is best, unsmoothed.

    lp exp(mean_n ln p_n), n = 1 to 4: p_n is the share of the references' n-grams that are missing (of several references, the
    least missing and the most in all), lp = exp(1 - c / r) where the c words are no more than the r of the closest references.
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
    """How often each n-gram of `order` words occurs."""
    return Counter(tuple(words[start : start + order]) for start in range(len(words) - order + 1))


def _lengths(hypotheses: Sequence[Words], references: Sequence[Sequence[Words]]) -> tuple[int, int]:
    """Words of the hypotheses, and of the references closest to them in length (of two, the shorter)."""
    closest = [
        min(map(len, texts), key=lambda length: (abs(length - len(hypothesis)), length))
        for hypothesis, texts in zip(hypotheses, references, strict=True)
    ]
    return sum(map(len, hypotheses)), sum(closest)


def _mean(parts: Sequence[int], totals: Sequence[int]) -> float:
    """Geometric mean of shares; 0 where one is 0 or of nothing."""
    if not all(parts):
        return 0.0
    return exp(sum(log(part / total) for part, total in zip(parts, totals, strict=True)) / len(parts))


def head_and_tail(hypotheses: Sequence[Words], references: Sequence[Sequence[Words]], longer_than: int = 30) -> dict[str, Any]:
    """Precision in per cent of n-grams of the first and of the last words only, against whole references: {sentences, longer_than,
    precision: {order: {part: value}}}. Only sentences count whose (first) reference has more than `longer_than` words.
    """
    pairs = [(words, texts) for words, texts in zip(hypotheses, references, strict=True) if len(texts[0]) > longer_than]
    precision = {
        str(order): {name: _precision([(words[part], texts) for words, texts in pairs], order) for name, part in ENDS.items()}
        for order in END_ORDERS
    }
    return {"sentences": len(pairs), "longer_than": longer_than, "precision": precision}


def _precision(pairs: Sequence[tuple[Words, Sequence[Words]]], order: int) -> float | None:
    """As BLEU counts it: each n-gram as often at most as in the reference that has it most often. None where there is none."""
    matches, total = 0, 0
    for words, texts in pairs:
        counts = ngrams(words, order)
        total += counts.total()
        matches += (counts & _most(ngrams(text, order) for text in texts)).total()
    return round(100 * matches / total, 4) if total else None


def _most(counts: Iterator[Counts]) -> Counts:
    result: Counts = Counter()
    for each in counts:
        result |= each
    return result
