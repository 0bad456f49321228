"""Token and position codes."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def sinusoids(positions: Tensor, width: int) -> Tensor:
    """The one definition of sinusoidal codes: positions [...], which may be negative, to float32 [..., width].

    sin(p w_j) for the lower half and cos(p w_j) for the upper one, w_j = 10000^(-j / (width/2 - 1)) (tensor2tensor's form).
    """
    half = width // 2
    rates = torch.exp(torch.arange(half, device=positions.device) * (-math.log(10000.0) / max(half - 1, 1)))
    angles = positions[..., None] * rates
    return torch.cat((angles.sin(), angles.cos()), dim=-1)


class Positions(nn.Module):
    """Codes of positions: sinusoids, or a learned table of `rows`."""

    def __init__(self, kind: Literal["sinusoidal", "learned"], rows: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.table = nn.Embedding(rows, width) if kind == "learned" else None

    def forward(self, positions: Tensor) -> Tensor:
        """positions [T] (a learned table: 0 to rows - 1) to [T,D]"""
        if self.table is None:
            return sinusoids(positions, self.width)
        codes: Tensor = self.table(positions)
        return codes


def embed(ids: Tensor, table: nn.Embedding) -> Tensor:
    """ids [...] to [...,D], scaled by the square root of the width (Vaswani et al. 2017, section 3.4)."""
    return F.embedding(ids, table.weight) * math.sqrt(table.embedding_dim)
