"""Which candidates are kept, when training stops early, and the mean of weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from models.training.config import TrainingConfig


class Validation(NamedTuple):
    """What one validation found. Each gives a candidate: the weights after that update."""

    update: int
    loss: float
    """Per target token, in nats, without label smoothing where the family tells."""
    quality: float | None
    """BLEU or ROUGE-L of greedy outputs, 0 to 100; None where none were made."""


def merit(config: TrainingConfig, validation: Validation) -> float:
    """The higher the better."""
    return -validation.loss if config.validation_metric == "loss" or validation.quality is None else validation.quality


def kept(config: TrainingConfig, validations: Sequence[Validation]) -> list[int]:
    """Updates of the candidates to average, ascending: the `num_averaged` best (of equals the later) or last."""
    ranked = [v.update for v in validations]
    if config.average == "best":
        ranked = [v.update for v in sorted(validations, key=lambda v: (merit(config, v), v.update))]
    return sorted(ranked[-config.num_averaged :])


def stopped(config: TrainingConfig, validations: Sequence[Validation]) -> bool:
    """Have the last `patience` validations all failed to beat the best before them?"""
    if not config.patience or len(validations) <= config.patience:
        return False
    merits = [merit(config, validation) for validation in validations]
    return max(merits[-config.patience :]) <= max(merits[: -config.patience])


def mean(states: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of each tensor, summed in float64 in the order given."""
    averaged = {}
    for name, first in states[0].items():
        total = torch.zeros_like(first, dtype=torch.float64)
        for state in states:
            total += state[name]
        averaged[name] = (total / len(states)).to(first.dtype)
    return averaged
