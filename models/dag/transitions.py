"""Gated multi-head transitions of a directed acyclic graph without ever holding all heads of a batch.

Legend: B batch, L vertices, H heads, D width. With d = D/H, for each head h and vertices i < j < graph_length

    p_h(j | i)    = softmax over j of q_ih . k_jh / sqrt(d)
    log E(i -> j) = log sum_h gate_h(i) p_h(j | i)

so that rows sum to 1: a mixture of softmaxes (Huang et al. 2022, with several heads as in their programs).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

CPU_SCORES, GPU_SCORES = 2**21, 2**26
"""Scores of all heads held at a time, unless one sentence alone has more."""


def transition_log_probs(queries: Tensor, keys: Tensor, log_gates: Tensor, graph_lengths: Tensor) -> Tensor:
    """[B,L,L] float32: log E(i -> j), minus infinity where there is none, as in the rows of the last vertex and of those past it.

    Queries and keys [B,L,H,D/H], log_gates [B,L,H] (normalised over heads), graph_lengths [B]. All is computed in float32 (float64
    of float64), some sentences at a time, and again for the gradient.
    """
    dtype = torch.promote_types(queries.dtype, torch.float32)
    with torch.autocast(queries.device.type, enabled=False):
        found: Tensor = _Transitions.apply(queries.to(dtype), keys.to(dtype), log_gates.to(dtype), graph_lengths)  # type: ignore[no-untyped-call]
        return found


def _parts(queries: Tensor) -> Iterator[slice]:
    """Sentences that are done together."""
    batch, size, heads, _ = queries.shape
    held = CPU_SCORES if queries.device.type == "cpu" else GPU_SCORES
    some = max(1, held // max(1, heads * size * size))
    return (slice(start, start + some) for start in range(0, batch, some))


def _allowed(lengths: Tensor, size: int) -> Tensor:
    """[B,1,L,L]: j comes after i, inside the graph."""
    places = torch.arange(size, device=lengths.device)
    return ((places > places[:, None]) & (places < lengths[:, None, None]))[:, None]


def _scores(queries: Tensor, keys: Tensor, allowed: Tensor) -> Tensor:
    """[B,H,L,L]: minus infinity where not allowed."""
    scores = torch.matmul(queries.transpose(1, 2) * queries.size(-1) ** -0.5, keys.permute(0, 2, 3, 1))
    return scores.masked_fill_(~allowed, -torch.inf)


def _gates(log_gates: Tensor) -> Tensor:
    """[B,L,H] as [B,H,L,1]"""
    return log_gates.transpose(1, 2)[..., None]


class _Transitions(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, log_gates: Tensor, lengths: Tensor) -> Tensor:
        batch, size, heads, _ = queries.shape
        found, normalisers = queries.new_empty(batch, size, size), queries.new_empty(batch, heads, size, 1)
        for part in _parts(queries):
            scores = _scores(queries[part], keys[part], _allowed(lengths[part], size))
            normaliser = scores.logsumexp(3, keepdim=True)
            normalisers[part] = normaliser.masked_fill_(normaliser == -torch.inf, 0.0)  # -inf less 0 stays -inf in dead rows
            scores += _gates(log_gates[part]) - normalisers[part]
            found[part] = scores.logsumexp(1)
        ctx.save_for_backward(queries, keys, log_gates, lengths, normalisers, found)
        return found

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        """With r_h = gate_h p_h / E, the share of a head: the gradient of log p_h is g r_h, that of log gate_h its sum over j."""
        queries, keys, log_gates, lengths, normalisers, found = ctx.saved_tensors
        gradients = torch.empty_like(queries), torch.empty_like(keys), torch.empty_like(log_gates)
        scale = queries.size(-1) ** -0.5
        for part in _parts(queries):
            allowed = _allowed(lengths[part], queries.size(1))
            log_p = _scores(queries[part], keys[part], allowed).sub_(normalisers[part])
            shares = (log_p + _gates(log_gates[part])).sub_(found[part, None].masked_fill(~allowed, 0.0)).exp_()
            gradient = shares.mul_(upstream[0][part, None].masked_fill(~allowed, 0.0))
            of_gates = gradient.sum(3, keepdim=True)
            gradient -= log_p.exp_().mul_(of_gates)
            gradients[0][part] = torch.matmul(gradient, keys[part].transpose(1, 2)).mul_(scale).transpose(1, 2)
            gradients[1][part] = torch.matmul(gradient.transpose(2, 3), queries[part].transpose(1, 2)).mul_(scale).transpose(1, 2)
            gradients[2][part] = of_gates[..., 0].transpose(1, 2)
        return (*gradients, None)
