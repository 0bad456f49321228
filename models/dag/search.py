"""Searches of a batch of graphs, given the scores of their transitions and tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fewstep import (
    DagBeamOptions,
    DagViterbiOptions,
    DagWalkOptions,
    dag_beam_search,
    dag_follow,
    dag_lookahead,
    dag_sample,
    dag_viterbi,
)
from fewstep.families.dag.config import DagSearch
from fewstep.translation import Hypothesis
from models.dag.vertices import Candidates, TopTokens, candidates
from models.training.seeds import seed_of


class Graph(NamedTuple):
    """A batch of graphs, on the CPU."""

    transitions: Tensor
    """The log-probabilities of transitions, [B,L,L]."""
    tokens: TopTokens
    lengths: Tensor
    """The numbers of vertices, [B]."""


def search_graph(graph: Graph, search: DagSearch, sources: Sequence[Sequence[int]], ngram: Any = None) -> list[list[Hypothesis]]:
    """Return the hypotheses of each graph, best first. All strategies are valid except `greedy`, which does not need a whole graph.

    `sources` determine the seeds of samples; `ngram` is a scorer over target ids.
    """
    found = _STRATEGIES[search.strategy](graph, search, sources, ngram)
    return [finished(ranked, search) for ranked in found]


def tokens_needed(search: DagSearch) -> int:
    """Return the number of tokens per vertex that a search reads. Margins need two."""
    walks = search.strategy in ("beam", "sample") or search.no_repeat_ngram or search.no_consecutive_repeat
    return search.candidates if walks else 2


def follows(search: DagSearch) -> bool:
    """Return whether a search takes the best step from each vertex, independently of the tokens before it."""
    repeats = search.no_repeat_ngram or search.no_consecutive_repeat
    return search.strategy == "greedy" or (search.strategy == "lookahead" and not repeats)


def finished(ranked: list[Hypothesis], search: DagSearch) -> list[Hypothesis]:
    """Return hypotheses without repeated tokens if the search deduplicates."""
    if not search.deduplicate:
        return ranked
    return [replace(hypothesis, ids=[token for token, _ in groupby(hypothesis.ids)]) for hypothesis in ranked]


def greedy(transitions: Tensor, lengths: Tensor, tokens_on: Callable[[Tensor], TopTokens]) -> list[list[Hypothesis]]:
    """Follow the best of transitions [B,L,L] from vertex to vertex.

    `tokens_on` returns the best tokens on paths [B,P], which are padded with -1.
    """
    path = _follow(transitions, lengths)
    return _hypotheses(path, transitions, tokens_on(path.vertices))


class _Path(NamedTuple):
    """The path through each graph of a batch."""

    vertices: Tensor
    """The vertices on the paths, [B,P], padded with -1."""
    margins: Tensor
    """The gap between the best and the second best step from each vertex, [B,P]."""


def _lookahead(graph: Graph, search: DagSearch, sources: Sequence[Sequence[int]], ngram: Any) -> list[list[Hypothesis]]:
    if not follows(search):
        return _walked(dag_lookahead(*_pairs(graph, search), graph.lengths, options=_walk_options(search)))
    path = _follow(graph.transitions + search.token_weight * graph.tokens.scores[:, None, :, 0], graph.lengths)
    rows = torch.arange(len(path.vertices))[:, None]
    tokens = TopTokens(*(part[rows, path.vertices.clamp(min=0)] for part in graph.tokens))
    return _hypotheses(path, graph.transitions, tokens)


def _follow(scores: Tensor, lengths: Tensor) -> _Path:
    """Follow the best score [B,L,L] from vertex to vertex."""
    best, vertices = scores.topk(min(2, scores.size(2)), 2)
    path = torch.from_numpy(dag_follow(vertices[..., 0].contiguous(), lengths))
    return _Path(path, _margin(best).gather(1, path.clamp(min=0)))


def _margin(best: Tensor) -> Tensor:
    """Return the gaps [...] between the best and the second best score of [...,2]; infinite if there is no second one."""
    if best.size(-1) < 2:
        return torch.full(best.shape[:-1], torch.inf)
    return torch.where(best[..., 1].isfinite(), best[..., 0] - best[..., 1], torch.inf)


def _hypotheses(path: _Path, transitions: Tensor, tokens: TopTokens) -> list[list[Hypothesis]]:
    """Return hypotheses of the best of tokens [B,P,W] on paths.

    The score is the sum over the path's transitions and tokens; the margin is the smallest margin of its steps and tokens.
    """
    real, vertices = path.vertices >= 0, path.vertices.clamp(min=0)
    steps = transitions[torch.arange(len(vertices))[:, None], vertices[:, :-1], vertices[:, 1:]]
    scores = tokens.scores[..., 0].where(real, 0.0).sum(1) + steps.where(real[:, 1:], 0.0).sum(1)
    inner = (real.sum(1) - 2).clamp(min=0).tolist()
    margins = torch.minimum(path.margins, _margin(tokens.scores)).where(real, torch.inf).amin(1).tolist()
    rows = zip(tokens.ids[..., 0].tolist(), inner, scores.tolist(), margins, strict=True)
    return [[Hypothesis(row[1 : count + 1], score, 1, {"margin": margin})] for row, count, score, margin in rows]


def _viterbi(graph: Graph, search: DagSearch, sources: Sequence[Sequence[int]], ngram: Any) -> list[list[Hypothesis]]:
    best = graph.tokens.scores[..., 0]
    weighted = search.token_weight * best if search.strategy == "joint-viterbi" else torch.zeros_like(best)
    options = DagViterbiOptions(length_exponent=search.length_penalty, threads=torch.get_num_threads())
    found = dag_viterbi(graph.transitions, weighted.contiguous(), graph.lengths, options=options)
    ids = graph.tokens.ids[..., 0].gather(1, torch.from_numpy(found.vertices).clamp(min=0))
    rows = zip(ids.tolist(), found.lengths.tolist(), found.scores.tolist(), strict=True)
    return [[Hypothesis(row[1 : count + 1], score, 1)] for row, count, score in rows]


def _beam(graph: Graph, search: DagSearch, sources: Sequence[Sequence[int]], ngram: Any) -> list[list[Hypothesis]]:
    options = DagBeamOptions(
        beam_size=search.beam_size,
        beams_per_length=search.beams_per_length,
        top_p=search.top_p,
        length_penalty=search.length_penalty,
        ngram_weight=search.ngram_weight,
        n_best=search.n_best,
        no_repeat_ngram=search.no_repeat_ngram,
        no_consecutive_repeat=search.no_consecutive_repeat,
        deduplicate=search.deduplicate,
        threads=torch.get_num_threads(),
    )
    found = dag_beam_search(*_pairs(graph, search), graph.lengths, options=options, ngram=ngram if search.ngram_weight else None)
    return [[Hypothesis(list(one.ids), one.score, 1) for one in ranked] for ranked in found]


def _sample(graph: Graph, search: DagSearch, sources: Sequence[Sequence[int]], ngram: Any) -> list[list[Hypothesis]]:
    scaled = graph._replace(
        transitions=(graph.transitions / search.sampling.temperature).log_softmax(2).nan_to_num(nan=-torch.inf, neginf=-torch.inf)
    )
    pairs = _pairs(scaled, search)
    found: list[list[Hypothesis]] = [[] for _ in sources]
    for number in range(search.n_best):
        seeds = torch.tensor([seed_of(search.sampling.seed, number, *source) for source in sources], dtype=torch.int64)
        walks = _walked(dag_sample(*pairs, graph.lengths, seeds=seeds, options=_walk_options(search)))
        for ranked, walk in zip(found, walks, strict=True):
            ranked.extend(walk)
    return [sorted(ranked, key=lambda one: -one.score) for ranked in found]


def _pairs(graph: Graph, search: DagSearch) -> Candidates:
    found = candidates(graph.transitions, graph.tokens, search.candidates, search.token_weight)
    return Candidates(*(part.contiguous() for part in found))


def _walk_options(search: DagSearch) -> DagWalkOptions:
    return DagWalkOptions(
        top_p=search.top_p,
        no_repeat_ngram=search.no_repeat_ngram,
        no_consecutive_repeat=search.no_consecutive_repeat,
        threads=torch.get_num_threads(),
    )


def _walked(walks: Any) -> list[list[Hypothesis]]:
    return [
        [Hypothesis([token for token in row if token >= 0], score, 1)]
        for row, score in zip(walks.token_ids.tolist(), walks.scores.tolist(), strict=True)
    ]


_STRATEGIES = {
    "lookahead": _lookahead,
    "viterbi": _viterbi,
    "joint-viterbi": _viterbi,
    "beam": _beam,
    "sample": _sample,
}
