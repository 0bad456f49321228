"""The slots that are shown their tokens in training (Qian et al. 2021)."""

from __future__ import annotations

import torch
from torch import Tensor

from fewstep.families.parallel.config import ParallelConfig
from models.common.glancing import random_slots, ratio
from models.training.seeds import uniform_noise


def shown_slots(config: ParallelConfig, update: int, wrong: Tensor, real: Tensor, ids: Tensor) -> Tensor:
    """Return a mask [B,T] of the slots that are shown.

    `wrong` and `real` [B,T] are True at slots where the network ranks another token first, and at all slots that may be shown;
    `ids` [B] are those of the pairs. With a ratio p and d wrong slots, `floor` shows floor(p d) random real slots, right or wrong;
    `poisson` shows a random number with this mean; `bernoulli` shows each of T real slots with probability p d / T. One slot is
    never shown by the first two.
    """
    share = ratio(config, update)
    distance = (wrong & real).sum(1)
    noise = uniform_noise(ids, real.size(1) + 1, training=True)
    slots = real.sum(1)
    if config.glancing_count == "bernoulli":
        return (noise[:, 1:] < (share * distance / slots.clamp(min=1))[:, None]) & real
    mean = share * distance.double()
    amounts = (mean + 1e-9).floor() if config.glancing_count == "floor" else _poisson(mean, noise[:, 0])
    return random_slots(amounts.long().minimum((slots - 1).clamp(min=0)), real, noise[:, 1:])


def _poisson(mean: Tensor, noise: Tensor) -> Tensor:
    """Return numbers [B] with Poisson distributions of these means [B], from uniform noise [B], by the inverse of the cumulative
    distribution; numbers above 4 x mean + 20 do not occur."""
    counts = torch.arange(int(4 * mean.max().item() + 20), device=mean.device)
    log_probs = counts * mean[:, None].log().clamp(min=-1e9) - mean[:, None] - torch.lgamma(counts + 1.0)
    return (log_probs.exp().cumsum(1) <= noise[:, None]).sum(1).clamp(max=len(counts) - 1)
