"""Graphs of which a search only follows the best step from each vertex."""

from __future__ import annotations

import torch
from torch import Tensor

from fewstep.families.dag.config import DagSearch
from models.dag.model import DagModel, Source, empty_vertices
from models.dag.search import Followed, Graph, greedy, lookahead
from models.dag.vertices import TopTokens, top_k_tokens

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
        table = model.target_embedding
        return top_k_tokens(states, lengths, table, TOKENS, allow_unknown=search.allow_unknown, allowed=allowed)

    def tokens_on(path: Tensor) -> TopTokens:
        rows = torch.arange(len(path), device=path.device)[:, None]
        return top_tokens(states[rows, path.clamp(min=0)], (path >= 0).sum(1))

    if search.strategy == "greedy":
        return greedy(transitions, lengths, tokens_on)
    return lookahead(Graph(transitions, top_tokens(states, lengths), lengths), search.token_weight)
