"""Orders of generation: which token stands in which slot, and which slots a slot may see.

"Flat" is the target in the order in which it is written: its n tokens rearranged, then one EOS at index n, then padding up to
a multiple of the step size z. Slots [k z, (k+1) z) are written together in step k. Conventions and matrices: Zhang, Titov and
Sennrich (2020), with 0-based indices throughout.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from models.family import PAD
from models.stepwise.config import Order


def permutation(order: Order, lengths: Tensor, size: int) -> Tensor:
    """[B,size]: the natural position of the token at each flat index, for targets of `lengths` tokens [B] without EOS.

    From index `length` on (EOS, padding) every index stands for itself.
    """
    flat = torch.arange(size, device=lengths.device).expand(len(lengths), size)
    if order.arrangement == "l2r":
        return flat
    count = lengths[:, None]
    return torch.where(flat < count, count - 1 - flat, flat)


def arrange(order: Order, target: Tensor, target_lengths: Tensor) -> Tensor:
    """Targets [B,T] with EOS, `target_lengths` counting it, as flat targets [B,T'], T' a multiple of the step size."""
    size = target.size(1)
    if order.arrangement != "l2r":
        target = target.gather(1, permutation(order, target_lengths - 1, size))
    return F.pad(target, (0, -size % order.step_size), value=PAD)


def restore(order: Order, flat: Sequence[int]) -> list[int]:
    """Written tokens, cut before EOS, in natural order: the inverse of `permutation`."""
    if order.arrangement == "l2r":
        return list(flat)
    natural = permutation(order, torch.tensor([len(flat)]), len(flat))[0].tolist()
    tokens = [PAD] * len(flat)
    for position, token in zip(natural, flat, strict=True):
        tokens[position] = token
    return tokens


def slot_positions(start: int, count: int, device: torch.device) -> Tensor:
    """[count]: position codes of the slots from `start` on. A slot has the position of the token that it predicts."""
    return torch.arange(start, start + count, device=device)


def block_mask(step_size: int, slots: int, device: torch.device) -> Tensor:
    """[slots,slots], True where the slot of the row may see the slot of the column: its own step and all earlier ones.

    Safe only because inputs are shifted by the step size, so that a slot carries no token of its own step.
    """
    steps = torch.arange(slots, device=device) // step_size
    return steps[:, None] >= steps
