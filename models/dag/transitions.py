"""Gated multi-head transitions of a directed acyclic graph, computed without holding the scores of all heads of a batch.

Legend: B batch, L vertices, H heads, D width. With d = D/H, for each head h and vertices i < j < graph_length

    p_h(j | i)    = softmax over j of q_ih . k_jh / sqrt(d)
    log E(i -> j) = log sum_h gate_h(i) p_h(j | i)

so that the rows of E sum to 1. This is a mixture of softmaxes (Huang et al. 2022, with several heads as in their code).

The result is a band of D cells a vertex (`models.dag.band`), those of the next `max_length` vertices, or of all L - 1. It is
computed in blocks of rows and of the columns that they lead to, so that time and memory are linear in L for a given D.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from models.dag.band import diagonals

CPU_SCORES, GPU_SCORES = 2**19, 2**26
"""The number of scores of all heads that are held at a time, unless a single sentence has more."""
BAND_ROWS = 64
"""The number of vertices whose transitions are computed together in a band."""
NEVER = -1e30
LOG2_E = math.log2(math.e)


def transition_log_probs(queries: Tensor, keys: Tensor, log_gates: Tensor, ends: Tensor, max_length: int | None = None) -> Tensor:
    """Return log E(i -> i + 1 + d), [B,L,D] float32; minus infinity where there is no transition, as beyond the last vertex, in its
    row and in those of the padding.

    Queries and keys are [B,L,H,D/H], log_gates [B,L,H] (normalised over heads). `ends` are the numbers of vertices of graphs [B],
    or for each vertex one more than the last vertex that may follow it, [B,L]. With `max_length` only that many next vertices
    follow a vertex (Huang et al. 2023, "Directed Acyclic Transformer Pre-training"), so D is at most that. The computation is in
    float32 (float64 for float64 inputs), proceeds some sentences at a time, and is repeated for the gradient.
    """
    dtype = torch.promote_types(queries.dtype, torch.float32)
    with torch.autocast(queries.device.type, enabled=False):
        if ends.ndim == 1:
            ends = ends[:, None].expand(queries.shape[:2])
        found: Tensor = _Transitions.apply(queries.to(dtype), keys.to(dtype), log_gates.to(dtype), ends, max_length)  # type: ignore[no-untyped-call]
        return found


class _Block(NamedTuple):
    """Transitions that are computed together: a block of the matrix of each of some sentences."""

    sentences: slice
    rows: slice
    columns: slice
    allowed: Tensor
    """A mask, True where the vertex of the column comes after that of the row, before its end and within the band."""
    width: int
    """The columns of the block, of which only the first lie within the batch's graphs."""


def _band(size: int, max_length: int | None) -> int:
    """Return the number of next vertices that may follow a vertex."""
    longest = max(size - 1, 0)
    return longest if max_length is None else min(max_length, longest)


def _blocks(queries: Tensor, ends: Tensor, band: int) -> Iterator[_Block]:
    """Yield blocks that cover all transitions that are possible."""
    batch, size, heads, _ = queries.shape
    height = size if band >= size - 1 else BAND_ROWS
    held = CPU_SCORES if queries.device.type == "cpu" else GPU_SCORES
    some = max(1, held // max(1, heads * height * min(size, height + band)))
    vertex = torch.arange(size, device=ends.device)
    for start in range(0, batch, some):
        for top in range(0, size - 1, max(height, 1)):
            bottom = min(top + height, size)
            rows, columns = slice(top, bottom), slice(top + 1, min(bottom + band, size))
            row, column = vertex[rows, None], vertex[columns]
            allowed = (column > row) & (column <= row + band) & (column < ends[start : start + some, rows, None])
            yield _Block(slice(start, start + some), rows, columns, allowed, bottom - top + band - 1)


def _scores(queries: Tensor, keys: Tensor, allowed: Tensor) -> Tensor:
    """Return the scores [B,H,rows,columns].

    Scores that are not allowed are very low but finite, so that rows without transitions have a softmax too.
    """
    scores = torch.matmul(queries.transpose(1, 2) * queries.size(-1) ** -0.5, keys.permute(0, 2, 3, 1))
    return scores.add_(scores.new_zeros(allowed.shape).masked_fill_(~allowed, NEVER)[:, None])


class _Transitions(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, log_gates: Tensor, ends: Tensor, max_length: int | None) -> Tensor:
        batch, size = queries.shape[:2]
        band = _band(size, max_length)
        found = queries.new_full((batch, size, band), -torch.inf)
        for some, rows, columns, allowed, width in _blocks(queries, ends, band):
            gates = log_gates[some, rows].transpose(1, 2)[..., None]
            joint = _scores(queries[some, rows], keys[some, columns], allowed).log_softmax(3).add_(gates)
            top = joint.amax(1, keepdim=True)
            # exp2 is several times faster than exp on a CPU.
            sums = joint.sub_(top).mul_(LOG2_E).exp2_().sum(1)
            mixed = sums.log_().add_(top[:, 0]).masked_fill_(~allowed, -torch.inf)
            found[some, rows] = diagonals(F.pad(mixed, (0, width - mixed.size(2)), value=-torch.inf), band)
        ctx.save_for_backward(queries, keys, log_gates, ends)
        ctx.band = band
        return found

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Return gradients. With r_h = gate_h p_h / E, that of log p_h is g r_h, and that of log gate_h is its sum over j."""
        queries, keys, log_gates, ends = ctx.saved_tensors
        gradients = torch.zeros_like(queries), torch.zeros_like(keys), torch.zeros_like(log_gates)
        scale = queries.size(-1) ** -0.5
        for some, rows, columns, allowed, width in _blocks(queries, ends, ctx.band):
            scores = _scores(queries[some, rows], keys[some, columns], allowed)
            shares = scores.log_softmax(3).add_(log_gates[some, rows].transpose(1, 2)[..., None]).softmax(1)
            given = queries.new_zeros((*allowed.shape[:2], width))
            diagonals(given, ctx.band).copy_(upstream[0][some, rows])
            gradient = shares.mul_(given[..., : allowed.size(2)].masked_fill(~allowed, 0.0)[:, None])
            of_gates = gradient.sum(3, keepdim=True)
            gradient -= scores.softmax(3).mul_(of_gates)
            of_queries = torch.matmul(gradient, keys[some, columns].transpose(1, 2))
            of_keys = torch.matmul(gradient.transpose(2, 3), queries[some, rows].transpose(1, 2))
            gradients[0][some, rows] = of_queries.mul_(scale).transpose(1, 2)
            gradients[1][some, columns] += of_keys.mul_(scale).transpose(1, 2)
            gradients[2][some, rows] = of_gates[..., 0].transpose(1, 2)
        return (*gradients, None, None)
