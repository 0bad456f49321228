"""Checks that the numbers of a training are finite."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fewstep.system.networks import LOGITS_BIAS

REMEDY = "lower training.learning_rate, lengthen training.warmup_updates, or choose precision float32"


class NotFiniteError(ArithmeticError):
    """The error of a diverged training: a statistic or a weight is infinite or not a number."""


def not_finite(tensors: Mapping[str, Tensor]) -> list[str]:
    """Return the names of the tensors that hold a value that is not finite. In a logits bias minus infinity excludes a token."""
    return [name for name, tensor in tensors.items() if not bool(_acceptable(name, tensor).all())]


def _acceptable(name: str, tensor: Tensor) -> Tensor:
    finite = torch.isfinite(tensor)
    return finite | (tensor == -torch.inf) if name == LOGITS_BIAS else finite
