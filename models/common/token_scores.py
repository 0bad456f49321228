"""Scores of a target's tokens at every vertex or slot without ever holding all logits. Legend: B batch, L vertices, M tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from models.common import cross_entropy


class TokenScores(NamedTuple):
    """What each vertex says of the target's tokens."""

    log_probs: Tensor
    """[B,M,L] float32: log P(y_t | vertex j), 0 at vertices past the graph"""
    best: Tensor
    """[B,L] int64: the token that a vertex ranks first (no gradient), 0 past the graph"""


def token_log_probs(
    states: Tensor, weight: Tensor, targets: Tensor, graph_lengths: Tensor | None = None, *, smoothing: float = 0.0
) -> Tensor:
    """[B,M,L] float32: log_softmax(states weight^T) at the tokens of `targets`, 0 at vertices past the graph.

    States [B,L,D], weight [V,D], targets [B,M], graph_lengths [B]. With smoothing e, (1 - e) log p(y) + e mean_v log p(v). A part
    of the rows of the [B,L,V] logits is held at a time, and computed again for the gradient: softmax and sums in float32, products
    in autocast's type.
    """
    return _scores(states, weight, targets, graph_lengths, smoothing, with_best=False).log_probs


def token_scores(
    states: Tensor, weight: Tensor, targets: Tensor, graph_lengths: Tensor | None = None, *, smoothing: float = 0.0
) -> TokenScores:
    """`token_log_probs`, and the best tokens of the same logits."""
    return _scores(states, weight, targets, graph_lengths, smoothing, with_best=True)


def _scores(
    states: Tensor, weight: Tensor, targets: Tensor, graph_lengths: Tensor | None, smoothing: float, *, with_best: bool
) -> TokenScores:
    batch, size, _ = states.shape
    if graph_lengths is None:
        rows = torch.arange(batch * size, device=states.device)
    else:
        rows = (torch.arange(size, device=states.device) < graph_lengths[:, None]).flatten().nonzero()[:, 0]
    found, best = _TokenScores.apply(states.flatten(0, 1), weight, targets, rows, smoothing, with_best)  # type: ignore[no-untyped-call]
    return TokenScores(found.unflatten(0, (batch, size)).transpose(1, 2).contiguous(), best.view(batch, size))


def _parts(rows: Tensor, vocabulary: int) -> Iterator[Tensor]:
    """Rows whose logits are held together."""
    held = cross_entropy.CPU_LOGITS if rows.device.type == "cpu" else cross_entropy.GPU_LOGITS
    some = max(1, held // vocabulary)
    return (rows[start : start + some] for start in range(0, len(rows), some))


def _logits(x: Tensor, weight: Tensor) -> Tensor:
    with torch.autocast(x.device.type, enabled=False):
        return (x @ weight.t()).float()


class _TokenScores(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, targets: Tensor, rows: Tensor, smoothing: float, with_best: bool
    ) -> tuple[Tensor, Tensor]:
        dtype = cross_entropy.product_type(states)
        x, w = states.to(dtype), weight.to(dtype)
        found = torch.zeros(len(states), targets.size(1), device=states.device)
        best = torch.zeros(len(states), dtype=torch.int64, device=states.device)
        size = len(states) // max(1, len(targets))
        for part in _parts(rows, len(weight)):
            logits = _logits(x[part], w)
            if with_best:
                best[part] = logits.argmax(1)
            scores = logits.gather(1, targets[part // size])
            if smoothing:
                scores = torch.lerp(scores, logits.mean(1, keepdim=True), smoothing)
            found[part] = scores - logits.logsumexp(1, keepdim=True)
        ctx.save_for_backward(x, w, targets, rows)
        ctx.smoothing, ctx.size, ctx.types = smoothing, size, (states.dtype, weight.dtype)
        ctx.mark_non_differentiable(best)
        return found, best

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        x, w, targets, rows = ctx.saved_tensors
        needs_states, needs_weight = ctx.needs_input_grad[:2]
        state_gradient = torch.zeros_like(x) if needs_states else None
        weight_gradient = torch.zeros_like(w, dtype=torch.float32) if needs_weight else None
        for part in _parts(rows, len(w)):
            given = upstream[0][part]
            total = given.sum(1, keepdim=True)
            gradient = _logits(x[part], w).softmax(1).mul_(-total)
            if ctx.smoothing:
                gradient += total * (ctx.smoothing / len(w))
            gradient.scatter_add_(1, targets[part // ctx.size], given * (1.0 - ctx.smoothing))
            reduced = gradient.to(x.dtype)
            if state_gradient is not None:
                state_gradient[part] = reduced @ w
            if weight_gradient is not None:
                weight_gradient += reduced.t() @ x[part]
        types = ctx.types
        return (
            None if state_gradient is None else state_gradient.to(types[0]),
            None if weight_gradient is None else weight_gradient.to(types[1]),
            *[None] * 4,
        )
