"""Selection of candidates, early stopping, and the mean of weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from models.training.config import TrainingConfig
from models.training.finite import REMEDY, NotFiniteError, not_finite


class Validation(NamedTuple):
    """The result of one validation. Each validation gives a candidate: the weights after that update."""

    update: int
    loss: float
    """Loss per target token, in nats, without label smoothing if the family reports it."""
    quality: float | None
    """BLEU or ROUGE-L of greedy outputs, 0 to 100, or tokens a pass of the verifier; None if no outputs were decoded."""
    epoch: int = 0
    """Number of complete passes over the training text before it."""


def merit(config: TrainingConfig, validation: Validation) -> float:
    """Return the value by which candidates are ranked; higher is better."""
    return -validation.loss if config.validation_metric == "loss" or validation.quality is None else validation.quality


def kept(config: TrainingConfig, validations: Sequence[Validation]) -> list[int]:
    """Return the updates of the candidates to average, ascending: the `num_averaged` best (ties: the later) or last ones."""
    ranked = [v.update for v in validations]
    if config.average == "best":
        ranked = [v.update for v in sorted(validations, key=lambda v: (merit(config, v), v.update))]
    return sorted(ranked[-config.num_averaged :])


def stopped(config: TrainingConfig, validations: Sequence[Validation]) -> bool:
    """Return whether the last `patience` validations, or those of the last `patience_epochs` epochs, all failed to beat the best
    one before them."""
    if config.patience_epochs and validations:
        first_best = max(validations, key=lambda validation: merit(config, validation))
        if validations[-1].epoch - first_best.epoch >= config.patience_epochs:
            return True
    if not config.patience or len(validations) <= config.patience:
        return False
    merits = [merit(config, validation) for validation in validations]
    return max(merits[-config.patience :]) <= max(merits[: -config.patience])


def mean(states: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return the mean of each tensor, summed in float64 in the given order. Raises NotFiniteError if a mean is not finite."""
    averaged = {}
    for name, first in states[0].items():
        total = torch.zeros_like(first, dtype=torch.float64)
        for state in states:
            total += state[name]
        averaged[name] = (total / len(states)).to(first.dtype)
    if names := not_finite(averaged):
        raise NotFiniteError(
            f"the mean of {len(states)} candidates: expected finite weights, got inf or NaN in {', '.join(names[:3])}; {REMEDY}"
        )
    return averaged
