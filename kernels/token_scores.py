"""Scores of a few tokens from logits, and their gradient, without another tensor of the logits' size.

Rows of logits [R,V] belong to vertices of B graphs of up to L vertices, whose sentences have M tokens y [B,M]: `rows` [R] int64
holds b L + j for vertex j of sentence b. With e the label smoothing and n = log sum_v exp(x_v) of a row x,

    score(b, t, j) = (1 - e) x[y_bt] + e mean_v x_v - n

Logits are float32 or bfloat16; sums and results are float32. Exponentials are within 2 units in the last place. Results do not
depend on `threads` (None: as many as torch uses). Raises TypeError and ValueError for tensors that do not fit together.

Tensors on a GPU are processed there (`kernels.gpu.token_scores`, which needs triton); `threads` applies to the CPU.
`kernels.reference.training` is the slow reference.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fewstep.native import fewstep_native
from kernels.tensor_bits import tensor_bits


def token_scores_(
    logits: Tensor,
    targets: Tensor,
    rows: Tensor,
    scores: Tensor,
    best: Tensor | None = None,
    *,
    smoothing: float = 0.0,
    threads: int | None = None,
) -> Tensor:
    """Return the normalisers n [R] and write the scores of the rows' vertices into `scores` [B,M,L] float32.

    The first token with the highest logit is written into `best` [B,L] int64, if given. Other vertices are not changed.
    """
    if logits.is_cuda:
        from kernels.gpu import token_scores as gpu

        return gpu.token_scores_(logits, targets, rows, scores, best, smoothing=smoothing)
    normalisers = torch.empty(len(logits))
    fewstep_native.token_scores(
        _logits(logits),
        targets.numpy(),
        rows.numpy(),
        scores.numpy(),
        normalisers.numpy(),
        None if best is None else best.numpy(),
        smoothing=smoothing,
        threads=threads or torch.get_num_threads(),
    )
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
    threads: int | None = None,
) -> None:
    """Replace logits by the gradient of sum_btj upstream[b,t,j] (score(b,t,j) - c n^2) with respect to them, c being `penalty`.

    `upstream` is [B,M,L] float32; `normalisers` [R] are those of `token_scores_`.
    """
    if logits.is_cuda:
        from kernels.gpu import token_scores as gpu

        gpu.token_gradients_(logits, targets, rows, upstream, normalisers, smoothing=smoothing, penalty=penalty)
        return
    fewstep_native.token_gradients(
        _logits(logits),
        targets.numpy(),
        rows.numpy(),
        upstream.numpy(),
        normalisers.numpy(),
        smoothing=smoothing,
        penalty=penalty,
        threads=threads or torch.get_num_threads(),
    )


def _logits(logits: Tensor) -> Any:
    if not logits.is_contiguous() or logits.ndim != 2:
        raise ValueError(f"logits: expected contiguous [R,V], got {list(logits.shape)} with strides {list(logits.stride())}")
    return tensor_bits(logits, "logits")
