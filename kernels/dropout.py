"""Dropout (Srivastava et al. 2014) whose masks follow from a seed, so that no mask has to be kept for the gradient; on a CPU.

For x [N] float32 or bfloat16 and a probability p, y_i = x_i / (1 - p) with probability 1 - p and 0 otherwise, by a hash of the seed
and i. The gradient with respect to x is the same function of the gradient with respect to y. Results do not depend on `threads`
(None: as many as torch uses) and on the processor.

`kernels.reference.training` is the slow reference.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fewstep.native import fewstep_native
from kernels.tensor_bits import tensor_bits


def dropout_(x: Tensor, dropped: Tensor, probability: float, seed: int, *, threads: int | None = None) -> None:
    """Write y into `dropped` [N], which may be x itself; `seed` is from 0 to 2^64 - 1.

    Raises TypeError and ValueError for tensors that do not fit together or are not contiguous, and ValueError for a probability
    that is not from 0 to below 1.
    """
    fewstep_native.dropout(
        tensor_bits(x, "x"),
        tensor_bits(dropped, "dropped"),
        probability=probability,
        seed=seed,
        threads=threads or torch.get_num_threads(),
    )
