"""Inputs of empty slots: copies and mixtures of source embeddings.

Legend: B batch, S source tokens, T slots. Positions and tokens count from 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fewstep.families.parallel.config import SLOT_TOLERANCE, ParallelConfig


def slot_inputs(config: ParallelConfig, embedded: Tensor, source_lengths: Tensor, lengths: Tensor, size: int) -> Tensor:
    """Return the inputs [B,size,D] of empty slots from source embeddings [B,S,D], for all inputs but the mask token.

    Sources have `source_lengths` [B] tokens and targets `lengths` [B] slots; inputs of slots past them mean nothing.
    """
    slots = torch.arange(size, device=embedded.device)
    if config.input in ("soft", "gaussian"):
        weights = mixture(config, source_lengths, lengths, slots, embedded.size(1))
        return weights.to(embedded.dtype) @ embedded
    tokens = copied(config, source_lengths, lengths, slots)
    return embedded.gather(1, tokens[:, :, None].expand(-1, -1, embedded.size(2)))


def copied(config: ParallelConfig, source_lengths: Tensor, lengths: Tensor, slots: Tensor) -> Tensor:
    """Return the source token [B,T] that each of `slots` [T] copies.

    Slot i of M copies round(i (S - 1) / (M - 1)), half to even, and token 0 if M is 1 (`uniform`); with upsampling f, slot i copies
    floor(i / f) (`repeat`).
    """
    last = source_lengths[:, None] - 1
    if config.input == "repeat":
        tokens = (slots.double() / config.upsampling + SLOT_TOLERANCE).floor().long().expand(len(last), -1)
    else:
        intervals = (lengths[:, None] - 1).clamp(min=1)
        # In integers, since a quotient of floats may fall on the other side of a half.
        whole = slots * last // intervals
        rest = slots * last % intervals
        tokens = whole + ((2 * rest > intervals) | ((2 * rest == intervals) & (whole % 2 == 1)))
    return tokens.minimum(last)


def mixture(config: ParallelConfig, source_lengths: Tensor, lengths: Tensor, slots: Tensor, size: int) -> Tensor:
    """Return the weights [B,T,size] of source tokens in the inputs of `slots` [T].

    `soft` is softmax_j(-(j - c)^2 / t) around c = (i + 1/2) S / M - 1/2 (Wei et al. 2019); `gaussian` is
    softmax_j(-(i - f (j + 1/2))^2 / t) with upsampling f (Gu and Kong 2021). t is the temperature.
    """
    tokens = torch.arange(size, device=slots.device)
    if config.input == "soft":
        centers = (slots + 0.5) * (source_lengths / lengths)[:, None] - 0.5
        distances = tokens - centers[:, :, None]
    else:
        distances = (slots[:, None] - config.upsampling * (tokens + 0.5)).expand(len(lengths), -1, -1)
    scores = -distances.square() / config.copy_temperature
    return scores.masked_fill((tokens >= source_lengths[:, None])[:, None], -torch.inf).softmax(2)
