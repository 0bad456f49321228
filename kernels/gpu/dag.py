"""Counterparts of `kernels.dag` on a GPU, in single precision if the scores are: sums and maxima over all paths of a graph.

Each transition is exponentiated once. A graph's transitions lead to later vertices only, so one Triton program per sentence and
direction can take its vertices tile by tile: what earlier tiles contribute to all tokens is a product of matrices, and only the
transitions within a tile are taken token by token, from registers. Posteriors of transitions are matrix products. All run on the
current stream without synchronisation, so lengths are not checked: a sentence whose lengths exceed its arrays has no path.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

try:
    import triton

    from kernels.gpu import dag_kernels, dag_path_kernels
except ImportError as error:
    raise ImportError("kernels.gpu.dag: expected the package triton, got none; install it with `pip install triton`") from error

TILE = {torch.float32: 64, torch.float64: 32}
"""The vertices of a tile, whose own transitions the registers of a program hold."""
BEFORE = 32
"""The vertices of earlier tiles that are multiplied together."""
STEPS = 16
"""The tokens that are multiplied together."""
ROWS = 32
"""The rows of a tile of transitions."""
COLUMNS = 64
"""The columns of a tile of transitions."""
CELLS = 1024
"""The cells of a program without tiles."""
WARPS = 8
"""The warps of a program; with fewer, tiles do not fit into registers."""
TINY = {torch.float32: 1e-28, torch.float64: 1e-280}
"""The sum below which underflowed terms could change a step."""


def log_likelihood(tokens: Tensor, transitions: Tensor, target_lengths: Tensor, graph_lengths: Tensor) -> Tensor:
    """Return [B], as `kernels.dag_log_likelihood`."""
    with_gradient = torch.is_grad_enabled() and (tokens.requires_grad or transitions.requires_grad)
    found: Tensor = _LogLikelihood.apply(  # type: ignore[no-untyped-call]
        tokens.contiguous(), transitions.contiguous(), target_lengths, graph_lengths, with_gradient
    )
    return found


def best_alignment(tokens: Tensor, transitions: Tensor, target_lengths: Tensor, graph_lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Return vertices [B,M] and scores [B], as `kernels.dag_best_alignment`."""
    tokens, transitions = tokens.detach().contiguous(), transitions.detach().contiguous()
    batch, most, size = tokens.shape
    best = torch.full_like(tokens, -torch.inf)
    scores = tokens.new_full((batch,), -torch.inf)
    predecessors = torch.zeros(tokens.shape, dtype=torch.int32, device=tokens.device)
    vertices = torch.full((batch, most), -1, device=tokens.device)
    if scores.numel():
        arrays = tokens, transitions, target_lengths, graph_lengths, best, predecessors, vertices, scores
        sizes = {"many": TILE[tokens.dtype], "few": BEFORE, "num_warps": WARPS}
        dag_path_kernels.best_paths[(batch,)](*arrays, most, size, transitions.size(2), **sizes)
    return vertices, scores


class _LogLikelihood(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, tokens: Tensor, transitions: Tensor, target_lengths: Tensor, graph_lengths: Tensor, with_gradient: bool
    ) -> Tensor:
        (batch, most, size) = tokens.shape
        band = transitions.size(2)
        many = TILE[tokens.dtype]
        sides = 1 + with_gradient
        values, found = tokens.new_full((sides, batch, most, size), -torch.inf), tokens.new_full((batch,), -torch.inf)
        highest = tokens.new_empty(batch, size)
        scaled = torch.empty_like(transitions)
        lengths = (target_lengths, graph_lengths)
        sizes = (most, size, band)
        if transitions.numel():
            grid = (batch, triton.cdiv(size, ROWS))
            dag_kernels.exponentials[grid](transitions, *lengths, highest, scaled, found, *sizes, rows=ROWS, columns=COLUMNS)
        if batch:
            partial, tops = tokens.new_empty(sides, batch, most, many), tokens.new_empty(sides, batch, most)
            lows = torch.empty(tops.shape, dtype=torch.int32, device=tokens.device)
            arrays = tokens, transitions, highest, scaled, *lengths, values, partial, tops, lows, found
            options = {"tiny": TINY[tokens.dtype], "many": many, "few": BEFORE, "steps": STEPS, "num_warps": WARPS}
            dag_kernels.sums[(batch, sides)](*arrays, *sizes, **options)
        ctx.save_for_backward(tokens, transitions, highest, scaled, target_lengths, graph_lengths, values, found)
        return found

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        tokens, transitions, highest, scaled, target_lengths, graph_lengths, values, found = ctx.saved_tensors
        (batch, most, size) = tokens.shape
        band = transitions.size(2)
        given = upstream[0].contiguous()
        of_tokens, of_transitions = torch.empty_like(tokens), torch.empty_like(transitions)
        if of_tokens.numel():
            grid = (batch, triton.cdiv(most * size, CELLS))
            dag_kernels.token_gradients[grid](tokens, values, found, given, of_tokens, most * size, tokens.numel(), block=CELLS)
        if of_transitions.numel():
            arrays = transitions, highest, scaled, target_lengths, graph_lengths, values, found, given, of_transitions
            tiles = (batch, triton.cdiv(size, ROWS), triton.cdiv(ROWS - 1 + band, COLUMNS))
            shape = {"rows": ROWS, "columns": COLUMNS, "steps": STEPS, "num_warps": WARPS}
            dag_kernels.transition_gradients[tiles](*arrays, most, size, band, **shape)
        return of_tokens, of_transitions, None, None, None
