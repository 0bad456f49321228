"""Counterparts of `kernels.token_scores` on a GPU, and the best tokens of logits: one Triton program for each row, in one sweep.

They run on the current stream without synchronisation, so tokens and rows are not checked.
"""

from __future__ import annotations

import torch
from torch import Tensor

try:
    import triton

    from kernels.gpu import token_score_kernels
except ImportError as error:
    raise ImportError(
        "kernels.gpu.token_scores: expected the package triton, got none; install it with `pip install triton`"
    ) from error

BLOCK = 2048
"""The most logits that a program processes together."""
MANY = 64
"""The most tokens that a program processes together."""
WARPS = 8
"""The warps of a program."""


def token_scores_(
    logits: Tensor, targets: Tensor, rows: Tensor, scores: Tensor, best: Tensor | None = None, *, smoothing: float = 0.0
) -> Tensor:
    """Write scores and best tokens and return normalisers [R], as `kernels.token_scores_`."""
    normalisers = torch.empty(len(logits), device=logits.device)
    if len(logits):
        _check_contiguous(logits=logits, targets=targets, rows=rows, scores=scores)
        arrays = logits, targets, rows, scores, normalisers, normalisers if best is None else best
        sizes = logits.size(1), *scores.shape[1:], smoothing
        token_score_kernels.scores[(len(logits),)](*arrays, *sizes, best is not None, **_blocks(logits), many=MANY)
    return normalisers


def token_gradients_(
    logits: Tensor,
    targets: Tensor,
    rows: Tensor,
    upstream: Tensor,
    normalisers: Tensor,
    *,
    smoothing: float = 0.0,
    penalty: float = 0.0,
) -> None:
    """Replace logits by their gradient, as `kernels.token_gradients_`."""
    if len(logits):
        _check_contiguous(logits=logits, targets=targets, rows=rows, upstream=upstream, normalisers=normalisers)
        arrays = (logits, targets, rows, upstream, normalisers)
        sizes = (logits.size(1), *upstream.shape[1:], smoothing, penalty)
        many = triton.next_power_of_2(max(1, targets.size(1)))
        token_score_kernels.gradients[(len(logits),)](*arrays, *sizes, **_blocks(logits), many=many)


def best_tokens(logits: Tensor, allowed: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return, for logits [R,V] of any precision, their normalisers log sum_v exp(x_v) [R] over all tokens, and the `count` highest
    of the `allowed` [V] ones [R,count], both float32, and the tokens that have them [R,count], the lowest one first of those that
    have the same. `count` is 1, or 2 of at least 2 tokens; where fewer are finite, any token stands for a missing one."""
    _check_contiguous(logits=logits)
    if count not in (1, 2) or count > logits.size(1):
        raise ValueError(f"count: expected 1, or 2 of at least 2 tokens, got {count} of {logits.size(1)}")
    normalisers, highest = (torch.empty(shape, device=logits.device) for shape in (len(logits), (len(logits), count)))
    best = torch.empty(highest.shape, dtype=torch.int64, device=logits.device)
    if len(logits):
        arrays = logits, allowed.view(torch.uint8), normalisers, highest, best
        token_score_kernels.best_tokens[(len(logits),)](*arrays, logits.size(1), count, **_blocks(logits))
    return normalisers, highest, best


def _blocks(logits: Tensor) -> dict[str, int]:
    return {"block": min(BLOCK, triton.next_power_of_2(logits.size(1))), "num_warps": WARPS}


def _check_contiguous(**arrays: Tensor) -> None:
    for name, array in arrays.items():
        if not array.is_contiguous():
            raise ValueError(f"{name}: expected a contiguous tensor, got {list(array.shape)} with strides {list(array.stride())}")
