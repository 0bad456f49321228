"""Scores of a target's tokens at every vertex or slot, computed without holding all logits. Legend: B batch, L vertices, M
tokens."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from kernels import token_gradients_, token_scores_
from models.common.layers.logits import with_logits
from models.common.losses import cross_entropy

NEGLIGIBLE = 1 / 16
"""Share of the rounding of products that the gradients of vertices may have together to be left out.

Paths soon agree on few vertices: after 500 updates on Multi30k (eight vertices a token) two thirds have so small gradients in
bfloat16, a tenth in float32. The distance of bfloat16's gradients from those in float32 is the same with and without them, for all
weights together and for the row of each token.
"""


class TokenScores(NamedTuple):
    """Scores of the target's tokens at each vertex."""

    log_probs: Tensor
    """The scores log P(y_t | vertex j) [B,M,L], float32, 0 at vertices past the graph."""
    best: Tensor
    """The token that each vertex ranks first [B,L], int64, without gradient; 0 past the graph, and everywhere unless requested."""


def token_scores(
    states: Tensor,
    weight: Tensor,
    targets: Tensor,
    graph_lengths: Tensor | None = None,
    *,
    bias: Tensor | None = None,
    smoothing: float = 0.0,
    with_best: bool = False,
) -> TokenScores:
    """Return log_softmax(states weight^T + bias) at the tokens of `targets`, and with `with_best` the best tokens of the same
    logits.

    States are [B,L,D], weight [V,D], targets [B,M], graph_lengths [B], bias [V] (without gradient). With smoothing e the score is
    (1 - e) log p(y) + e mean_v log p(v). Only some rows of the [B,L,V] logits are held at a time; they are computed again for the
    gradient, except at vertices whose gradients are `NEGLIGIBLE`. Softmax and sums are in float32, products in autocast's type.
    """
    batch, size, _ = states.shape
    if graph_lengths is None:
        rows = torch.arange(batch * size, device=states.device)
    else:
        rows = (torch.arange(size, device=states.device) < graph_lengths[:, None]).flatten().nonzero()[:, 0]
    return TokenScores(*_TokenScores.apply(states, weight, targets, rows, _Terms(bias, smoothing), with_best))  # type: ignore[no-untyped-call]


class _Terms(NamedTuple):
    """Terms of the scores other than the product."""

    bias: Tensor | None
    smoothing: float


class _TokenScores(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, targets: Tensor, rows: Tensor, terms: _Terms, with_best: bool
    ) -> tuple[Tensor, Tensor]:
        batch, size, width = states.shape
        dtype = cross_entropy.product_type(states)
        x, w = states.reshape(-1, width)[rows].to(dtype), weight.to(dtype)
        found = torch.zeros(batch, targets.size(1), size, device=states.device)
        best = torch.zeros(batch, size, dtype=torch.int64, device=states.device)
        normalisers = torch.empty(len(rows), device=states.device)
        score = _score_natively if cross_entropy.is_native(x) else _score
        bias = None if terms.bias is None else terms.bias.to(dtype)
        for part, logits in with_logits(x, w, bias):
            normalisers[part] = score(logits, targets, rows[part], found, best if with_best else None, terms.smoothing)
        ctx.save_for_backward(x, w, bias, targets, rows, normalisers)
        ctx.smoothing = terms.smoothing
        ctx.shape = states.shape
        ctx.types = states.dtype, weight.dtype
        ctx.mark_non_differentiable(best)
        return found, best

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        x, w, bias, targets, rows, normalisers = ctx.saved_tensors
        given = upstream[0].contiguous()
        kept = _with_gradient(given, rows, x.dtype)
        x, rows, normalisers = x[kept], rows[kept], normalisers[kept]
        needs_states, needs_weight = ctx.needs_input_grad[:2]
        state_gradient = torch.empty_like(x) if needs_states else None
        weight_gradient = torch.zeros_like(w, dtype=torch.float32) if needs_weight else None
        product = torch.empty_like(w)
        gradient = _gradient_natively if cross_entropy.is_native(x) else _gradient
        for part, logits in with_logits(x, w, bias):
            reduced = gradient(logits, targets, rows[part], given, normalisers[part], ctx.smoothing)
            if state_gradient is not None:
                torch.mm(reduced, w, out=state_gradient[part])
            if weight_gradient is not None:
                weight_gradient += torch.mm(reduced.t(), x[part], out=product)
        states = None
        if state_gradient is not None:
            states = torch.zeros(ctx.shape, dtype=ctx.types[0], device=x.device)
            states.view(-1, x.size(1))[rows] = state_gradient.to(ctx.types[0])
        return (states, None if weight_gradient is None else weight_gradient.to(ctx.types[1]), *[None] * 4)


def _with_gradient(upstream: Tensor, rows: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the places of `rows`, ascending, except those with the smallest sums of absolute upstream gradients [B,M,L], which add
    up to less than `NEGLIGIBLE` roundings of `dtype` of the sum over all rows."""
    sums: Tensor = torch.linalg.vector_norm(upstream, 1, dim=1).flatten()[rows].double()
    ascending, order = sums.sort()
    # False where a sum is NaN or infinite, which must reach the gradient.
    negligible = ascending.cumsum(0) < NEGLIGIBLE * torch.finfo(dtype).eps * sums.sum()
    return order[~negligible].sort().values


def _score_natively(logits: Tensor, targets: Tensor, rows: Tensor, found: Tensor, best: Tensor | None, smoothing: float) -> Tensor:
    return token_scores_(logits, targets, rows, found, best, smoothing=smoothing)


def _gradient_natively(
    logits: Tensor, targets: Tensor, rows: Tensor, upstream: Tensor, normalisers: Tensor, smoothing: float
) -> Tensor:
    token_gradients_(logits, targets, rows, upstream, normalisers, smoothing=smoothing)
    return logits


def _score(logits: Tensor, targets: Tensor, rows: Tensor, found: Tensor, best: Tensor | None, smoothing: float) -> Tensor:
    """Compute `kernels.token_scores_` in torch."""
    logits = logits.float()
    sentences = rows // found.size(2)
    vertices = rows % found.size(2)
    normalisers = logits.logsumexp(1)
    scores = logits.gather(1, targets[sentences])
    if smoothing:
        scores = torch.lerp(scores, logits.mean(1, keepdim=True), smoothing)
    found[sentences, :, vertices] = scores - normalisers[:, None]
    if best is not None:
        best[sentences, vertices] = logits.argmax(1)
    return normalisers


def _gradient(logits: Tensor, targets: Tensor, rows: Tensor, upstream: Tensor, normalisers: Tensor, smoothing: float) -> Tensor:
    """Compute `kernels.token_gradients_` in torch."""
    sentences = rows // upstream.size(2)
    vertices = rows % upstream.size(2)
    given = upstream[sentences, :, vertices]
    total = given.sum(1, keepdim=True)
    gradient = logits.float().sub_(normalisers[:, None]).exp_().mul_(-total)
    if smoothing:
        gradient += total * (smoothing / logits.size(1))
    return gradient.scatter_add_(1, targets[sentences], given * (1.0 - smoothing)).to(logits.dtype)
