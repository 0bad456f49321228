"""An implementation of fast_align in plain Python: dictionaries, direct sums, one pair after the other."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from kernels.fast_align.options import AlignOptions

Pair = tuple[Sequence[str], Sequence[str]]
Table = dict[str | None, dict[str, float]]
"""The probabilities t(target word | source word); None is the null word."""


def feature(j: int, i: int, m: int, n: int) -> float:
    """Return h(j, i), minus the distance of a link from the diagonal; positions count from 1."""
    return -abs(i / n - j / m)


def partition(j: int, m: int, n: int, tension: float) -> float:
    """Return Z = sum_i exp(tension h(j, i))."""
    return sum(math.exp(tension * feature(j, i, m, n)) for i in range(1, n + 1))


def exchanged_partition(j: int, m: int, n: int, tension: float) -> float:
    """Return upstream's Z with exchanged lengths: positions above the diagonal never end when j lies beyond the target."""
    floor = int(j * n / m)
    below = sum(math.exp(tension * feature(j, i, m, n)) for i in range(1, floor + 1))
    if floor <= n:
        return below + sum(math.exp(tension * feature(j, i, m, n)) for i in range(floor + 1, n + 1))
    return below + math.exp(tension * feature(j, floor + 1, m, n)) / (1 - math.exp(-tension / n))


def gradient(j: int, m: int, n: int, tension: float, compatible: bool) -> float:
    """Return E[h] under the prior; compatible: over the Z of exchanged lengths."""
    features = [feature(j, i, m, n) for i in range(1, n + 1)]
    total = exchanged_partition(j, n, m, tension) if compatible else partition(j, m, n, tension)
    return sum(h * math.exp(tension * h) for h in features) / total


def digamma(x: float) -> float:
    """Return psi(x) = psi(x + 1) - 1 / x, with the asymptotic series for large x."""
    if x < 30:
        return digamma(x + 1) - 1 / x
    return math.log(x) - 1 / (2 * x) - 1 / (12 * x**2) + 1 / (120 * x**4) - 1 / (252 * x**6)


def fit(pairs: Sequence[Pair], options: AlignOptions) -> tuple[list[list[tuple[int, int]]], Table, float, list[float]]:
    """Return the links of each pair, t, the tension, and the log-likelihood of each pass. Only empty sides are skipped."""
    directed = [(t, s) if options.reverse else (s, t) for s, t in pairs]
    usable = [pair for pair in directed if pair[0] and pair[1]]
    t: Table = {None: {f: 1e-9 for _, target in usable for f in target}} if options.null_word else {}
    for source, target in usable:
        for e in source:
            t.setdefault(e, {}).update(dict.fromkeys(target, 1e-9))
    sizes = Counter((len(target), len(source)) for source, target in usable)
    words = sum(len(target) for _, target in usable)
    tension = options.tension
    likelihoods = []
    for number in range(options.iterations - 1):
        counts, log_likelihood, features = expect(usable, t, tension, options)
        likelihoods.append(log_likelihood)
        if number and options.favor_diagonal and options.optimize_tension:
            for _ in range(8):
                expected = sum(
                    count * gradient(j, m, n, tension, options.compatible)
                    for (m, n), count in sizes.items()
                    for j in range(1, m + 1)
                )
                tension = min(max(tension + 20 * (features - expected) / words, 0.1), 14.0)
        t = maximise(counts, options)
    links = [best_links(source, target, t, tension, options) if source and target else [] for source, target in directed]
    likelihoods.append(expect(usable, t, tension, options)[1])
    return links, t, tension, likelihoods


def joint(source: Sequence[str], target: Sequence[str], j: int, t: Table, tension: float, options: AlignOptions) -> list[float]:
    """Return P(f_j, a_j = i) for null (0 without one) and then every source position; j from 0."""
    n = len(source)
    m = len(target)
    f = target[j]
    if not options.favor_diagonal:
        prior = 1 / (n + options.null_word)
        return [t[None][f] * prior if options.null_word else 0.0, *(t[e][f] * prior for e in source)]
    total = partition(j + 1, m, n, tension) / (1 - options.p0)
    priors = [math.exp(tension * feature(j + 1, i, m, n)) / total for i in range(1, n + 1)]
    return [t[None][f] * options.p0 if options.null_word else 0.0, *(t[e][f] * p for e, p in zip(source, priors, strict=True))]


def expect(pairs: Sequence[Pair], t: Table, tension: float, options: AlignOptions) -> tuple[Table, float, float]:
    """Return expected counts, log-likelihood, and the sum of posterior features (upstream: of the position before j)."""
    counts: Table = {e: dict.fromkeys(row, 0.0) for e, row in t.items()}
    log_likelihood = features = 0.0
    for source, target in pairs:
        for j, f in enumerate(target):
            probabilities = joint(source, target, j, t, tension, options)
            total = sum(probabilities)
            log_likelihood += math.log(total)
            if options.null_word:
                counts[None][f] += probabilities[0] / total
            for i, e in enumerate(source, 1):
                posterior = probabilities[i] / total
                counts[e][f] += posterior
                features += posterior * feature(j if options.compatible else j + 1, i, len(target), len(source))
    return counts, log_likelihood, features


def maximise(counts: Table, options: AlignOptions) -> Table:
    """Return t = C / sum C, or exp(psi(C + alpha) - psi(sum (C + alpha)))."""
    t: Table = {}
    for e, row in counts.items():
        if options.variational_bayes:
            total = digamma(sum(count + options.alpha for count in row.values()))
            t[e] = {f: math.exp(digamma(count + options.alpha) - total) for f, count in row.items()}
        else:
            t[e] = {f: count / (sum(row.values()) or 1.0) for f, count in row.items()}
    return t


def best_links(
    source: Sequence[str], target: Sequence[str], t: Table, tension: float, options: AlignOptions
) -> list[tuple[int, int]]:
    """Return each target word's best position; null wins ties, then the left."""
    links = []
    for j in range(len(target)):
        probabilities = joint(source, target, j, t, tension, options)
        if not options.null_word:
            probabilities[0] = -1.0
        i = probabilities.index(max(probabilities))
        if i:
            links.append((j, i - 1) if options.reverse else (i - 1, j))
    return links


def margins(source: Sequence[str], target: Sequence[str], t: Table, tension: float, options: AlignOptions) -> list[float]:
    """Return the logarithm of best over second best, by target word."""
    found = []
    for j in range(len(target)):
        probabilities = sorted(joint(source, target, j, t, tension, options)[0 if options.null_word else 1 :], reverse=True)
        found.append(min((math.log(a / b) for a, b in pairwise(probabilities[:2])), default=math.inf))
    return found
