"""The assignment of target tokens to slots by a generation order, and the slots that a slot attends to.

"Flat" is the target in writing order: its n tokens rearranged, then EOS at index n, then padding up to a multiple of the step size
z (EOS again if the tail is filled). Slots [k z, (k+1) z) are written together in step k. Conventions and matrices: Zhang, Titov and
Sennrich (2020), with 0-based indices throughout.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fewstep.families.stepwise.orders import GenerationOrder


def permutation(order: GenerationOrder, lengths: Tensor, size: int) -> Tensor:
    """Return [B,size], the natural position of the token at each flat index, for targets of `lengths` tokens [B] without EOS.

    Indices from `length` on (EOS, padding) map to themselves.
    """
    flat = torch.arange(size, device=lengths.device).expand(len(lengths), size)
    if order.arrangement == "l2r":
        return flat
    count = lengths[:, None]
    if order.arrangement == "r2l":
        natural = count - 1 - flat
    elif order.arrangement == "middle-out":
        natural = _fold(count - 1 - flat, count)
    else:
        natural = _segments(flat, count, order.directions // 2)
    return torch.where(flat < count, natural, flat)


def _fold(index: Tensor, length: Tensor) -> Tensor:
    """Return the positions of indices 0, 1, 2, 3, ... of a segment: leftmost, rightmost, second, second to last, ..."""
    return torch.where(index % 2 == 0, index // 2, length - 1 - index // 2)


def _segments(flat: Tensor, length: Tensor, segments: int) -> Tensor:
    """Return the positions if folded segments alternate; the first `length mod segments` have one token more, so that no turn is
    empty."""
    segment = flat % segments
    index = flat // segments
    shorter = length // segments
    longer = length % segments
    return segment * shorter + torch.minimum(segment, longer) + _fold(index, shorter + (segment < longer))


def restore(order: GenerationOrder, flat: Tensor, lengths: Tensor) -> Tensor:
    """Return written tokens [N,T], of which the first `lengths` [N] count, in natural order, by the inverse of `permutation`."""
    return (
        flat if order.arrangement == "l2r" else torch.empty_like(flat).scatter_(1, permutation(order, lengths, flat.size(1)), flat)
    )


def step_mask(order: GenerationOrder, slots: int, device: torch.device) -> Tensor:
    """Return [slots,slots], True where the slot of the row may attend to the slot of the column.

    Attention to slots of the same step reveals nothing, because inputs are shifted by the step size: a slot carries no token of its
    own step.
    """
    slot = torch.arange(slots, device=device)
    if order.mask == "causal":
        return slot[:, None] >= slot
    seen = slot[:, None] // order.step_size >= slot // order.step_size
    if order.mask == "same-direction":
        seen &= slot[:, None] % order.directions == slot % order.directions
    return seen
