"""Dropout whose masks are cheap to draw on a CPU."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kernels import dropout_


def dropout(x: Tensor, probability: float) -> Tensor:
    """Zero each unit with this probability, and scale the others so that the mean is preserved.

    On a CPU PyTorch draws one number per unit sequentially and keeps the mask; here a hash of a seed and the unit's position
    decides, which the gradient computes again. The seed is drawn from torch's generator.
    """
    if probability <= 0.0:
        return x
    if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.bfloat16):
        return F.dropout(x, probability)
    dropped: Tensor = _Dropout.apply(x, probability, draw_seed())  # type: ignore[no-untyped-call]
    return dropped


def draw_seed() -> int:
    """Return 63 random bits of torch's generator."""
    return int(torch.empty((), dtype=torch.int64).random_())


class Dropout(nn.Module):
    """A layer that applies `dropout` in training mode and is the identity otherwise."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, x: Tensor) -> Tensor:
        """Apply dropout to x [...]."""
        return dropout(x, self.probability) if self.training else x


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, probability: float, seed: int) -> Tensor:
        ctx.mask = probability, seed
        return _drop(x, probability, seed)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None]:
        return _drop(upstream[0], *ctx.mask), None, None


def _drop(x: Tensor, probability: float, seed: int) -> Tensor:
    x = x.detach().contiguous()
    dropped = torch.empty_like(x)
    dropout_(x.view(-1), dropped.view(-1), probability, seed)
    return dropped
