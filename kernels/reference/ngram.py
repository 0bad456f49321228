"""Interpolated modified Kneser-Ney smoothing, slow and obvious, and back-off queries by hand.

Chen and Goodman (1998), "An empirical study of smoothing techniques for language modeling"; conventions of Heafield et al. (2013),
"Scalable modified Kneser-Ney language model estimation". All logarithms are to base 10, as in ARPA files.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

Ngram = tuple[str, ...]
Model = dict[Ngram, tuple[float, float]]
"""A map of each n-gram to (log p(last word | the words before), log of the back-off of the whole n-gram as a context)."""

UNK, BOS, EOS = "<unk>", "<s>", "</s>"


def occurrences(sentences: Iterable[Sequence[str]], order: int) -> list[Counter[Ngram]]:
    """Return c(g), the number of occurrences of each n-gram of order 1, 2, ... in `<s> sentence </s>`, except for `<s>` alone,
    which is never predicted."""
    counts: list[Counter[Ngram]] = [Counter() for _ in range(order)]
    for sentence in sentences:
        words = (BOS, *sentence, EOS)
        for end in range(2, len(words) + 1):
            for n in range(1, min(order, end) + 1):
                counts[n - 1][words[end - n : end]] += 1
    return counts


def adjusted_counts(counts: list[Counter[Ngram]]) -> list[Counter[Ngram]]:
    """Return a(g) = c(g) for the highest order and if g begins with `<s>`, else |{v : c(vg) > 0}|, the number of words seen before
    g."""
    adjusted = []
    for of_order, longer in pairwise(counts):
        preceding = Counter(ngram[1:] for ngram in longer)
        adjusted.append(Counter({g: c if g[0] == BOS else preceding[g] for g, c in of_order.items()}))
    return [*adjusted, counts[-1].copy()]


def last_ngrams(sentences: Iterable[Sequence[str]], counts: list[Counter[Ngram]]) -> list[Ngram]:
    """Return the last n-grams in suffix order (by last word, then the one before, ...; words by first appearance), as far as they
    nest.

    In its counts of counts, lmplz takes c in place of a for these n-grams, in all orders but the highest.
    """
    names = [UNK, BOS, EOS, *(word for sentence in sentences for word in sentence)]
    ids = {word: i for i, word in reversed(list(enumerate(names)))}
    longest = max((g for of_order in counts for g in of_order), key=lambda g: [ids[word] for word in reversed(g)])
    return [longest[len(longest) - n :] for n in range(1, min(len(longest), len(counts) - 1) + 1)]


def discounts(counts_of_counts: Mapping[int, int]) -> tuple[float, float, float] | None:
    """Return D(j) = j - (j + 1) Y n(j + 1) / n(j) for j = 1, 2, 3, with Y = n1 / (n1 + 2 n2); None unless 0 <= D(j) <= j."""
    n = [counts_of_counts.get(j, 0) for j in range(5)]
    if not (n[1] and n[2] and n[3]):
        return None
    y = n[1] / (n[1] + 2 * n[2])
    found = [j - (j + 1) * y * n[j + 1] / n[j] for j in (1, 2, 3)]
    return (found[0], found[1], found[2]) if all(0 <= d <= j for j, d in enumerate(found, 1)) else None


def estimate(
    sentences: Sequence[Sequence[str]],
    order: int,
    prune: Sequence[int] = (),
    fallback: tuple[float, float, float] = (0.5, 1.0, 1.5),
    interpolate_unigrams: bool = True,
) -> Model:
    """Return the model p(w | h) = (a(hw) - D(a(hw))) / sum_v a(hv) + b(h) p(w | h without its first word).

    b(h) = (sum over kept hv of D(a(hv)) + sum over pruned hv of a(hv)) / sum_v a(hv). Below order 1 lies the uniform distribution
    over all words but `<s>`; `<unk>` has a = 0. An n-gram is pruned if c <= prune[n - 1], except for special words.
    """
    counts = occurrences(sentences, order)
    adjusted = adjusted_counts(counts)
    last = last_ngrams(sentences, counts)
    thresholds = [*prune, *[prune[-1] if prune else 0] * order][:order]
    special = [(UNK,), (BOS,), (EOS,)]
    model: Model = {}
    p: dict[Ngram, float] = {}
    for n in range(1, order + 1):
        a = adjusted[n - 1]
        of = Counter(a.values())
        if n <= len(last):
            of[a[last[n - 1]]] -= 1
            of[counts[n - 1][last[n - 1]]] += 1
        amounts = (0.0, *(discounts(of) or fallback))
        kept = {g for g in a if counts[n - 1][g] > thresholds[n - 1] or g in special}
        total: Counter[Ngram] = Counter()
        left: defaultdict[Ngram, float] = defaultdict(float)
        for g, count in a.items():
            total[g[:-1]] += count
            left[g[:-1]] += amounts[min(count, 3)] if g in kept else count
        weight = {h: left[h] / total[h] for h in total}
        if n == 1:
            vocabulary = {*kept, (UNK,)}
            uniform = weight[()] / len(vocabulary) if interpolate_unigrams else 0.0
            p |= {g: (a[g] - amounts[min(a[g], 3)]) / total[()] + uniform for g in vocabulary}
            p[BOS,] = 1.0
            if not interpolate_unigrams:
                p[UNK,] = weight[()]
        for h in weight.keys() & model.keys():
            model[h] = (model[h][0], log10(weight[h]))
        if n > 1:
            p |= {g: (a[g] - amounts[min(a[g], 3)]) / total[g[:-1]] + weight[g[:-1]] * p[g[1:]] for g in kept}
        model |= {g: (log10(p[g]), 0.0) for g in p.keys() - model.keys()}
    return model


def log10(value: float) -> float:
    """Return the logarithm to base 10; -99 for probability 0."""
    return math.log10(value) if value > 0 else -99.0


def log_prob(model: Model, context: Ngram, word: str) -> float:
    """Return log p(word | context): of the n-gram if the model has it, else the context's back-off + log p(word | shorter
    context)."""
    if (*context, word) in model:
        return model[*context, word][0]
    if not context:
        return model[UNK,][0]
    return model.get(context, (0.0, 0.0))[1] + log_prob(model, context[1:], word)


def score(model: Model, words: Sequence[str], order: int, bos: bool = True, eos: bool = True) -> float:
    """Return log p of a sentence; unknown words are `<unk>`."""
    history: list[str] = [BOS] if bos else []
    total = 0.0
    for word in [*(word if (word,) in model else UNK for word in words), *([EOS] if eos else [])]:
        total += log_prob(model, tuple(history[max(0, len(history) - order + 1) :]), word)
        history.append(word)
    return total


def read_arpa(lines: Iterable[str]) -> Model:
    """Return the n-grams of a valid ARPA file with tabs between its fields."""
    model: Model = {}
    for line in lines:
        fields = line.rstrip("\r\n").split("\t")
        if len(fields) > 1:
            model[tuple(fields[1].split(" "))] = (float(fields[0]), float(fields[2]) if len(fields) > 2 else 0.0)
    return model
