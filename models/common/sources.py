"""Batches of sources as tensors."""

from __future__ import annotations

import torch
from torch import Tensor

from fewstep.sources import Sources


def source_tensors(sources: Sources, device: torch.device | str) -> tuple[Tensor, Tensor]:
    """Return the ids and the lengths of a batch on a device; on the CPU they share its memory."""
    return torch.from_numpy(sources.ids).to(device), torch.from_numpy(sources.lengths).to(device)
