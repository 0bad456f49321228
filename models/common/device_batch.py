"""Batches in buffers of rounded sizes, so that few programs serve batches of all sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fewstep.sources import Ints, Sources
from fewstep.vocabulary import EOS, PAD
from models.common.layers.attention import Memory

SOURCE_BLOCK, SLOT_BLOCK = 16, 32
"""Multiples to which sizes of sources and outputs are rounded up."""


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
    excluded: Tensor | None
    """True at the tokens [B,1,V] outside a sentence's shortlist; None without shortlists."""

    def fill(self, batch: Inputs) -> None:
        """Copy a batch of the same sizes into these buffers."""
        for buffer, value in zip(self, batch, strict=True):
            if buffer is not None and value is not None:
                buffer.copy_(value)


def size_for(prepared: Sources, slots: int, *, max_source: int, max_slots: int, step: int = 1) -> Size:
    """Return the sizes of buffers for a batch: a power of two of sentences, and multiples of the blocks up to the maxima."""
    sentences, source = prepared.ids.shape
    wide = max(source, min(_rounded(source, SOURCE_BLOCK), max_source))
    return Size(1 << (sentences - 1).bit_length(), wide, _rounded(rounded_slots(slots, max_slots), step))


def rounded_slots(slots: int, max_slots: int) -> int:
    """Return a multiple of the block of slots, or `max_slots`, that is not below `slots`."""
    return max(slots, min(_rounded(slots, SLOT_BLOCK), max_slots))


def _rounded(value: int, block: int) -> int:
    return -(-value // block) * block


def buffers(size: Size, tokens: int, device: torch.device, *, shortlists: bool) -> Inputs:
    """Return buffers for the batches of a size and a vocabulary of `tokens`."""
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
    lengths, counts = np.ones(size.sentences, dtype=np.int64), np.full(size.sentences, fill, dtype=np.int64)
    lengths[:sentences], counts[:sentences] = prepared.lengths, slots
    excluded = None if allowed is None else F.pad(~allowed, (0, 0, 0, size.sentences - sentences))[:, None].to(device)
    ids, real, places = (torch.from_numpy(part).to(device) for part in (source, lengths, counts))
    return Inputs(ids, real, places, excluded)


def copy_memories(buffers: Sequence[Memory], memories: Sequence[Memory]) -> None:
    """Copy the keys, values and masks of encoded sources into buffers of the same sizes."""
    for kept, new in zip(buffers, memories, strict=True):
        for buffer, value in zip(kept, new, strict=True):
            if buffer is not None and value is not None:
                buffer.copy_(value)
