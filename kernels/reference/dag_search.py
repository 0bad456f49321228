"""Searches over a directed acyclic graph of vertices, over dictionaries of whole prefixes and lists of all paths.

For one sentence, `graph[i]` are the possible candidates (score, next vertex, token) of vertex i; scores are natural logarithms. The
last vertex has none; a candidate that leads to it ends the output, whatever its token.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from fewstep.search.dag_beam import DagBeamOptions
from fewstep.search.dag_paths import DagWalkOptions

Candidate = tuple[float, int, int]
"""Score, next vertex, token."""
CandidateGraph = Sequence[Sequence[Candidate]]
Prefix = tuple[int, ...]

END = -1
"""The token of the last vertex."""
BANNED = 1e-5
"""The factor on the weight of a banned candidate in sampling."""


class Scorer(Protocol):
    """An n-gram model over the ids of a vocabulary, as `fewstep.ngram.NgramScorer`."""

    @property
    def begin(self) -> int: ...
    def step(self, state: int, piece: int, /) -> tuple[float, int]: ...


def possible(scores: np.ndarray, next_vertices: np.ndarray, token_ids: np.ndarray, length: int) -> CandidateGraph:
    """Return the possible candidates of one sentence from arrays [L,C], best first, ties in the given order."""
    graph = []
    for vertex in range(length):
        rows = zip(scores[vertex].tolist(), next_vertices[vertex].tolist(), token_ids[vertex].tolist(), strict=True)
        fit = [(score, at, END if at == length - 1 else token) for score, at, token in rows if vertex < at < length and token >= 0]
        graph.append(sorted((one for one in fit if abs(one[0]) <= 1e6), key=lambda one: -one[0]))
    return graph


def paths(graph: CandidateGraph, vertex: int = 0) -> Iterator[tuple[float, Prefix]]:
    """Yield score and tokens of every path from a vertex to the last one."""
    for score, at, token in graph[vertex]:
        if at == len(graph) - 1:
            yield score, ()
        else:
            for rest, tokens in paths(graph, at):
                yield score + rest, (token, *tokens)


def log_probs(graph: CandidateGraph) -> dict[Prefix, float]:
    """Return log P(Y) of every output Y: log sum of exp(score) over its paths."""
    sums: dict[Prefix, list[float]] = {}
    for score, tokens in paths(graph):
        sums.setdefault(tokens, []).append(score)
    return {tokens: float(np.logaddexp.reduce(scores)) for tokens, scores in sums.items()}


def ngram_log_prob(ngram: Scorer | None, tokens: Prefix, end: int | None) -> float:
    """Return log P_ngram of tokens from the beginning of a sentence; `end` is the piece `</s>`, or None for a prefix."""
    if ngram is None:
        return 0.0
    total = 0.0
    state = ngram.begin
    for token in (*tokens, *([] if end is None else [end])):
        log_prob, state = ngram.step(state, token)
        total += log_prob
    return total


def length_of(options: DagBeamOptions, tokens: int, ended: bool) -> int:
    """Return the length that the length penalty uses; 1 for the root, which has no competitors."""
    return max(1, tokens + ended + (options.length_convention == "paper"))


def rank_outputs(
    log_probs: dict[Prefix, float], options: DagBeamOptions, ngram: Scorer | None = None, end: int | None = None
) -> dict[Prefix, float]:
    """Return (log P(Y) + gamma log P_ngram(Y </s>)) / |Y|^alpha of outputs."""
    return {
        tokens: (log_prob + options.ngram_weight * ngram_log_prob(ngram, tokens, end))
        / length_of(options, len(tokens), True) ** options.length_penalty
        for tokens, log_prob in log_probs.items()
    }


def repeats(tokens: Prefix, token: int, no_repeat_ngram: int, no_consecutive_repeat: int) -> bool:
    """Return whether `token` completes an n-gram that `tokens` has, or repeats the previous 1 to k tokens."""
    if token == END:
        return False
    whole = (*tokens, token)
    n = no_repeat_ngram
    if n and whole[-n:] in [whole[i : i + n] for i in range(len(whole) - n)]:
        return True
    return any(whole[-k:] == whole[-2 * k : -k] for k in range(1, no_consecutive_repeat + 1))


class Found(NamedTuple):
    """The intermediate results of a beam search."""

    ranks: list[dict[Prefix, float]]
    """By vertex: the prefixes that arrived, in order, and their ranking scores (in single precision)."""
    kept: list[list[Prefix]]
    """By vertex: the prefixes that were kept."""
    outputs: dict[Prefix, float]
    """Score of every output that was reached."""


def beam_search(graph: CandidateGraph, options: DagBeamOptions, ngram: Scorer | None = None, end: int | None = None) -> Found:
    """Run the search of `fewstep.dag_beam_search` (`kernels/csrc/inference/dag/beam.h`)."""
    last = len(graph) - 1
    at: list[dict[Prefix, float]] = [{} for _ in graph]
    total: dict[Prefix, float] = {(): 0.0}
    born: dict[Prefix, int] = {(): 0}
    found = Found([], [], {})
    at[0][()] = 0.0
    for vertex in range(last):
        ranks = {prefix: _rank(prefix, total, options, ngram) for prefix in at[vertex]}
        kept = _prune(ranks, born, options)
        found.ranks.append(ranks)
        found.kept.append(kept)
        for prefix in kept if graph[vertex] else []:
            for score, following, token in _followed(graph[vertex], prefix, options):
                mass = at[vertex][prefix] + score
                child = prefix
                if following != last:
                    child = (*prefix, token)
                    born.setdefault(child, len(born))
                    total[child] = float(np.logaddexp(total.get(child, -math.inf), mass))
                at[following][child] = float(np.logaddexp(at[following].get(child, -math.inf), mass))
    found.outputs.update(rank_outputs(at[last], options, ngram, end) if last else {})
    return found


def _rank(prefix: Prefix, total: dict[Prefix, float], options: DagBeamOptions, ngram: Scorer | None) -> float:
    score = total[prefix] + options.ngram_weight * ngram_log_prob(ngram, prefix, None)
    return float(np.float32(score / length_of(options, len(prefix), False) ** options.length_penalty))


def _prune(ranks: dict[Prefix, float], born: dict[Prefix, int], options: DagBeamOptions) -> list[Prefix]:
    best = sorted(ranks, key=lambda prefix: (-ranks[prefix], born[prefix]))
    of_length = {length: [prefix for prefix in best if len(prefix) == length] for length in {len(prefix) for prefix in best}}
    passed = {prefix for prefixes in of_length.values() for prefix in prefixes[: options.beams_per_length]}
    kept = set([prefix for prefix in best if prefix in passed][: options.beam_size])
    return [prefix for prefix in ranks if prefix in kept]


def _followed(candidates: Sequence[Candidate], prefix: Prefix, options: DagBeamOptions) -> list[Candidate]:
    followed: list[Candidate] = []
    for one in candidates[: options.candidates]:
        if options.top_p < 1 and sum(probability(score) for score, _, _ in followed) >= options.top_p:
            break
        if not repeats(prefix, one[2], options.no_repeat_ngram, options.no_consecutive_repeat):
            followed.append(one)
    return followed or list(candidates[:1])


def probability(score: float) -> float:
    """Return exp, without overflow for scores that are not log-probabilities."""
    return math.exp(min(score, 700.0))


def collapsed(tokens: Prefix) -> Prefix:
    """Collapse adjacent repeats."""
    return tuple(token for token, _ in itertools.groupby(tokens))


def viterbi(transitions: np.ndarray, token_best: np.ndarray, exponent: float, max_length: int) -> dict[tuple[int, ...], float]:
    """Return the value of each path through a graph [L,L], over all paths with at most `max_length` vertices between the ends."""
    last = len(token_best) - 1
    worth = {}
    for count in range(1 if last > 1 else 0, min(max_length, last - 1) + 1 if last > 1 else 1):
        for inner in itertools.combinations(range(1, last), count):
            path = (0, *inner, last)
            score = sum(float(transitions[i, j]) for i, j in itertools.pairwise(path)) + sum(
                float(token_best[i]) for i in path[:-1]
            )
            worth[path] = score / count**exponent if count else score
    return {path: score for path, score in worth.items() if score > -math.inf}


class Walk(NamedTuple):
    vertices: list[int]
    tokens: list[int]
    """Return END for the ends."""
    score: float


def uniform(seed: int, index: int) -> float:
    """Return number `index` of the sequence SplitMix64 of a seed (Steele et al. 2014), in [0, 1)."""
    mask = 2**64 - 1
    bits = (seed + (index + 1) * 0x9E3779B97F4A7C15) & mask
    bits = ((bits ^ bits >> 30) * 0xBF58476D1CE4E5B9) & mask
    bits = ((bits ^ bits >> 27) * 0x94D049BB133111EB) & mask
    return ((bits ^ bits >> 31) >> 11) / 2.0**53


def walk(graph: CandidateGraph, options: DagWalkOptions, seed: int | None = None) -> Walk:
    """Run the walk of `fewstep.dag_lookahead`, or with a seed that of `fewstep.dag_sample`."""
    found = Walk([0], [END], 0.0)
    vertex = 0
    tokens: Prefix = ()
    while vertex < len(graph) - 1 and graph[vertex]:
        candidates = graph[vertex][: options.candidates]
        free = [not repeats(tokens, one[2], options.no_repeat_ngram, options.no_consecutive_repeat) for one in candidates]
        chosen = _ahead(candidates, free, options) if seed is None else _drawn(candidates, free, options, uniform(seed, vertex))
        score, vertex, token = candidates[chosen]
        tokens = (*tokens, token)
        found = Walk([*found.vertices, vertex], [*found.tokens, token], found.score + score)
    return found if vertex == len(graph) - 1 else found._replace(score=-math.inf)


def _ahead(candidates: Sequence[Candidate], free: Sequence[bool], options: DagWalkOptions) -> int:
    first = free.index(True) if True in free else 0
    skipped = sum(probability(score) for score, _, _ in candidates[:first])
    return first if skipped <= options.top_p or options.top_p >= 1 else 0


def _drawn(candidates: Sequence[Candidate], free: Sequence[bool], options: DagWalkOptions, number: float) -> int:
    held = np.cumsum([probability(score) for score, _, _ in candidates])
    count = len(candidates) if options.top_p >= 1 else int(np.sum(held <= options.top_p)) + 1
    weights = np.array([probability(one[0]) * (1 if ok else BANNED) for one, ok in zip(candidates, free, strict=True)][:count])
    return min(int(np.sum(np.cumsum(weights) <= number * weights.sum())), len(weights) - 1)
