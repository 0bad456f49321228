"""Glancing: in training some slots of a block are shown the tokens that they are to write (Qian et al. 2021)."""

from __future__ import annotations

from torch import Tensor

from models.aggressive.config import AggressiveConfig


def ratio(config: AggressiveConfig, update: int) -> float:
    """The share at an update: from `glancing_ratio` evenly to `glancing_ratio_end` over `glancing_updates`, then constant."""
    done = min(update / config.glancing_updates, 1.0)
    return config.glancing_ratio + (config.glancing_ratio_end - config.glancing_ratio) * done


def shown(share: float, labelled: Tensor, right: Tensor, noise: Tensor) -> Tensor:
    """[B,T] True at slots that are shown: floor(share x (n - s)) of a sentence's n labelled slots, s of which are right; any of
    them.

    labelled and right [B,T]: has the slot a label, and does the network rank it first; noise [B,T] even in [0,1).
    """
    counts = labelled.sum(1)
    amount = (share * (counts - (right & labelled).sum(1)) + 1e-6).long()
    rank = noise.masked_fill(~labelled, 2.0).argsort(1).argsort(1)
    return (rank < amount[:, None]) & labelled
