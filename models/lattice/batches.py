"""The candidates of a batch as tensors."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fewstep.families.lattice.batches import Slots

GPU_ROWS = 2**18
"""The number of candidates that a GPU scores at a time, unless a single sentence has more."""


class SlotTensors(NamedTuple):
    """The candidates of a batch on a device; the fields are those of `fewstep.families.lattice.batches.Slots`."""

    token_ids: Tensor
    """[B,N,K] or, with the normaliser `local`, [B,N+1,K]; -1 where there is no candidate."""
    log_probs: Tensor
    """Float32 of the same shape."""
    min_lengths: Tensor
    """[B]."""
    max_lengths: Tensor
    """[B]; 0 for an empty source."""


def slot_tensors(slots: Slots, device: torch.device | str) -> SlotTensors:
    """Return slots on a device; on the CPU they share the memory of the arrays."""
    return SlotTensors(*(torch.from_numpy(part).to(device) for part in slots))
