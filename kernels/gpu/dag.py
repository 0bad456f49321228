"""Twins of `kernels.dag` on a GPU, in single precision if the scores are: sums and maxima over all paths of a graph.

Each transition is exponentiated once. One program per sentence then walks through its steps, forward and backward at the same time,
and one per tile sums the posteriors of transitions. They run on the current stream without synchronisation, so lengths are not
checked: a sentence whose lengths exceed its arrays has no path.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

try:
    import triton

    from kernels.gpu import dag_programs
except ImportError as error:
    raise ImportError("kernels.gpu.dag: expected the package triton, got none; install it with `pip install triton`") from error

WIDE, MANY, FEW, WARPS = 512, 64, {torch.float32: 64, torch.float64: 32}, 8
"""The predecessors among which the highest is searched at a time, the vertices of a step that are processed together, the
predecessors of these that are multiplied at a time, and the warps of a program. Larger tiles do not fit into registers."""
ROWS, COLUMNS = 32, 64
"""A tile of transitions."""
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
    best, scores = _nowhere(tokens), tokens.new_full((batch,), -torch.inf)
    predecessors = torch.zeros(tokens.shape, dtype=torch.int32, device=tokens.device)
    vertices = torch.full((batch, most), -1, device=tokens.device)
    if scores.numel():
        arrays = tokens, transitions, target_lengths, graph_lengths, best, predecessors, vertices, scores
        dag_programs.best_paths[(batch,)](*arrays, most, size, transitions.size(2), **_tile(tokens))
    return vertices, scores


def _tile(tokens: Tensor) -> dict[str, int]:
    return {"many": MANY, "few": FEW[tokens.dtype], "num_warps": WARPS}


def _nowhere(tokens: Tensor) -> Tensor:
    return torch.full(tokens.shape, -torch.inf, dtype=tokens.dtype, device=tokens.device)


class _LogLikelihood(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, tokens: Tensor, transitions: Tensor, target_lengths: Tensor, graph_lengths: Tensor, with_gradient: bool
    ) -> Tensor:
        batch, most, size = tokens.shape
        alpha, found = _nowhere(tokens), tokens.new_full((batch,), -torch.inf)
        beta = _nowhere(tokens) if with_gradient else alpha
        highest, scaled = tokens.new_empty(batch, size), torch.empty_like(transitions)
        lengths, sizes = (target_lengths, graph_lengths), (most, size, transitions.size(2))
        if transitions.numel():
            grid = (batch, triton.cdiv(size, ROWS))
            dag_programs.exponentials[grid](transitions, *lengths, highest, scaled, *sizes, rows=ROWS, columns=COLUMNS)
        if batch:
            arrays = tokens, transitions, highest, scaled, *lengths, alpha, beta, found
            dag_programs.sums[(batch, 1 + with_gradient)](*arrays, *sizes, tiny=TINY[tokens.dtype], **_tile(tokens), wide=WIDE)
        found.masked_fill_(found == torch.inf, torch.nan)
        ctx.save_for_backward(tokens, transitions, highest, scaled, target_lengths, graph_lengths, alpha, beta, found)
        return found

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        tokens, transitions, highest, scaled, target_lengths, graph_lengths, alpha, beta, found = ctx.saved_tensors
        met = (alpha > -torch.inf) & (beta > -torch.inf) & found.isfinite()[:, None, None]
        posteriors = (alpha + beta - tokens - found[:, None, None]).clamp_max(0.0).exp().where(met, 0.0)
        gradients = torch.empty_like(transitions)
        (batch, most, size), band = tokens.shape, transitions.size(2)
        if gradients.numel():
            given = upstream[0].contiguous()
            arrays = transitions, highest, scaled, target_lengths, graph_lengths, alpha, beta, found, given, gradients
            grid = (batch, triton.cdiv(size, ROWS), triton.cdiv(ROWS - 1 + band, COLUMNS))
            dag_programs.transition_gradients[grid](*arrays, most, size, band, rows=ROWS, columns=COLUMNS)
        return posteriors * upstream[0][:, None, None], gradients, None, None, None
