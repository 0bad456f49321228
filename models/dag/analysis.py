"""What a network's graphs look like: where a target stands in them, how likely each vertex is, and what it would write.

Legend: M target tokens with BOS and EOS, L vertices of one graph.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from kernels import dag_best_alignment, dag_log_likelihood
from models.common.inference import at_work
from models.dag.loss import decoded_graphs
from models.dag.model import DagModel
from models.dag.vertices import Words, best_words
from models.training.batch import Batch


class View(NamedTuple):
    """One graph, its target in it; float64, on the CPU."""

    target: Tensor
    """[M] ids"""
    path: Tensor
    """[M] the vertex of each token on the best path; -1 throughout where the target has none"""
    first: Tensor
    """[L] the token that each vertex ranks first, reserved ones among them"""
    words: Words
    """[L,W] the best tokens of each vertex that a search could write, and their probabilities"""
    transitions: Tensor
    """[L,L] probability that the vertex of the column follows the vertex of the row"""
    passing: Tensor
    """[L] see `passing_probabilities`"""
    posteriors: Tensor
    """[M,L] given the target, the probability that a token stands at a vertex: the weights of section 3.2's gradient, summed over
    the paths through it (figure 3); 0 where the target has no path"""


def inspect(model: DagModel, batch: Batch, words: int) -> list[View]:
    """The graphs that decoding would make for a batch, each with its `words` best tokens a vertex."""
    with at_work(model) as device:
        found = decoded_graphs(model, batch.to(device))
        lengths, best = found.target.graph_lengths, found.graphs.best
        assert best is not None
        written = best_words(found.states, lengths, model.target_embedding, words, allow_unknown=True)
    # What was made for use alone cannot enter a gradient, copies can.
    tokens, transitions = (part.cpu().clone() for part in (found.graphs.tokens, found.graphs.transitions))
    ids, target_lengths, lengths = (part.cpu().clone() for part in found.target)
    path = dag_best_alignment(tokens, transitions, target_lengths, lengths).vertices
    posteriors = vertex_posteriors(tokens, transitions, target_lengths, lengths)
    edges = transitions.double().exp()
    passing = passing_probabilities(edges)
    scores, choices, first = written.scores.cpu().double().exp(), written.ids.cpu(), best.cpu()
    sizes = zip(target_lengths.tolist(), lengths.tolist(), strict=True)
    return [
        View(
            target=ids[row, :m],
            path=path[row, :m],
            first=first[row, :size],
            words=Words(scores[row, :size], choices[row, :size]),
            transitions=edges[row, :size, :size],
            passing=passing[row, :size],
            posteriors=posteriors[row, :m, :size].double(),
        )
        for row, (m, size) in enumerate(sizes)
    ]


def passing_probabilities(transitions: Tensor) -> Tensor:
    """[B,L]: how likely a path drawn by transition probabilities [B,L,L] alone comes through each vertex (section 4.3):
    pass(0) = 1, pass(u) = sum over v < u of pass(v) E(v -> u)."""
    passing = torch.zeros_like(transitions[:, 0])
    passing[:, 0] = 1.0
    for vertex in range(1, passing.size(1)):
        passing[:, vertex] = (passing[:, :vertex] * transitions[:, :vertex, vertex]).sum(1)
    return passing


def vertex_posteriors(tokens: Tensor, transitions: Tensor, target_lengths: Tensor, lengths: Tensor) -> Tensor:
    """[B,M,L] of token scores [B,M,L] and transitions [B,L,L] (log-probabilities): the gradient of the log-likelihood."""
    with torch.enable_grad():
        scores = tokens.detach().requires_grad_()
        total = dag_log_likelihood(scores, transitions, target_lengths, lengths).sum()
        (found,) = torch.autograd.grad(total, scores)
    return found


def likeliest(transitions: Tensor, share: float) -> Tensor:
    """[L,L] True at the fewest transitions of each row of probabilities that make up `share` of them."""
    ordered, columns = transitions.sort(stable=True, dim=1, descending=True)
    before = ordered.cumsum(1) - ordered
    return torch.zeros_like(transitions, dtype=torch.bool).scatter(1, columns, (before < share - 1e-6) & (ordered > 0))
