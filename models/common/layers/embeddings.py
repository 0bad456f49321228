"""Token embeddings and position codes."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def sinusoids(positions: Tensor, width: int) -> Tensor:
    """Return sinusoidal codes, float32 [..., width], of positions [...], which may be negative.

    The lower half is sin(p w_j) and the upper half cos(p w_j), with w_j = 10000^(-j / (width/2 - 1)) (as in tensor2tensor).
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
        """Return the codes [T,D] of positions [T], which are 0 to rows - 1 for a learned table."""
        if self.table is None:
            return sinusoids(positions, self.width)
        codes: Tensor = self.table(positions)
        return codes


def embed(ids: Tensor, table: nn.Embedding) -> Tensor:
    """Return embeddings [...,D] of ids [...], scaled by the square root of the width (Vaswani et al. 2017, section 3.4)."""
    return F.embedding(ids, table.weight) * math.sqrt(table.embedding_dim)
