"""The self-attention of a Markov transformer: segments of at most two slots, which do not attend to each other.

Slot i carries the token before the one that it predicts. With an offset o of 0 or 1 the segments are {.., o - 1}, {o, o + 1}, ...:
the first slot of a segment attends to itself (a bigram), the second one to both (a trigram). Legend: B batch, T slots, H heads, D
width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from models.common.layers.attention import SelfAttention
from models.common.layers.dropout import dropout as drop


def pairs(offsets: Tensor, slots: int) -> Tensor:
    """Return a mask [B,slots] of slots that attend to the one before: those at odd distances from the offset [B], except slot 0."""
    slot = torch.arange(slots, device=offsets.device)
    paired = (slot - offsets[:, None]) % 2 == 1
    return paired & (slot > 0)


def draw_pairs(sentences: int, slots: int, device: torch.device) -> Tensor:
    """Return `pairs` for offsets that are drawn uniformly for each sentence from the device's generator."""
    return pairs(torch.randint(2, (sentences,), device=device), slots)


def attend_pairs(attention: SelfAttention, x: Tensor, paired: Tensor) -> Tensor:
    """Apply self-attention to x [B,T,D] over the key of each slot and, where `paired` [B,T], of the one before it.

    It takes O(T D) time and holds no [T,T] matrix.
    """
    queries, keys, values = attention.projection(x).unflatten(2, (3, attention.heads, -1)).unbind(2)
    before = F.pad(keys, (0, 0, 0, 0, 1, -1)), F.pad(values, (0, 0, 0, 0, 1, -1))
    scale = queries.size(-1) ** -0.5
    own, earlier = ((queries * part).sum(-1).float() * scale for part in (keys, before[0]))
    weights = torch.stack((own, earlier.masked_fill(~paired[:, :, None], -torch.inf)), -1).softmax(-1).to(values.dtype)
    weights = drop(weights, attention.dropout if attention.training else 0.0)
    mixed = weights[..., :1] * values + weights[..., 1:] * before[1]
    output: Tensor = attention.output(mixed.flatten(2))
    return output


def attend_alone(attention: SelfAttention, x: Tensor) -> Tensor:
    """Apply self-attention to x [...,D] where each slot attends only to itself, so that the result depends on its values alone."""
    width = x.size(-1)
    values = F.linear(x, attention.projection.weight[2 * width :], attention.projection.bias[2 * width :])
    values = drop(values, attention.dropout if attention.training else 0.0)
    output: Tensor = attention.output(values)
    return output
