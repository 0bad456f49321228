"""Attention for training on a CPU, without a tensor of weights and without copies per head."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kernels import AttentionInputs, fused_attention_, fused_attention_gradients_
from models.common.layers.dropout import draw_seed


def split(x: Tensor, parts: int, heads: int) -> tuple[Tensor, ...]:
    """Split [B,T,parts*D] into `parts` tensors [B,H,T,D/H]."""
    return x.view(x.size(0), x.size(1), parts, heads, -1).permute(2, 0, 3, 1, 4).unbind(0)


def applies(queries: Tensor, mask: Tensor | None) -> bool:
    """Return whether there is a kernel for queries of this device and type, and for this mask."""
    by_keys = mask is None or mask.shape[1:3] == (1, 1)
    return by_keys and queries.device.type == "cpu" and queries.dtype in (torch.float32, torch.bfloat16)


_Options = tuple[bool, float, int]
"""The last fields of `AttentionInputs`: causal, dropout, seed."""


def self_attention(projected: Tensor, heads: int, mask: Tensor | None, *, causal: bool, dropout: float) -> Tensor:
    """Return attention outputs [B,T,D] of concatenated queries, keys and values [B,T,3D] with the mask [B,1,1,T] and dropout of the
    weights."""
    seen = _visible(mask, projected.size(0))
    options = _options(dropout, causal=causal)
    mixed: Tensor = _SelfAttention.apply(projected, heads, seen, options)  # type: ignore[no-untyped-call]
    return mixed


def cross_attention(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, *, dropout: float) -> Tensor:
    """Return attention outputs [B,T,D] of queries [B,T,D] over keys and values [B,H,S,D/H] with the mask [B,1,1,S] and dropout of
    the weights."""
    seen = _visible(mask, queries.size(0))
    options = _options(dropout, causal=False)
    mixed: Tensor = _CrossAttention.apply(queries, keys, values, seen, options)  # type: ignore[no-untyped-call]
    return mixed


def _options(dropout: float, *, causal: bool) -> _Options:
    return causal, dropout, draw_seed() if dropout else 0


def _visible(mask: Tensor | None, batch: int) -> Tensor | None:
    return None if mask is None else mask[:, 0, 0].expand(batch, -1).contiguous()


def _mix(inputs: AttentionInputs) -> tuple[Tensor, Tensor]:
    """Return attention outputs [B,T,D] and the normalisers."""
    batch, heads, slots, size = inputs.queries.shape
    mixed = inputs.queries.new_empty(batch, slots, heads * size)
    return mixed, fused_attention_(inputs, split(mixed, 1, heads)[0])


class _SelfAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, projected: Tensor, heads: int, seen: Tensor | None, options: _Options) -> Tensor:
        queries, keys, values = split(projected, 3, heads)
        mixed, normalisers = _mix(AttentionInputs(queries, keys, values, seen, *options))
        ctx.save_for_backward(projected, seen, normalisers)
        ctx.heads = heads
        ctx.options = options
        return mixed

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        projected, seen, normalisers = ctx.saved_tensors
        gradient = torch.empty_like(projected)
        of_queries, of_keys, of_values = split(gradient, 3, ctx.heads)
        queries, keys, values = split(projected, 3, ctx.heads)
        inputs = AttentionInputs(queries, keys, values, seen, *ctx.options)
        given = split(upstream[0].contiguous(), 1, ctx.heads)[0]
        fused_attention_gradients_(inputs, normalisers, given, (of_queries, of_keys, of_values))
        return gradient, None, None, None


class _CrossAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, values: Tensor, seen: Tensor | None, options: _Options) -> Tensor:
        mixed, normalisers = _mix(AttentionInputs(split(queries, 1, keys.size(1))[0], keys, values, seen, *options))
        ctx.save_for_backward(queries, keys, values, seen, normalisers)
        ctx.options = options
        return mixed

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        queries, keys, values, seen, normalisers = ctx.saved_tensors
        heads = keys.size(1)
        gradient = torch.empty_like(queries)
        of_keys, of_values = torch.empty_like(keys), torch.empty_like(values)
        inputs = AttentionInputs(split(queries, 1, heads)[0], keys, values, seen, *ctx.options)
        given = split(upstream[0].contiguous(), 1, heads)[0]
        fused_attention_gradients_(inputs, normalisers, given, (split(gradient, 1, heads)[0], of_keys, of_values))
        return gradient, of_keys, of_values, None, None
