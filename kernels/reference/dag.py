"""Reference losses and best paths of directed acyclic graphs, in torch, differentiated by autograd, for any device and type.

    alpha[0,0] = token[0,0], minus infinity for other vertices
    alpha[t,j] = token[t,j] + log sum_{i<j} exp(alpha[t-1,i] + transition[i,j])
    log Z      = alpha[M-1,L-1]

M and L are the lengths of the sentence itself.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.dag import dense_transitions


def dag_log_likelihood(
    token_log_probs: Tensor, transition_log_probs: Tensor, target_lengths: Tensor, graph_lengths: Tensor
) -> Tensor:
    """Return [B], as `kernels.dag_log_likelihood`, by dense transitions [B,L,L]; a step stores as much for its gradient."""
    tokens, transitions = _masked(token_log_probs, transition_log_probs, target_lengths, graph_lengths)
    alpha = _start(tokens)
    rows = [alpha]
    for t in range(1, tokens.size(1)):
        alpha = tokens[:, t] + _log_sum(alpha[:, :, None] + transitions)
        rows.append(alpha)
    return _ends(torch.stack(rows, 1), target_lengths, graph_lengths)


def dag_best_alignment(
    token_log_probs: Tensor, transition_log_probs: Tensor, target_lengths: Tensor, graph_lengths: Tensor
) -> tuple[Tensor, Tensor]:
    """Return vertices [B,M] and scores [B], as `kernels.dag_best_alignment`: the same recurrence with max; lowest vertex first."""
    tokens, transitions = _masked(token_log_probs, transition_log_probs, target_lengths, graph_lengths)
    rows, predecessors = [_start(tokens)], [torch.zeros_like(graph_lengths)[:, None].expand(-1, tokens.size(2))]
    for t in range(1, tokens.size(1)):
        candidates = rows[-1][:, :, None] + transitions
        best = candidates.amax(1)
        predecessors.append((candidates == best[:, None]).int().argmax(1))  # argmax returns the first of equal values
        rows.append(tokens[:, t] + best)
    scores = _ends(torch.stack(rows, 1), target_lengths, graph_lengths)
    vertices = torch.full(tokens.shape[:2], -1, device=tokens.device)
    for b, (length, end) in enumerate(zip(target_lengths.tolist(), graph_lengths.tolist(), strict=True)):
        vertex = end - 1
        for t in reversed(range(length if scores[b] > -torch.inf else 0)):
            vertices[b, t] = vertex
            vertex = int(predecessors[t][b, vertex])
    return vertices, scores


def _masked(tokens: Tensor, transitions: Tensor, target_lengths: Tensor, graph_lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Return scores that are minus infinity, without gradient, wherever no path may go."""
    t, j = (torch.arange(tokens.size(dimension), device=tokens.device) for dimension in (1, 2))
    inside = j < graph_lengths[:, None]
    emits = (t < target_lengths[:, None])[:, :, None] & inside[:, None]
    return tokens.masked_fill(~emits, -torch.inf), dense_transitions(transitions).masked_fill(~inside[:, None], -torch.inf)


def _start(tokens: Tensor) -> Tensor:
    return tokens[:, 0].masked_fill(torch.arange(tokens.size(2), device=tokens.device) > 0, -torch.inf)


def _ends(alpha: Tensor, target_lengths: Tensor, graph_lengths: Tensor) -> Tensor:
    """Return alpha[M-1,L-1] of each sentence by its own lengths; minus infinity, without gradient, if no path reaches it."""
    sentences = torch.arange(len(alpha), device=alpha.device)
    ends = alpha[sentences, (target_lengths - 1).clamp_min(0), (graph_lengths - 1).clamp_min(0)]
    return ends.masked_fill((target_lengths < 1) | (graph_lengths < 1) | (ends == -torch.inf), -torch.inf)


def _log_sum(x: Tensor) -> Tensor:
    """Return log sum exp over dimension 1; where all are minus infinity, minus infinity with zero gradient."""
    none = (x == -torch.inf).all(1)
    return x.masked_fill(none[:, None], 0.0).logsumexp(1).masked_fill(none, -torch.inf)
