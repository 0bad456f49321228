"""Over what the scores of a lattice sum to 1 (section 4 of the paper leaves it open): four ways, none of which holds [rows, V].

Legend: B batch, N slots, K candidates, R rows, V vocabulary, U words of a sentence's lattice, D width.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from models.common.cross_entropy import CPU_LOGITS, GPU_LOGITS, product_type
from models.common.linear import TokenTable
from models.family import EOS


def log_normalizers(states: Tensor, weight: Tensor) -> Tensor:
    """[R] float32, differentiable: log sum_v exp(states w_v) of states [R,D] and weight [V,D]. Logits are made anew for the
    gradient, some rows at a time."""
    found: Tensor = _LogNormalizers.apply(states, weight)  # type: ignore[no-untyped-call]
    return found


def full(states: Tensor, table: TokenTable) -> Tensor:
    """[...]: the same of states [...,D] for use alone, from weights that were laid out for it."""
    flat = states.flatten(0, -2)
    found = torch.empty(len(flat), device=flat.device)
    for part in _parts(flat, table.num_embeddings):
        found[part] = table.logits(flat[part]).float().logsumexp(1)
    return found.view(states.shape[:-1])


def union(states: Tensor, words: Tensor, weight: Tensor) -> Tensor:
    """[B,R] of states [B,R,D]: over EOS and the distinct `words` [B,W] of each sentence, of which those below 0 are none."""
    found = torch.empty(states.shape[:2], device=states.device)
    for row, (rows, ids) in enumerate(zip(states, words, strict=True)):
        distinct = ids[ids >= 0].unique()
        vectors = weight[torch.cat((distinct, distinct.new_tensor([EOS])))]
        for part in _parts(rows, len(vectors)):
            found[row, part] = (rows[part] @ vectors.t()).float().logsumexp(1)
    return found


def local(scores: Tensor, exits: Tensor) -> Tensor:
    """[...]: over the next slot's candidates by their logits [...,K], minus infinity where there is none, and EOS's [...]."""
    return torch.cat((scores, exits[..., None]), -1).float().logsumexp(-1)


def _parts(states: Tensor, words: int) -> Iterator[slice]:
    """Rows whose logits are held together."""
    rows = max(1, (CPU_LOGITS if states.device.type == "cpu" else GPU_LOGITS) // words)
    return (slice(start, start + rows) for start in range(0, len(states), rows))


class _LogNormalizers(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor) -> Tensor:
        dtype = product_type(states)
        x, w = states.to(dtype), weight.to(dtype)
        found = torch.empty(len(x), device=x.device)
        for part in _parts(x, len(w)):
            found[part] = (x[part] @ w.t()).float().logsumexp(1)
        ctx.save_for_backward(x, w, found)
        ctx.types = states.dtype, weight.dtype
        return found

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, Tensor]:
        """d log Z / d logit_v = p_v"""
        x, w, normalizers = ctx.saved_tensors
        of_states, of_weight = torch.empty_like(x), torch.zeros_like(w, dtype=torch.float32)
        for part in _parts(x, len(w)):
            shares = ((x[part] @ w.t()).float() - normalizers[part, None]).exp_().mul_(upstream[0][part, None]).to(x.dtype)
            of_states[part] = shares @ w
            of_weight += shares.t() @ x[part]
        return of_states.to(ctx.types[0]), of_weight.to(ctx.types[1])
