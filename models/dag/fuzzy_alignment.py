"""Fuzzy alignment of a graph with its target (Ma et al. 2023): both are compared as bags of n-grams, over all paths and tokens.

Legend: B batch, M target tokens with BOS and EOS, L vertices, G n-grams of a target. With transitions E, token probabilities P and
an order n,

    pass[j]  = sum_i pass[i] E[i,j],   pass[0] = 1           probability that a path visits vertex j
    length   = sum_j pass[j]                                 expected number of tokens
    N        = sum_j (pass E^(n-1))[j]                       expected number of n-grams
    f_1[g,j] = pass[j] P[j,w_1],   f_k[g,j] = sum_i f_{k-1}[g,i] E[i,j] P[j,w_k],   c[g] = sum_j f_n[g,j]
    F        = min(1, exp(1 - M / length)) sum_g min(c[g], r[g]) / N

where r[g] is the number of times that the target has the n-gram g = w_1 .. w_n. Expected counts are exact; the minimum, the
quotient and the brevity penalty are taken of expectations (their section 3.2). Probabilities are at most 1 and so are sums of
them over paths, so that nothing overflows; terms that underflow are below the precision of the sums.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from models.common.losses.target_ngrams import clipped_matches, target_ngrams
from models.dag.band import Edges, next_values


class FuzzyAlignment(NamedTuple):
    """The agreement of graphs with their targets."""

    scores: Tensor
    """F, the clipped precision times the brevity penalty, [B] from 0 to 1."""
    precision: Tensor
    """The matched share of the graph's n-grams, [B]."""
    recall: Tensor
    """The matched share of the target's n-grams, [B]; 0 for a target without n-grams."""
    lengths: Tensor
    """The expected numbers of tokens, with BOS and EOS, [B]."""
    brevity: Tensor
    """The brevity penalty, [B]."""


def fuzzy_alignment(
    token_log_probs: Tensor, transition_log_probs: Tensor, ids: Tensor, target_lengths: Tensor, graph_lengths: Tensor, *, order: int
) -> FuzzyAlignment:
    """Return the agreement of graphs with targets [B,M] by n-grams of `order`; differentiable.

    `token_log_probs` [B,M,L] and `transition_log_probs` [B,L,D] are as for `kernels.dag_log_likelihood`; the rows of transitions
    are normalised. A target may be longer than its graph. Cells of the padding are not read. The computation is in float32 (float64
    for float64 inputs). A target or a graph with fewer than `order` tokens or vertices has a score of 0.
    """
    dtype = torch.promote_types(token_log_probs.dtype, torch.float32)
    with torch.autocast(token_log_probs.device.type, enabled=False):
        edges = _edges(transition_log_probs.to(dtype), graph_lengths)
        tokens = _tokens(token_log_probs.to(dtype), target_lengths, graph_lengths)
        passing = edges.passing()
        counts = target_ngrams(ids, target_lengths, order)
        matched = clipped_matches(expected_ngrams(passing, edges, tokens, order), counts)
        total = _expected_total(passing, edges, order)
    lengths = passing.sum(1)
    precision = matched / total.where(total > 0, 1.0)
    recall = matched / (target_lengths - order + 1).clamp(min=1)
    brevity = (1.0 - target_lengths / lengths).clamp(max=0.0).exp()
    return FuzzyAlignment(brevity * precision, precision, recall, lengths, brevity)


def expected_ngrams(passing: Tensor, edges: Edges, tokens: Tensor, order: int) -> Tensor:
    """Return the expected number [B,G] of the n-gram at each position of the targets, for probabilities of passing vertices [B,L],
    transitions and target tokens [B,M,L]."""
    positions = max(tokens.size(1) - order + 1, 0)
    found = passing[:, None] * tokens[:, :positions]
    for offset in range(1, order):
        found = edges.step(found) * tokens[:, offset : offset + positions]
    return found.sum(2)


def _expected_total(passing: Tensor, edges: Edges, order: int) -> Tensor:
    """Return the expected number [B] of n-grams."""
    starts = passing[:, None]
    for _ in range(1, order):
        starts = edges.step(starts)
    return starts.sum((1, 2))


def _edges(transitions: Tensor, graph_lengths: Tensor) -> Edges:
    """Return the transition probabilities for log-probabilities [B,L,D], 0 where there is no transition."""
    later = torch.arange(transitions.size(1), device=transitions.device) < graph_lengths[:, None]
    allowed = next_values(later, transitions.size(2))
    return Edges.of(transitions.masked_fill(~allowed, -torch.inf).exp())


def _tokens(scores: Tensor, target_lengths: Tensor, graph_lengths: Tensor) -> Tensor:
    """Return the token probabilities [B,M,L], 0 in the padding of targets and graphs."""
    token = torch.arange(scores.size(1), device=scores.device) < target_lengths[:, None]
    vertex = torch.arange(scores.size(2), device=scores.device) < graph_lengths[:, None]
    return scores.masked_fill(~(token[:, :, None] & vertex[:, None]), -torch.inf).exp()
