"""Batches of sources with their candidates, and the parts of a batch that are scored together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from fewstep.families.lattice.config import LatticeSearch
from fewstep.sources import Ints

CPU_ROWS, GPU_ROWS = 2**14, 2**18
"""The number of candidates that are scored at a time, unless a single sentence has more."""


class Slots(NamedTuple):
    """The candidates of a batch."""

    token_ids: Tensor
    """The candidates, [B,N,K] or, with the normaliser `local`, [B,N+1,K]; -1 where there is no candidate."""
    log_probs: Tensor
    """The natural logarithms of the candidates' probabilities by the counts, float32 of the same shape."""
    min_lengths: Tensor
    """The minimum number of tokens of an output, without EOS, [B]."""
    max_lengths: Tensor
    """The maximum number of tokens of an output, without EOS, [B]; 0 for an empty source."""


class Sources(NamedTuple):
    """A batch of sources."""

    ids: Ints
    """The token ids with EOS, [B,S]."""
    lengths: Ints
    """The numbers of tokens with EOS, [B]."""
    slots: Slots | None
    """The candidates for `search`; None before they are looked up."""
    search: LatticeSearch | None


class SentenceTimes(NamedTuple):
    """The time spent on one sentence, in milliseconds."""

    tokens: int
    """The number of tokens of its translation."""
    lookup: float
    encoder: float
    scoring: float
    search: float


def select_slots(slots: Slots, rows: Tensor, search: LatticeSearch, device: torch.device) -> Slots:
    """Return the slots of the sentences `rows` on a device, up to the last slot of the longest sentence."""
    size = int(slots.max_lengths[rows].max()) + (1 if search.normalizer == "local" else 0)
    selected = slots.token_ids[rows, :size], slots.log_probs[rows, :size], slots.min_lengths[rows], slots.max_lengths[rows]
    return Slots(*(part.to(device) for part in selected))


def select_sources(prepared: Sources, rows: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the sources `rows` and their lengths on a device."""
    lengths = torch.from_numpy(prepared.lengths)[rows]
    return torch.from_numpy(prepared.ids)[rows, : int(lengths.max())].to(device), lengths.to(device)


def scoring_batches(slots: Slots, device: torch.device) -> Iterator[Tensor]:
    """Yield the rows of sentences that are scored together: sentences of similar length, with a bounded number of candidates."""
    order = slots.max_lengths.argsort(stable=True)
    order = order[slots.max_lengths[order] > 0]
    limit = (CPU_ROWS if device.type == "cpu" else GPU_ROWS) // slots.token_ids.size(2)
    while len(order):
        sizes = slots.max_lengths[order] * torch.arange(1, len(order) + 1)
        count = max(1, int((sizes <= limit).sum()))
        yield order[:count]
        order = order[count:]
