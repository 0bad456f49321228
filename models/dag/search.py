"""From a batch of graphs to hypotheses: the network is done, what is left is arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fewstep import DagBeamOptions, DagViterbiOptions, DagWalkOptions, dag_beam_search, dag_follow, dag_lookahead, dag_sample, dag_viterbi
from models.dag.config import DagSearch
from models.dag.vertices import Candidates, Words, candidates
from models.family import Hypothesis
from models.training.seeds import seed_of


class Graph(NamedTuple):
    """A batch of graphs, on the CPU."""

    transitions: Tensor
    """[B,L,L]"""
    words: Words
    lengths: Tensor
    """[B]"""


def search_graph(graph: Graph, search: DagSearch, sources: Sequence[Sequence[int]], ngram: Any = None) -> list[list[Hypothesis]]:
    """Hypotheses of each graph, best first, by any search but `greedy`, which needs less than a graph. `sources` seed their
    samples; `ngram` is a scorer over target ids."""
    found = _STRATEGIES[search.strategy](graph, search, sources, ngram)
    return [finished(ranked, search) for ranked in found]


def words_needed(search: DagSearch) -> int:
    """Tokens of each vertex that a search looks at; two tell how sure the best is."""
    walks = search.strategy in ("beam", "sample") or search.no_repeat_ngram or search.no_consecutive_repeat
    return search.candidates if walks else 2


def follows(search: DagSearch) -> bool:
    """Does a search take the best step from vertex to vertex, whatever was written before?"""
    repeats = search.no_repeat_ngram or search.no_consecutive_repeat
    return search.strategy == "greedy" or (search.strategy == "lookahead" and not repeats)


def finished(ranked: list[Hypothesis], search: DagSearch) -> list[Hypothesis]:
    """Hypotheses as they are returned."""
    if not search.deduplicate:
        return ranked
    return [replace(hypothesis, ids=[token for token, _ in groupby(hypothesis.ids)]) for hypothesis in ranked]


def greedy(transitions: Tensor, lengths: Tensor, words_at: Callable[[Tensor], Words]) -> list[list[Hypothesis]]:
    """From vertex to vertex by the best of transitions [B,L,L]. Then `words_at` is asked for the words on the paths [B,P], which
    are -1 behind their ends."""
    trail = _follow(transitions, lengths)
    return _written(trail, transitions, words_at(trail.vertices))


class _Trail(NamedTuple):
    """The way through each graph of a batch."""

    vertices: Tensor
    """[B,P], -1 behind the end"""
    gaps: Tensor
    """[B,P] how far the second best way to go on is behind"""


def _lookahead(graph: Graph, search: DagSearch, sources: Sequence[Sequence[int]], ngram: Any) -> list[list[Hypothesis]]:
    if not follows(search):
        return _walked(dag_lookahead(*_pairs(graph, search), graph.lengths, options=_walk_options(search)))
    trail = _follow(graph.transitions + search.token_weight * graph.words.scores[:, None, :, 0], graph.lengths)
    return _written(trail, graph.transitions, words_on(graph.words, trail.vertices))


def _follow(scores: Tensor, lengths: Tensor) -> _Trail:
    """From vertex to vertex by the best score [B,L,L]."""
    best, vertices = scores.topk(min(2, scores.size(2)), 2)
    path = torch.from_numpy(dag_follow(vertices[..., 0].contiguous(), lengths))
    return _Trail(path, _gap(best).gather(1, path.clamp(min=0)))


def _gap(best: Tensor) -> Tensor:
    """[...,2] to [...]: how far the second is behind; infinitely far where there is none."""
    if best.size(-1) < 2:
        return torch.full(best.shape[:-1], torch.inf)
    return torch.where(best[..., 1].isfinite(), best[..., 0] - best[..., 1], torch.inf)


def words_on(words: Words, path: Tensor) -> Words:
    """Of all vertices those on paths [B,P]."""
    rows = torch.arange(len(path))[:, None]
    return Words(*(part[rows, path.clamp(min=0)] for part in words))


def _written(trail: _Trail, transitions: Tensor, words: Words) -> list[list[Hypothesis]]:
    """The best of the words [B,P,W] on the way. A hypothesis scores its path: transitions and tokens; its margin is that of next
    vertices and tokens."""
    real, vertices = trail.vertices >= 0, trail.vertices.clamp(min=0)
    steps = transitions[torch.arange(len(vertices))[:, None], vertices[:, :-1], vertices[:, 1:]]
    scores = words.scores[..., 0].where(real, 0.0).sum(1) + steps.where(real[:, 1:], 0.0).sum(1)
    inner = (real.sum(1) - 2).clamp(min=0).tolist()
    margins = torch.minimum(trail.gaps, _gap(words.scores)).where(real, torch.inf).amin(1).tolist()
    rows = zip(words.ids[..., 0].tolist(), inner, scores.tolist(), margins, strict=True)
    return [[Hypothesis(row[1 : count + 1], score, 1, {"margin": gap})] for row, count, score, gap in rows]


def _viterbi(graph: Graph, search: DagSearch, sources: Sequence[Sequence[int]], ngram: Any) -> list[list[Hypothesis]]:
    best = graph.words.scores[..., 0]
    weighted = search.token_weight * best if search.strategy == "joint-viterbi" else torch.zeros_like(best)
    options = DagViterbiOptions(length_exponent=search.length_penalty, threads=torch.get_num_threads())
    found = dag_viterbi(graph.transitions, weighted.contiguous(), graph.lengths, options=options)
    ids = graph.words.ids[..., 0].gather(1, torch.from_numpy(found.vertices).clamp(min=0))
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
    cooled = graph._replace(
        transitions=(graph.transitions / search.sampling.temperature).log_softmax(2).nan_to_num(nan=-torch.inf, neginf=-torch.inf)
    )
    pairs = _pairs(cooled, search)
    found: list[list[Hypothesis]] = [[] for _ in sources]
    for number in range(search.n_best):
        seeds = torch.tensor([seed_of(search.sampling.seed, number, *source) for source in sources], dtype=torch.int64)
        walks = _walked(dag_sample(*pairs, graph.lengths, seeds=seeds, options=_walk_options(search)))
        for ranked, walk in zip(found, walks, strict=True):
            ranked.extend(walk)
    return [sorted(ranked, key=lambda one: -one.score) for ranked in found]


def _pairs(graph: Graph, search: DagSearch) -> Candidates:
    found = candidates(graph.transitions, graph.words, search.candidates, search.token_weight)
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
