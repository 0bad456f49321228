"""Glancing (Qian et al. 2021): in training, some slots of a block receive as input the tokens that they should write."""

from __future__ import annotations

from torch import Tensor

from models.common.glancing import random_slots


def shown(share: float, labelled: Tensor, correct: Tensor, noise: Tensor) -> Tensor:
    """Return [B,T], True at slots that are shown: floor(share x (n - s)) random ones of a sentence's n labelled slots, where s
    slots are correct.

    `labelled` and `correct` [B,T] are True where a slot has a label and where the network ranks it first; `noise` [B,T] is uniform
    in [0,1).
    """
    counts = labelled.sum(1)
    amount = (share * (counts - (correct & labelled).sum(1)) + 1e-6).long()
    return random_slots(amount, labelled, noise)
