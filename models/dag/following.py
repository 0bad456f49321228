"""Graphs that are searched where they are: a search follows the best step from each vertex, or finds the best path."""

from __future__ import annotations

import torch
from torch import Tensor

from fewstep.families.dag.config import DagSearch
from models.dag.model import DagModel, Source, empty_vertices
from models.dag.search import Followed, Graph, greedy, lookahead
from models.dag.vertices import TopTokens, top_k_tokens
from models.dag.viterbi import BestPaths, best_paths

TOKENS = 2
"""The best tokens that are ranked: margins need two."""


def follow_graphs(
    model: DagModel, search: DagSearch, source: Source, lengths: Tensor, size: int, allowed: Tensor | None
) -> Followed:
    """Return the best tokens on the path of each graph, without waiting for the device.

    `lengths` [B] are the numbers of vertices, at most `size`; `allowed` [B,V] are shortlists. Greedy search ranks tokens only at
    the vertices of paths, about one vertex in `graph_factor`.
    """
    states = model.states(empty_vertices(lengths, size), lengths, source)
    transitions = model.transitions(states, lengths)

    def top_tokens(states: Tensor, lengths: Tensor) -> TopTokens:
        return _top_tokens(model, search, states, lengths, allowed)

    def tokens_on(path: Tensor) -> TopTokens:
        rows = torch.arange(len(path), device=path.device)[:, None]
        return top_tokens(states[rows, path.clamp(min=0)], (path >= 0).sum(1))

    if search.strategy == "greedy":
        return greedy(transitions, lengths, tokens_on)
    return lookahead(Graph(transitions, top_tokens(states, lengths), lengths), search.token_weight)


def viterbi_graphs(
    model: DagModel, search: DagSearch, source: Source, lengths: Tensor, size: int, allowed: Tensor | None, powers: Tensor
) -> BestPaths:
    """Return the tokens on the best path of each graph, by transitions or, for `joint-viterbi`, by transitions and tokens, without
    waiting for the device. `powers` are those of `models.dag.viterbi.length_powers`; other parameters as in `follow_graphs`."""
    states = model.states(empty_vertices(lengths, size), lengths, source)
    top = _top_tokens(model, search, states, lengths, allowed)
    best = top.scores[..., 0]
    if search.strategy == "joint-viterbi":
        weighted = torch.where(best.isfinite(), search.token_weight * best, -torch.inf)
    else:
        weighted = torch.zeros_like(best)
    return best_paths(model.transitions(states, lengths), weighted, top.ids[..., 0], lengths, powers)


def _top_tokens(model: DagModel, search: DagSearch, states: Tensor, lengths: Tensor, allowed: Tensor | None) -> TopTokens:
    table = model.target_embedding
    return top_k_tokens(states, lengths, table, TOKENS, allow_unknown=search.allow_unknown, allowed=allowed)
