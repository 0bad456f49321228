"""Numbers of slots: from the source with CTC, else predicted as classes."""

from __future__ import annotations

import torch
from torch import Tensor

from fewstep.families.parallel.config import LENGTH_CLASSES, SLOT_TOLERANCE, ParallelConfig


def upsampled(config: ParallelConfig, source_lengths: Tensor) -> Tensor:
    """Return ceil(upsampling x S) slots [B] for sources of S [B] tokens with EOS."""
    return (source_lengths.double() * config.upsampling - SLOT_TOLERANCE).ceil().long()


def length_classes(config: ParallelConfig, source_lengths: Tensor, target_lengths: Tensor) -> Tensor:
    """Return the classes [B] of targets of M [B] tokens with EOS, M - S + 128 or M; they may be out of range."""
    if not config.length_offset:
        return target_lengths
    return target_lengths - source_lengths + config.length_offset


def length_candidates(
    config: ParallelConfig, logits: Tensor, source_lengths: Tensor, count: int, choice: str = "probable"
) -> tuple[Tensor, Tensor]:
    """Return target lengths [B,K] from logits [B,LENGTH_CLASSES], and a mask [B,K] of the distinct ones, which comes first.

    The first length is the most probable one. Lengths without slots are moved to the nearest one that has them.
    """
    count = min(count, LENGTH_CLASSES)
    classes = logits.sort(dim=1, descending=True, stable=True).indices
    if choice == "around":
        classes = classes[:, :1] - count // 2 + torch.arange(count, device=logits.device)
        order = (torch.arange(count, device=logits.device) - count // 2).abs().argsort(stable=True)
        classes = classes[:, order]
    found = classes[:, :count] - config.length_offset
    if config.length_offset:
        found = found + source_lengths[:, None]
    found = found.clamp(config.min_slots, config.max_slots)
    # Moved into the range, several candidates may be the same length, which is searched once.
    earlier = torch.ones(count, count, dtype=torch.bool, device=logits.device).tril(-1)
    return found, ~((found[:, :, None] == found[:, None, :]) & earlier).any(2)


def fits(config: ParallelConfig, source_length: int, target_length: int) -> bool:
    """Return whether a pair (lengths without EOS) can be trained on: both sides are within `max_positions`, and with CTC there is a
    slot for each target token. Equal neighbours in a CTC target need further slots, which the lengths do not show."""
    if max(source_length, target_length) >= config.max_positions:
        return False
    return not config.uses_ctc or target_length <= int(upsampled(config, torch.tensor(source_length + 1)))
