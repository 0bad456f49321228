"""Codes of decoder slots: position codes and, in the first step, start vectors."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from fewstep.config.network import NetworkConfig
from fewstep.families.stepwise.orders import GenerationOrder
from models.common.layers.embeddings import Positions


class SlotCodes(Positions):
    """Position codes of slots. A slot has the position of the token that it predicts (Zhang et al. 2020, equations 7, 10)."""

    def __init__(self, order: GenerationOrder, config: NetworkConfig, rows: int) -> None:
        kind: Literal["sinusoidal", "learned"] = (
            "learned" if "learned" in (config.positions, order.target_positions) else "sinusoidal"
        )
        super().__init__(kind, rows, config.width, rates=config.sinusoids, offset=config.position_offset)
        self.order = order
        self.directions = nn.Embedding(order.directions, config.width) if order.target_positions == "step-direction" else None

    def forward(self, slots: Tensor) -> Tensor:
        """Return the codes [T,D] of slots [T]. A learned table is indexed by the slot itself."""
        if self.table is not None:
            return super().forward(slots)
        if self.directions is not None:
            count = self.order.directions
            codes: Tensor = super().forward(slots // count) + self.directions(slots % count)
            return codes
        return super().forward(signed(slots) if self.order.target_positions == "signed" else slots)


def signed(slots: Tensor) -> Tensor:
    """Return 1, -1, 2, -2, ... for slots 0, 1, 2, 3, ...: the distance from the left end or (negative) from the right end."""
    return torch.where(slots % 2 == 0, slots // 2 + 1, -(slots // 2) - 1)


class StartVectors(nn.Module):
    """Inputs of the slots of the first step in place of tokens: one learned vector for all slots, or one for each."""

    def __init__(self, order: GenerationOrder, width: int) -> None:
        super().__init__()
        self.size = order.step_size
        self.table = nn.Embedding(order.step_size if order.start == "per-slot" else 1, width)

    def forward(self) -> Tensor:
        """Return [z,D], scaled like embedded tokens."""
        vectors: Tensor = self.table.weight.expand(self.size, -1) * math.sqrt(self.table.embedding_dim)
        return vectors
