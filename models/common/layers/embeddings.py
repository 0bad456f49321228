"""Token embeddings and position codes."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fewstep.config.network import NetworkConfig

Rates = Literal["tensor2tensor", "paper"]


def sinusoids(positions: Tensor, width: int, rates_of: Rates = "tensor2tensor") -> Tensor:
    """Return sinusoidal codes, float32 [..., width], of positions [...], which may be negative.

    The lower half is sin(p w_j) and the upper half cos(p w_j), with w_j = 10000^(-j / (width/2 - 1)) as in tensor2tensor, or
    10000^(-j / (width/2)) as in the paper (Vaswani et al. 2017, section 3.5).
    """
    half = width // 2
    slowest = max(half - 1, 1) if rates_of == "tensor2tensor" else half
    rates = torch.exp(torch.arange(half, device=positions.device) * (-math.log(10000.0) / slowest))
    angles = positions[..., None] * rates
    return torch.cat((angles.sin(), angles.cos()), dim=-1)


class Positions(nn.Module):
    """Codes of positions: sinusoids, or a learned table of `rows`."""

    def __init__(
        self,
        kind: Literal["sinusoidal", "learned"],
        rows: int,
        width: int,
        *,
        rates: Rates = "tensor2tensor",
        offset: int = 0,
    ) -> None:
        """`rates` and `offset`, the position of the first token, are those of sinusoids."""
        super().__init__()
        self.width = width
        self.rates = rates
        self.offset = offset
        self.table = nn.Embedding(rows, width) if kind == "learned" else None

    @classmethod
    def of(cls, config: NetworkConfig, rows: int) -> Positions:
        """Return the codes of a network's config."""
        return cls(config.positions, rows, config.width, rates=config.sinusoids, offset=config.position_offset)

    def forward(self, positions: Tensor) -> Tensor:
        """Return the codes [T,D] of positions [T], which are 0 to rows - 1 for a learned table."""
        if self.table is None:
            return sinusoids(positions + self.offset if self.offset else positions, self.width, self.rates)
        codes: Tensor = self.table(positions)
        return codes


class Embedding(nn.Embedding):
    """An embedding of tokens, which `embed` multiplies by a factor."""

    def __init__(self, rows: int, width: int, *, scaled: bool = True) -> None:
        """`scaled`: the factor is the square root of the width (Vaswani et al. 2017, section 3.4), else 1."""
        super().__init__(rows, width)
        self.scale = math.sqrt(width) if scaled else 1.0


def embed(ids: Tensor, table: Embedding) -> Tensor:
    """Return embeddings [...,D] of ids [...], multiplied by the factor of the table."""
    return F.embedding(ids, table.weight) * table.scale
