"""Searches of a batch of graphs in torch: those that the runtime does not have, and those with margins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

import fewstep.families.dag.search as runtime
from fewstep.families.dag.config import DagSearch
from fewstep.families.dag.search import candidates, finished, follows, walk_options, walked
from fewstep.search.dag_paths import dag_follow, dag_sample
from fewstep.translation import Hypothesis
from models.dag.vertices import TopTokens
from models.training.seeds import seed_of


class Graph(NamedTuple):
    """A batch of graphs, on the CPU."""

    transitions: Tensor
    """The log-probabilities of transitions, [B,L,L]."""
    tokens: TopTokens
    lengths: Tensor
    """The numbers of vertices, [B]."""

    def numpy(self) -> runtime.Graph:
        """Return the graphs as arrays that share the memory of the tensors."""
        tokens = runtime.TopTokens(*(part.numpy() for part in self.tokens))
        return runtime.Graph(self.transitions.numpy(), tokens, self.lengths.numpy())


def search_graph(graph: Graph, search: DagSearch, sources: Sequence[Sequence[int]], ngram: Any = None) -> list[list[Hypothesis]]:
    """Return the hypotheses of each graph, best first. All strategies are valid except `greedy`, which does not need a whole graph.

    `sources` determine the seeds of samples; `ngram` is a scorer over target ids.
    """
    if search.strategy == "sample":
        return [finished(ranked, search) for ranked in _sample(graph, search, sources)]
    if follows(search):
        return [finished(ranked, search) for ranked in _lookahead(graph, search)]
    return runtime.search_graph(graph.numpy(), search, ngram, torch.get_num_threads())


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


def _lookahead(graph: Graph, search: DagSearch) -> list[list[Hypothesis]]:
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


def _sample(graph: Graph, search: DagSearch, sources: Sequence[Sequence[int]]) -> list[list[Hypothesis]]:
    scaled = (graph.transitions / search.sampling.temperature).log_softmax(2).nan_to_num(nan=-torch.inf, neginf=-torch.inf)
    given = graph._replace(transitions=scaled).numpy()
    pairs = candidates(given.transitions, given.tokens, search.candidates, search.token_weight)
    options = walk_options(search, torch.get_num_threads())
    found: list[list[Hypothesis]] = [[] for _ in sources]
    for number in range(search.n_best):
        seeds = torch.tensor([seed_of(search.sampling.seed, number, *source) for source in sources], dtype=torch.int64)
        walks = walked(dag_sample(*pairs, given.lengths, seeds=seeds, options=options))
        for ranked, walk in zip(found, walks, strict=True):
            ranked.extend(walk)
    return [sorted(ranked, key=lambda one: -one.score) for ranked in found]
