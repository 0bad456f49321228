"""Searches of a batch of graphs in torch: those that follow a path, and samples. The runtime has the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

import fewstep.families.dag.search as runtime
from fewstep.families.dag.config import DagSearch
from fewstep.families.dag.search import candidates, finished, follows, walk_options, walked
from fewstep.search.dag_paths import dag_sample
from fewstep.translation import Hypothesis
from models.dag.band import next_values
from models.dag.vertices import VertexTokens
from models.dag.viterbi import follow
from models.training.seeds import seed_of


class GraphTensors(NamedTuple):
    """A batch of graphs; on the CPU for all searches but `lookahead`."""

    transitions: Tensor
    """The log-probabilities of transitions to the D next vertices, [B,L,D]."""
    tokens: VertexTokens
    lengths: Tensor
    """The numbers of vertices, [B]."""

    @classmethod
    def of(cls, graph: runtime.Graph) -> GraphTensors:
        """Return graphs as tensors that share the memory of the arrays."""
        tokens = VertexTokens(*(torch.from_numpy(part) for part in graph.tokens))
        return cls(torch.from_numpy(graph.transitions), tokens, torch.from_numpy(graph.lengths))

    def numpy(self) -> runtime.Graph:
        """Return the graphs as arrays that share the memory of the tensors."""
        tokens = runtime.TopTokens(*(part.numpy() for part in self.tokens))
        return runtime.Graph(self.transitions.numpy(), tokens, self.lengths.numpy())


def search_on_host(
    graph: GraphTensors, search: DagSearch, sources: Sequence[Sequence[int]], ngram: Any = None, threads: int = 1
) -> list[list[Hypothesis]]:
    """Return the hypotheses of each graph, best first. All strategies are valid except `greedy`, which does not need a whole graph.

    `sources` determine the seeds of samples; `ngram` is a scorer over target ids.
    """
    if search.strategy == "sample":
        return [finished(ranked, search) for ranked in _sample(graph, search, sources, threads)]
    if follows(search):
        return [finished(ranked, search) for ranked in lookahead(graph, search.token_weight).hypotheses()]
    return runtime.search_graph(graph.numpy(), search, ngram, threads)


class Path(NamedTuple):
    """The path through each graph of a batch."""

    vertices: Tensor
    """The vertices on the paths, [B,P], padded with -1."""
    margins: Tensor
    """The gap between the best and the second best step from each vertex, [B,P]."""


class FollowedPaths(NamedTuple):
    """The best tokens on the path of each graph of a batch."""

    ids: Tensor
    """The tokens [B,P] from BOS to EOS; the first `counts + 2` of each row count."""
    counts: Tensor
    """The number of tokens between BOS and EOS, [B]."""
    scores: Tensor
    """The sum of the log-probabilities of the path's transitions and tokens, [B]."""
    margins: Tensor
    """The smallest margin of the path's steps and tokens, [B]."""

    def hypotheses(self) -> list[list[Hypothesis]]:
        """Return the hypothesis of each graph."""
        rows = zip(*(part.tolist() for part in self), strict=True)
        return [[Hypothesis(row[1 : count + 1], score, 1, {"margin": margin})] for row, count, score, margin in rows]


def greedy(transitions: Tensor, lengths: Tensor, tokens_on: Callable[[Tensor], VertexTokens]) -> FollowedPaths:
    """Follow the best of transitions [B,L,D] from vertex to vertex.

    `tokens_on` returns the best tokens on paths [B,P], which are padded with -1.
    """
    path = _follow(transitions, lengths)
    return _followed(path, transitions, tokens_on(path.vertices))


def lookahead(graph: GraphTensors, token_weight: float) -> FollowedPaths:
    """Follow the best sum of a transition and the weighted score of the best token of its vertex."""
    best = next_values(token_weight * graph.tokens.scores[..., 0], graph.transitions.size(2))
    path = _follow(graph.transitions + best, graph.lengths)
    rows = torch.arange(len(path.vertices), device=path.vertices.device)[:, None]
    tokens = VertexTokens(*(part[rows, path.vertices.clamp(min=0)] for part in graph.tokens))
    return _followed(path, graph.transitions, tokens)


