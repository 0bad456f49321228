"""Searches of a batch of graphs, given the scores of their transitions and tokens.

Legend: B batch, L vertices, D next vertices that may follow a vertex, W tokens of a vertex, C candidates of a vertex.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from fewstep.families.dag.config import DagSearch
from fewstep.search.dag_beam import DagBeamOptions, dag_beam_search
from fewstep.search.dag_paths import DagViterbiOptions, DagWalkOptions, DagWalks, dag_lookahead, dag_viterbi
from fewstep.sources import Ints
from fewstep.translation import Hypothesis

Floats = npt.NDArray[np.float32]


class TopTokens(NamedTuple):
    """The best tokens of each vertex, best first."""

    scores: Floats
    """The log-probabilities, [B,L,W]; minus infinity where there are fewer tokens."""
    ids: Ints
    """The token ids, [B,L,W]."""


class Graph(NamedTuple):
    """A batch of graphs."""

    transitions: Floats
    """The log-probabilities [B,L,D] that vertex i + 1 + d follows vertex i."""
    tokens: TopTokens
    lengths: Ints
    """The numbers of vertices, [B]."""


class Candidates(NamedTuple):
    """The best pairs of next vertex and token of each vertex, best first."""

    scores: Floats
    """The weighted log-probabilities, [B,L,C]."""
    vertices: Ints
    """The next vertices, [B,L,C]."""
    ids: Ints
    """The token ids, [B,L,C]."""


def search_graph(graph: Graph, search: DagSearch, ngram: Any = None, threads: int = 1) -> list[list[Hypothesis]]:
    """Return the hypotheses of each graph, best first, by a strategy of `STRATEGIES`; `ngram` is a scorer over target ids."""
    return [finished(ranked, search) for ranked in STRATEGIES[search.strategy](graph, search, ngram, threads)]


def tokens_needed(search: DagSearch) -> int:
    """Return the number of tokens per vertex that a search reads. Margins need two."""
    walks = search.strategy in ("beam", "sample") or search.no_repeat_ngram or search.no_consecutive_repeat
    return search.candidates if walks else 2


def follows(search: DagSearch) -> bool:
    """Return whether a search takes the best step from each vertex, independently of the tokens before it."""
    repeats = search.no_repeat_ngram or search.no_consecutive_repeat
    return search.strategy == "greedy" or (search.strategy == "lookahead" and not repeats)


def finished(ranked: list[Hypothesis], search: DagSearch) -> list[Hypothesis]:
    """Return hypotheses, without adjacent equal tokens if the search writes these once."""
    if not search.writes_repeats_once:
        return ranked
    return [replace(hypothesis, ids=[token for token, _ in groupby(hypothesis.ids)]) for hypothesis in ranked]


def choose_graphs(graphs: Sequence[list[list[Hypothesis]]], search: DagSearch) -> list[list[Hypothesis]]:
    """Return the best hypotheses of each sentence, from those of several graphs of it, the one of the most probable length first.

    Scores are divided by (tokens with EOS)^`length_penalty` unless the search of a graph does so. Outputs are distinct; of equal
    scores the one of the more probable length wins. Margins count the gaps between the outputs.
    """
    if len(graphs) == 1:
        return graphs[0]
    return [_merged([list(ranked) for ranked in sentence], search) for sentence in zip(*graphs, strict=True)]


def _merged(graphs: list[list[Hypothesis]], search: DagSearch) -> list[Hypothesis]:
    ranked = [_divided(one, search) for hypotheses in graphs for one in hypotheses]
    ranked.sort(key=lambda one: -one.score)
    first: dict[tuple[int, ...], Hypothesis] = {}
    for one in ranked:
        first.setdefault(tuple(one.ids), one)
    best = list(first.values())
    if any("margin" in one.statistics for one in best):
        gaps = [before.score - after.score for before, after in pairwise(best)][: search.n_best]
        margin = min(*(one.statistics["margin"] for one in ranked), *gaps, math.inf)
        best = [replace(one, statistics={**one.statistics, "margin": margin}) for one in best]
    return best[: search.n_best]


def _divided(hypothesis: Hypothesis, search: DagSearch) -> Hypothesis:
    if search.divides_by_length:
        return hypothesis
    return replace(hypothesis, score=hypothesis.score / (len(hypothesis.ids) + 1) ** search.length_penalty)


def candidates(transitions: Floats, tokens: TopTokens, count: int, token_weight: float) -> Candidates:
    """Return the best `count` candidates of each vertex, by the transition [B,L,D] plus `token_weight` times the token's score.

    The `count` best pairs of a vertex lead to its `count` best next vertices, ranked with the best token of each.
    """
    sentences, size, width = tokens.scores.shape
    weighted = _weighted(tokens.scores, token_weight)
    band = transitions.shape[2]
    following = sliding_window_view(np.pad(weighted[:, 1:, 0], ((0, 0), (0, band))), band, axis=1)
    offsets = _best(transitions + following, min(count, band))
    steps = np.take_along_axis(transitions, offsets, 2)
    vertices = np.minimum(np.arange(1, size + 1)[:, None] + offsets, size - 1)
    rows = np.arange(sentences)[:, None, None]
    pairs = (steps[..., None] + weighted[rows, vertices]).reshape(sentences, size, -1)
    chosen = _best(pairs, min(count, pairs.shape[2]))
    next_vertices = np.take_along_axis(vertices, chosen // width, 2)
    ids = np.take_along_axis(tokens.ids[rows, vertices].reshape(sentences, size, -1), chosen, 2)
    return Candidates(np.take_along_axis(pairs, chosen, 2), next_vertices, ids)


def _weighted(scores: Floats, weight: float) -> Floats:
    """Return `weight` times the scores, minus infinity where these are not finite."""
    weighted = np.full_like(scores, -np.inf)
    np.multiply(scores, np.float32(weight), out=weighted, where=np.isfinite(scores))
    return weighted


def _best(values: Floats, count: int) -> Ints:
    """Return the indices [...,count] of the highest values of [...,N], highest first."""
    if count < values.shape[-1]:
        found = np.argpartition(values, -count, axis=-1)[..., -count:]
        found.sort(axis=-1)  # equal values in the order of their indices
        order = np.argsort(-np.take_along_axis(values, found, -1), axis=-1, kind="stable")
        return np.take_along_axis(found, order, -1)
    return np.argsort(-values, axis=-1, kind="stable")


def _lookahead(graph: Graph, search: DagSearch, ngram: Any, threads: int) -> list[list[Hypothesis]]:
    return walked(dag_lookahead(*_pairs(graph, search), graph.lengths, options=walk_options(search, threads)))


def _viterbi(graph: Graph, search: DagSearch, ngram: Any, threads: int) -> list[list[Hypothesis]]:
    best = graph.tokens.scores[..., 0]
    weighted = _weighted(best, search.token_weight) if search.strategy == "joint-viterbi" else np.zeros_like(best)
    options = DagViterbiOptions(length_exponent=search.length_penalty, threads=threads)
    found = dag_viterbi(graph.transitions, np.ascontiguousarray(weighted), graph.lengths, options=options)
    ids = np.take_along_axis(graph.tokens.ids[..., 0], found.vertices.clip(min=0), 1)
    rows = zip(ids.tolist(), found.lengths.tolist(), found.scores.tolist(), strict=True)
    return [[Hypothesis(row[1 : count + 1], score, 1)] for row, count, score in rows]


def _beam(graph: Graph, search: DagSearch, ngram: Any, threads: int) -> list[list[Hypothesis]]:
    options = DagBeamOptions(
        beam_size=search.beam_size,
        beams_per_length=search.beams_per_length,
        top_p=search.top_p,
        length_penalty=search.length_penalty,
        length_convention=search.length_convention,
        ngram_weight=search.ngram_weight,
        n_best=search.n_best,
        no_repeat_ngram=search.no_repeat_ngram,
        no_consecutive_repeat=search.no_consecutive_repeat,
        deduplicate=search.writes_repeats_once,
        threads=threads,
    )
    found = dag_beam_search(*_pairs(graph, search), graph.lengths, options=options, ngram=ngram if search.ngram_weight else None)
    return [[Hypothesis(list(one.ids), one.score, 1) for one in ranked] for ranked in found]


def _pairs(graph: Graph, search: DagSearch) -> Candidates:
    return candidates(graph.transitions, graph.tokens, search.candidates, search.token_weight)


def walk_options(search: DagSearch, threads: int) -> DagWalkOptions:
    """Return the options of a walk."""
    return DagWalkOptions(
        top_p=search.top_p,
        no_repeat_ngram=search.no_repeat_ngram,
        no_consecutive_repeat=search.no_consecutive_repeat,
        threads=threads,
    )


def walked(walks: DagWalks) -> list[list[Hypothesis]]:
    """Return the hypothesis of each walk."""
    return [
        [Hypothesis([token for token in row if token >= 0], score, 1)]
        for row, score in zip(walks.token_ids.tolist(), walks.scores.tolist(), strict=True)
    ]


STRATEGIES: dict[str, Callable[[Graph, DagSearch, Any, int], list[list[Hypothesis]]]] = {
    "lookahead": _lookahead,
    "viterbi": _viterbi,
    "joint-viterbi": _viterbi,
    "beam": _beam,
}
"""The searches of whole graphs. Those that only follow the best step from each vertex (`follows`) need none."""
