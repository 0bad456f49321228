"""Dropout whose masks are cheap to draw on a CPU."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def dropout(x: Tensor, probability: float) -> Tensor:
    """Zero each unit with this probability (on a CPU rounded to 1/65536), and scale the others so that the mean is preserved.

    On a CPU PyTorch draws one number per unit sequentially; here one draw of 64 bits serves four units.
    """
    if probability <= 0.0:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, probability)
    bits = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    threshold = round(probability * 65536) - 32768
    kept = torch.empty(x.shape, dtype=x.dtype)
    torch.ge(bits.view(torch.int16)[: x.numel()].view(x.shape), threshold, out=kept)
    return x * kept.mul_(1.0 / (1.0 - probability))


class Dropout(nn.Module):
    """A layer that applies `dropout` in training mode and is the identity otherwise."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, x: Tensor) -> Tensor:
        """Apply dropout to x [...]."""
        return dropout(x, self.probability) if self.training else x
