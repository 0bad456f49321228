"""Glancing (Qian et al. 2021): in training, some slots of a block receive as input the tokens that they should write."""

from __future__ import annotations

from torch import Tensor

from fewstep.families.aggressive.config import AggressiveConfig


def ratio(config: AggressiveConfig, update: int) -> float:
    """Return the ratio at an update: linear from `glancing_ratio` to `glancing_ratio_end` over `glancing_updates`, then
    constant."""
    done = min(update / config.glancing_updates, 1.0)
    return config.glancing_ratio + (config.glancing_ratio_end - config.glancing_ratio) * done


def shown(share: float, labelled: Tensor, correct: Tensor, noise: Tensor) -> Tensor:
    """Return [B,T], True at slots that are shown: floor(share x (n - s)) random ones of a sentence's n labelled slots, where s
    slots are correct.

    `labelled` and `correct` [B,T] are True where a slot has a label and where the network ranks it first; `noise` [B,T] is uniform
    in [0,1).
    """
    counts = labelled.sum(1)
    amount = (share * (counts - (correct & labelled).sum(1)) + 1e-6).long()
    rank = noise.masked_fill(~labelled, 2.0).argsort(1).argsort(1)
    return (rank < amount[:, None]) & labelled
