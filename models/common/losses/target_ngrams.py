"""The n-grams of targets, and the part of them that expected numbers of n-grams match (Shao et al. 2018; Ma et al. 2023)."""

from __future__ import annotations

import torch
from torch import Tensor


def target_ngrams(ids: Tensor, lengths: Tensor, order: int) -> Tensor:
    """Return how often the n-gram of `order` that starts at each position of targets [B,M] occurs in its target, [B,G].

    `lengths` [B] are the numbers of tokens, and G is max(M - order + 1, 0). The count is at the first occurrence of an n-gram; it
    is 0 at further ones and where the target has ended.
    """
    positions = ids.size(1) - order + 1
    if positions < 1:
        return ids.new_zeros(len(ids), 0)
    windows = ids.unfold(1, order, 1)
    real = torch.arange(positions, device=ids.device) < (lengths - order + 1)[:, None]
    equal = (windows[:, :, None] == windows[:, None]).all(3) & real[:, :, None] & real[:, None]
    is_first = ~equal.tril(-1).any(2)
    return equal.sum(2) * is_first


def clipped_matches(expected: Tensor, counts: Tensor) -> Tensor:
    """Return the sum [B] of min(expected, counts) over n-grams [B,G]. An expected number has no gradient from its count on."""
    return torch.where(expected < counts, expected, counts.to(expected.dtype)).sum(1)
