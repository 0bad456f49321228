"""Multi-head attention with fused projections (Vaswani et al. 2017, section 3.2). Masks are boolean, True at visible slots."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.common.layers import fused_attention
from models.common.layers.dropout import dropout as drop
from models.common.layers.fused_attention import split
from models.common.layers.linear import Linear


class Memory(NamedTuple):
    """The source side of one layer's cross-attention: keys and values [B,H,S,D/H] and the mask [B,1,1,S] (None: all visible)."""

    keys: Tensor
    values: Tensor
    mask: Tensor | None

    def select(self, rows: Tensor) -> Memory:
        """Return the memory of the sentences `rows`."""
        return Memory(self.keys[rows], self.values[rows], None if self.mask is None else self.mask[rows])


class Cache(Protocol):
    """Keys and values of earlier slots of one layer."""

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append keys and values [R,H,z,D/H] of new slots; return those of all slots."""
        ...


def padding_mask(lengths: Tensor, size: int) -> Tensor | None:
    """Return [B,1,1,size], True at real tokens; on a CPU None if nothing is padded, for which the host would have to wait for a
    GPU."""
    if lengths.device.type == "cpu" and bool((lengths == size).all()):
        return None
    return (torch.arange(size, device=lengths.device) < lengths[:, None])[:, None, None]


def attend(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, *, causal: bool = False, dropout: float = 0.0
) -> Tensor:
    """Return softmax(Q K^T / sqrt(d)) V for Q [B,H,T,d], K and V [B,H,S,d], with dropout on the weights.

    On a CPU PyTorch's fused kernels have no dropout, and their gradients are slower than those of this function. Two calls from the
    same state of the generator, with and without gradients, drop the same weights.
    """
    if queries.device.type != "cpu" or not (queries.requires_grad or dropout):
        return F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, dropout_p=dropout, is_causal=causal)
    scores = (queries * queries.size(-1) ** -0.5) @ keys.transpose(2, 3)
    if causal:
        mask = torch.ones(scores.shape[2:], dtype=torch.bool).tril()
    if mask is not None:
        scores = scores + torch.zeros(mask.shape, dtype=scores.dtype).masked_fill(~mask, -torch.inf)
    return drop(scores.softmax(-1), dropout) @ values


def _is_trained(module: nn.Module, projected: Tensor) -> bool:
    """Return whether a pass belongs to training, also without gradients: both take the same path and compute the same values."""
    return module.training or projected.requires_grad


class SelfAttention(nn.Module):
    """Queries, keys and values of one sequence, projected by one D x 3D matrix."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.projection = Linear(width, 3 * width)
        self.output = Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor | None = None, *, causal: bool = False, cache: Cache | None = None) -> Tensor:
        """Apply self-attention to x [B,T,D]. `mask` broadcasts to [B,H,T,T]; `causal` stands for the lower triangle."""
        projected = self.projection(x)
        dropout = self.dropout if self.training else 0.0
        if cache is None and _is_trained(self, projected) and fused_attention.applies(projected, mask):
            mixed = fused_attention.self_attention(projected, self.heads, mask, causal=causal, dropout=dropout)
        else:
            queries, keys, values = split(projected, 3, self.heads)
            if cache is not None:
                keys, values = cache.extend(keys, values)
            mixed = attend(queries, keys, values, mask, causal=causal, dropout=dropout).transpose(1, 2).flatten(2)
        output: Tensor = self.output(mixed)
        return output


class CrossAttention(nn.Module):
    """Queries of the target side over keys and values of the source side (one D x 2D matrix)."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.queries = Linear(width, width)
        self.projection = Linear(width, 2 * width)
        self.output = Linear(width, width)

    def memory(self, encoded: Tensor, mask: Tensor | None) -> Memory:
        """Return keys and values of encoded sources [B,S,D], computed once per sentence."""
        keys, values = split(self.projection(encoded), 2, self.heads)
        return Memory(keys, values, mask)

    def forward(self, x: Tensor, memory: Memory) -> Tensor:
        """Apply cross-attention to x [B,T,D], which may have K adjacent rows for each sentence of `memory`; they share it."""
        grouped = self.queries(x).reshape(memory.keys.size(0), -1, x.size(-1))
        dropout = self.dropout if self.training else 0.0
        if _is_trained(self, grouped) and fused_attention.applies(grouped, memory.mask):
            mixed = fused_attention.cross_attention(grouped, memory.keys, memory.values, memory.mask, dropout=dropout)
        else:
            (queries,) = split(grouped, 1, self.heads)
            mixed = attend(queries, memory.keys, memory.values, memory.mask, dropout=dropout).transpose(1, 2)
        output: Tensor = self.output(mixed.reshape(x.shape))
        return output
