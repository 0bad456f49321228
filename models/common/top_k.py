"""The highest values of rows, with a rule for equal ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

BLOCK = 64
"""The number of values whose maximum is examined first."""


class Ranked(NamedTuple):
    """The best tokens of rows, best first, and the scores of given tokens, as log-probabilities."""

    scores: Tensor
    """[R,count], float32; minus infinity where there are fewer tokens."""
    ids: Tensor
    """[R,count], int64."""
    given: Tensor
    """[R,G], float32."""


def rank(logits: Tensor, count: int, never: Tensor, given: Sequence[int]) -> Ranked:
    """Return the best `count` tokens of logits [R,V] without those that `never` [V] is True for, and the scores of the tokens
    `given`. Probabilities are normalised over all tokens."""
    if count <= 2 and logits.is_cuda:
        return rank_in_one_sweep(logits, count, never, given)
    log_probs = logits.float().log_softmax(1)
    values = [log_probs[:, token].clone() for token in given]
    return Ranked(*top_k(log_probs.masked_fill_(never, -torch.inf), count), _columns(values, log_probs[:, 0]))


def rank_in_one_sweep(logits: Tensor, count: int, never: Tensor, given: Sequence[int]) -> Ranked:
    """Return `rank` of one or two tokens on a GPU, whose kernel reads the logits once."""
    from kernels.gpu.token_scores import best_tokens

    normalisers, highest, ids = best_tokens(logits, ~never, count)
    values = [logits[:, token].float() - normalisers for token in given]
    return Ranked(highest - normalisers[:, None], ids, _columns(values, normalisers))


def _columns(values: list[Tensor], like: Tensor) -> Tensor:
    return torch.stack(values, 1) if values else like.new_empty(len(like), 0)


def top_k(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` highest values of each row [R,V], float32, and their indices, [R,count], highest first.

    Equal values are ordered by their indices, the lower one first, as native code does; torch.topk promises no order. In long rows
    they lie in the `count` blocks with the highest maxima or after the last whole block: keys of all values would take several
    times as long as maxima, which are vectorised.
    """
    rows, size = values.shape
    if size <= count * BLOCK:
        chosen = _highest(values, count)
        return values.gather(1, chosen), chosen
    whole = size // BLOCK * BLOCK
    blocks = _highest(values[:, :whole].view(rows, -1, BLOCK).amax(2), min(count, whole // BLOCK)).sort(1).values
    inside = (blocks[:, :, None] * BLOCK + torch.arange(BLOCK, device=values.device)).flatten(1)
    indices = torch.cat((inside, torch.arange(whole, size, device=values.device).expand(rows, -1)), 1)
    chosen = indices.gather(1, _highest(values.gather(1, indices), count))
    return values.gather(1, chosen), chosen


def _highest(values: Tensor, count: int) -> Tensor:
    """Return the indices [R,count] of the highest of values [R,N].

    An integer key has the order of a value in its high bits and that of the index in its low ones, so that no two keys are equal.
    """
    bits = (values + 0.0).view(torch.int32)  # 0 in place of -0, which has other bits
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    size = values.size(1)
    later = torch.arange(size - 1, -1, -1, device=values.device)
    return ((ordered.long() << 32) + later).topk(count).indices
