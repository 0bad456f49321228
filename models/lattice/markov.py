"""Self-attention of a Markov transformer: segments of at most two slots, between which nothing is seen.

Slot i carries the word before the one that it predicts. With an offset o of 0 or 1 the segments are {.., o - 1}, {o, o + 1}, ...:
the first slot of a segment sees itself (a bigram), the second one both (a trigram). Legend: B batch, T slots, H heads, D width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from models.common.layers.attention import SelfAttention
from models.common.layers.dropout import dropout as drop


def pairs(offsets: Tensor, slots: int) -> Tensor:
    """[B,slots] True where a slot sees the one before it: those at an odd distance from the offset [B], save the first slot."""
    places = torch.arange(slots, device=offsets.device)
    seen = (places - offsets[:, None]) % 2 == 1
    return seen & (places > 0)


def draw_pairs(sentences: int, slots: int, device: torch.device) -> Tensor:
    """`pairs` by offsets that are drawn evenly for each sentence from the device's generator."""
    return pairs(torch.randint(2, (sentences,), device=device), slots)


def attend_pairs(attention: SelfAttention, x: Tensor, paired: Tensor) -> Tensor:
    """x [B,T,D] to [B,T,D]: the softmax over the keys of a slot and, where `paired` [B,T], of the one before it. O(T D), for no
    [T,T] matrix is made."""
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
    """x [...,D] to [...,D]: each slot sees itself, so that its values are what is mixed."""
    width = x.size(-1)
    values = F.linear(x, attention.projection.weight[2 * width :], attention.projection.bias[2 * width :])
    values = drop(values, attention.dropout if attention.training else 0.0)
    output: Tensor = attention.output(values)
    return output