def _follow(scores: Tensor, lengths: Tensor) -> Path:
    """Follow the best score [B,L,D] from vertex to vertex."""
    best = scores.topk(min(2, scores.size(2)), 2).values
    steps = scores.argmax(2)  # the first of equal scores, as native code does; topk does not promise that
    vertex = torch.arange(scores.size(1), device=scores.device)
    following = (vertex + 1 + steps).where(best[..., 0] > -torch.inf, 0)
    path = jump(following, lengths)
    return Path(path, _margin(best).gather(1, path.clamp(min=0)))


def jump(following: Tensor, lengths: Tensor) -> Tensor:
    """Return the path [B,L] along the vertices `following` [B,L] to the last vertex of each graph, padded with -1.

    Pointer jumping instead of single steps: see `fewstep.search.dag_paths.dag_follow`, which takes a vertex at a time.
    """
    size = following.size(1)
    last = lengths[:, None] - 1
    vertex = torch.arange(size, device=following.device)
    goes_on = (following > vertex) & (following <= last) & (vertex < last)
    path = follow(torch.where(goes_on, following, vertex), torch.zeros_like(following[:, :1]), size)
    return path.masked_fill(F.pad(path[:, 1:] == path[:, :-1], (1, 0)), -1)


def _margin(best: Tensor) -> Tensor:
    """Return the gaps [...] between the best and the second best score of [...,2]; infinite if there is no second one."""
    if best.size(-1) < 2:
        return torch.full(best.shape[:-1], torch.inf, device=best.device)
    return torch.where(best[..., 1].isfinite(), best[..., 0] - best[..., 1], torch.inf)


def _followed(path: Path, transitions: Tensor, tokens: VertexTokens) -> FollowedPaths:
    """Return the best of tokens [B,P,W] on paths."""
    real = path.vertices >= 0
    vertices = path.vertices.clamp(min=0)
    rows = torch.arange(len(vertices), device=vertices.device)[:, None]
    offsets = (vertices[:, 1:] - vertices[:, :-1] - 1).clamp(min=0)
    steps = transitions[rows, vertices[:, :-1], offsets]
    scores = tokens.scores[..., 0].where(real, 0.0).sum(1) + steps.where(real[:, 1:], 0.0).sum(1)
    margins = torch.minimum(path.margins, _margin(tokens.scores)).where(real, torch.inf).amin(1)
    return FollowedPaths(tokens.ids[..., 0], (real.sum(1) - 2).clamp(min=0), scores, margins)


def _tempered(graph: GraphTensors, search: DagSearch) -> GraphTensors:
    """Return a graph whose pairs of next vertex and token have the probabilities that `sample` draws them with.

    By the conventions of the paper these are P(vertex) P(token | vertex) of equation 9, raised to 1 / temperature and normalised
    for each vertex; tokens that are not ranked count together as one. By those of v2 only transitions are raised.
    """
    temperature = search.sampling.temperature
    weight = search.token_weight
    # In float64, so that the width of a band, which decides the order of sums on some CPUs, does not change a score.
    links = graph.transitions.double() / temperature
    tokens = graph.tokens.scores.double()
    if search.conventions == "v2" or temperature == 1.0:
        scaled = links.log_softmax(2)
    else:
        others = (1.0 - tokens.exp().sum(2, keepdim=True)).clamp(min=0.0).log()
        mass = (weight * torch.cat((tokens, others), 2) / temperature).logsumexp(2)
        scaled = links - (links + next_values(mass, links.size(2))).logsumexp(2, keepdim=True)
        raised = (tokens / temperature).to(graph.tokens.scores.dtype)
        graph = graph._replace(tokens=graph.tokens._replace(scores=raised))
    return graph._replace(transitions=scaled.nan_to_num(nan=-torch.inf, neginf=-torch.inf).to(graph.transitions.dtype))


def _sample(graph: GraphTensors, search: DagSearch, sources: Sequence[Sequence[int]], threads: int) -> list[list[Hypothesis]]:
    given = _tempered(graph, search).numpy()
    pairs = candidates(given.transitions, given.tokens, search.candidates, search.token_weight)
    options = walk_options(search, threads)
    found: list[list[Hypothesis]] = [[] for _ in sources]
    for number in range(search.n_best):
        seeds = torch.tensor([seed_of(search.sampling.seed, number, *source) for source in sources], dtype=torch.int64)
        walks = walked(dag_sample(*pairs, given.lengths, seeds=seeds, options=options))
        for ranked, walk in zip(found, walks, strict=True):
            ranked.extend(walk)
    return [sorted(ranked, key=lambda one: -one.score) for ranked in found]
