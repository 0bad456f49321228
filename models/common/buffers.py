"""Buffers for the batches of a decoder, of the batch's own sizes on a CPU and of rounded ones on a GPU.

A GPU replays captured work for buffers of fixed shapes, so few sizes must serve batches of all sizes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fewstep.sources import Ints, Sources
from fewstep.vocabulary import EOS, PAD

SOURCE_BLOCK = 16
"""Multiple to which sizes of sources are rounded up on a GPU."""
SLOT_BLOCK = 32
"""Multiple to which sizes of outputs are rounded up on a GPU."""


def captures(device: torch.device) -> bool:
    """Return whether work on a device is captured and replayed, so that buffers have rounded sizes and stay."""
    return device.type != "cpu"


class Size(NamedTuple):
    """The number of sentences, of tokens of a source with EOS, and of slots of an output or vertices of a graph."""

    sentences: int
    source: int
    slots: int


class Inputs(NamedTuple):
    """A batch on its device, filled up with sources that consist of EOS."""

    source: Tensor
    """The sources [B,S] with EOS."""
    lengths: Tensor
    """Their lengths [B]."""
    slots: Tensor
    """The maximum output lengths in tokens with EOS, or the numbers of vertices, [B]."""
    excluded: Tensor | None = None
    """True at the tokens [B,1,V] outside a sentence's shortlist; None without shortlists."""
    numbers: Tensor | None = None
    """Random numbers [B,T,N] for each slot of an output, uniform in [0, 1); None for searches that draw none."""
    draft_excluded: Tensor | None = None
    """True at the tokens [B,V] outside the shortlist of a drafter; None without one."""
    hints: Tensor | None = None
    """Texts [B,N] that drafts are copied from, padded with -1; None for searches that copy none."""

    def fill(self, batch: Inputs) -> None:
        """Copy a batch of the same sizes into these buffers."""
        for buffer, value in zip(self, batch, strict=True):
            if buffer is not None and value is not None:
                buffer.copy_(value)


def size_for(prepared: Sources, slots: int, device: torch.device, *, max_source: int, max_slots: int, step: int = 1) -> Size:
    """Return the sizes of buffers for a batch.

    On a CPU they are those of the batch, with a multiple of `step` slots. On a GPU they are a power of two of sentences, and
    multiples of the blocks up to the maxima.
    """
    sentences, source = prepared.ids.shape
    if not captures(device):
        return Size(sentences, source, round_up(slots, step))
    rounded_source = max(source, min(round_up(source, SOURCE_BLOCK), max_source))
    return Size(1 << (sentences - 1).bit_length(), rounded_source, round_up(round_slots(slots, max_slots, device), step))


def round_slots(slots: int, max_slots: int, device: torch.device) -> int:
    """Return `slots` on a CPU; on a GPU a multiple of the block of slots, or `max_slots`, that is not below it."""
    if not captures(device):
        return slots
    return max(slots, min(round_up(slots, SLOT_BLOCK), max_slots))


def round_up(value: int, block: int) -> int:
    """Return the least multiple of `block` that is not below `value`."""
    return -(-value // block) * block


def empty_inputs(size: Size, tokens: int, device: torch.device, *, shortlists: bool) -> Inputs:
    """Return buffers for batches of one size; the vocabulary has `tokens` entries."""
    ints = torch.zeros(size.sentences, dtype=torch.int64, device=device)
    excluded = torch.zeros((size.sentences, 1, tokens), dtype=torch.bool, device=device) if shortlists else None
    return Inputs(ints[:, None].repeat(1, size.source), ints.clone(), ints.clone(), excluded)


def inputs_for(prepared: Sources, slots: Ints, fill: int, allowed: Tensor | None, size: Size, device: torch.device) -> Inputs:
    """Return a batch with the sizes of `size`.

    `slots` [b] are those of its sentences, and `fill` those of the sentences that fill it up; `allowed` [b,V] are shortlists.
    """
    sentences, width = prepared.ids.shape
    source = np.full((size.sentences, size.source), PAD, dtype=np.int64)
    source[:, 0] = EOS
    source[:sentences, :width] = prepared.ids
    lengths = np.ones(size.sentences, dtype=np.int64)
    lengths[:sentences] = prepared.lengths
    counts = np.full(size.sentences, fill, dtype=np.int64)
    counts[:sentences] = slots
    excluded = None if allowed is None else fill_up(~allowed, size.sentences, value=False)[:, None].to(device)
    ids, source_lengths, slot_counts = (torch.from_numpy(part).to(device) for part in (source, lengths, counts))
    return Inputs(ids, source_lengths, slot_counts, excluded)


def fill_up(rows: Tensor, sentences: int, value: float) -> Tensor:
    """Return [sentences,...], the rows [b,...] followed by rows of `value`."""
    return F.pad(rows, (*(0,) * (2 * rows.dim() - 1), sentences - len(rows)), value=value)
