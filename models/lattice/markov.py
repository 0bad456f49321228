"""The self-attention of a Markov transformer: segments of slots, which do not attend to each other (Deng and Rush 2020).

Slot i carries the token before the one that it predicts. With an offset o the segments begin at the slots o, o + L, ... and at slot
0; a slot attends to itself and to the slots of its segment before it. Legend: B batch, T slots, L the length of a segment, H heads,
D width, J keys of a slot.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from models.common.layers.attention import SelfAttention
from models.common.layers.dropout import dropout as drop


def contexts(offsets: Tensor, slots: int, length: int) -> Tensor:
    """Return the number [B,slots] of earlier slots that each slot attends to, for offsets [B] of segments of `length` slots."""
    slot = torch.arange(slots, device=offsets.device)
    return torch.minimum((slot - offsets[:, None]) % length, slot)


def draw_contexts(sentences: int, slots: int, length: int, device: torch.device) -> Tensor:
    """Return `contexts` for offsets that are drawn uniformly for each sentence from the device's generator."""
    return contexts(torch.randint(length, (sentences,), device=device), slots, length)


def attend_segments(attention: SelfAttention, x: Tensor, earlier: Tensor, length: int) -> Tensor:
    """Apply self-attention to x [B,T,D] over the key of each slot and those of `earlier` [B,T] slots before it, less than `length`.

    It takes O(T L D) time and holds no [T,T] matrix.
    """
    queries, keys, values = attention.projection(x).unflatten(2, (3, attention.heads, -1)).unbind(2)
    shifts = torch.arange(min(length, x.size(1)), device=x.device)
    seen_keys, seen_values = (
        [part, *(F.pad(part, (0, 0, 0, 0, shift, -shift)) for shift in range(1, len(shifts)))] for part in (keys, values)
    )
    hidden = shifts > earlier[:, :, None, None]
    mixed = mix(queries, seen_keys, seen_values, hidden, attention.dropout if attention.training else 0.0)
    output: Tensor = attention.output(mixed.flatten(2))
    return output


def mix(
    queries: Tensor, keys: Sequence[Tensor], values: Sequence[Tensor], hidden: Tensor | None = None, dropout: float = 0.0
) -> Tensor:
    """Return the means of J values [...,H,D/H] by the softmax of their keys' products with queries [...,H,D/H]. `hidden` [...,1,J]
    is True at keys that are not seen."""
    scale = queries.size(-1) ** -0.5
    scores = torch.stack([(queries * part).sum(-1).float() * scale for part in keys], -1)
    if hidden is not None:
        scores = scores.masked_fill(hidden, -torch.inf)
    weights = drop(scores.softmax(-1).to(queries.dtype), dropout)
    first, *others = (weights[..., place, None] * part for place, part in enumerate(values))
    return sum(others, first)


def attend_alone(attention: SelfAttention, x: Tensor) -> Tensor:
    """Apply self-attention to x [...,D] where each slot attends only to itself, so that the result depends on its values alone."""
    width = x.size(-1)
    values = F.linear(x, attention.projection.weight[2 * width :], attention.projection.bias[2 * width :])
    values = drop(values, attention.dropout if attention.training else 0.0)
    output: Tensor = attention.output(values)
    return output
