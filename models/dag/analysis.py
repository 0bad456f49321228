"""Analysis of a network's graphs: the position of a target in them, and the probability and tokens of each vertex.

Legend: M target tokens with BOS and EOS, L vertices of one graph.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from kernels import dag_best_alignment, dag_log_likelihood, dense_transitions
from models.common.inference import inference_mode
from models.dag.loss import decoded_graphs
from models.dag.model import DagModel
from models.dag.vertices import VertexTokens, top_k_tokens
from models.training.batch import Batch


class View(NamedTuple):
    """One graph with its target; float64, on the CPU."""

    target: Tensor
    """The token ids [M]."""
    path: Tensor
    """The vertex of each token on the best path, [M]; all -1 if the target has no path."""
    first: Tensor
    """The token that each vertex ranks first, [L]; it may be a reserved one."""
    top_tokens: VertexTokens
    """The best tokens of each vertex that a search could write, [L,W], with probabilities as scores."""
    transitions: Tensor
    """The probability that the vertex of the column follows the vertex of the row, [L,L]."""
    passing: Tensor
    """The probability that a path passes each vertex, [L]; see `passing_probabilities`."""
    posteriors: Tensor
    """The probability of each vertex for each token given the target, [M,L]: the weights of the gradient in section 3.2, summed
    over the paths through the vertex (figure 3); 0 if the target has no path."""


def inspect(model: DagModel, batch: Batch, num_tokens: int) -> list[View]:
    """Return the graphs that decoding would compute for a batch, each with the best `num_tokens` tokens per vertex."""
    with inference_mode(model) as device:
        found = decoded_graphs(model, batch.to(device))
        lengths = found.target.graph_lengths
        best = found.graphs.best
        assert best is not None
        top = top_k_tokens(found.states, lengths, model, num_tokens, allow_unknown=True)
    # Tensors created in inference mode cannot take part in a gradient; their copies can.
    tokens, transitions = (part.cpu().clone() for part in (found.graphs.tokens, found.graphs.transitions))
    ids, target_lengths, lengths = (part.cpu().clone() for part in found.target[:3])
    path = dag_best_alignment(tokens, transitions, target_lengths, lengths).vertices
    posteriors = vertex_posteriors(tokens, transitions, target_lengths, lengths)
    edges = dense_transitions(transitions).double().exp()
    passing = passing_probabilities(edges)
    probabilities = top.scores.cpu().double().exp()
    top_ids, first = top.ids.cpu(), best.cpu()
    sizes = zip(target_lengths.tolist(), lengths.tolist(), strict=True)
    return [
        View(
            target=ids[row, :m],
            path=path[row, :m],
            first=first[row, :size],
            top_tokens=VertexTokens(probabilities[row, :size], top_ids[row, :size]),
            transitions=edges[row, :size, :size],
            passing=passing[row, :size],
            posteriors=posteriors[row, :m, :size].double(),
        )
        for row, (m, size) in enumerate(sizes)
    ]


def passing_probabilities(transitions: Tensor) -> Tensor:
    """Return the probability [B,L] that a path drawn by transition probabilities [B,L,L] alone passes each vertex (section 4.3).

    It is pass(0) = 1 and, for later vertices, pass(u) = sum over v < u of pass(v) E(v -> u).
    """
    passing = torch.zeros_like(transitions[:, 0])
    passing[:, 0] = 1.0
    for vertex in range(1, passing.size(1)):
        passing[:, vertex] = (passing[:, :vertex] * transitions[:, :vertex, vertex]).sum(1)
    return passing


def vertex_posteriors(tokens: Tensor, transitions: Tensor, target_lengths: Tensor, lengths: Tensor) -> Tensor:
    """Return the posteriors [B,M,L] of vertices for log-probabilities of tokens [B,M,L] and transitions [B,L,D].

    They are the gradient of the log-likelihood with respect to the token scores.
    """
    with torch.enable_grad():
        scores = tokens.detach().requires_grad_()
        total = dag_log_likelihood(scores, transitions, target_lengths, lengths).sum()
        (posteriors,) = torch.autograd.grad(total, scores)
    return posteriors


def most_probable(transitions: Tensor, share: float) -> Tensor:
    """Return a mask [L,L] of the fewest transitions of each row whose probabilities sum to at least `share`."""
    ordered, columns = transitions.sort(stable=True, dim=1, descending=True)
    before = ordered.cumsum(1) - ordered
    return torch.zeros_like(transitions, dtype=torch.bool).scatter(1, columns, (before < share - 1e-6) & (ordered > 0))
