"""Ensembles, in which the probability of a token is the mean over several networks."""

from __future__ import annotations

from collections.abc import Sequence
from math import log

import torch
from torch import Tensor, nn

from models.stepwise.model import StepwiseModel


class Ensemble(nn.Module):
    """Networks of one order over one vocabulary, of any sizes: p(y_t | y_<t, x) = 1/N sum_n p_n(y_t | y_<t, x)."""

    def __init__(self, members: Sequence[StepwiseModel]) -> None:
        """Create the ensemble. Raises ValueError for networks with different orders, vocabulary sizes or `max_positions`."""
        super().__init__()
        first = members[0]
        for number, member in enumerate(members[1:], 2):
            for name, expected, got in (
                ("order", first.order, member.order),
                ("vocabulary size", first.target_embedding.weight.size(0), member.target_embedding.weight.size(0)),
                ("max_positions", first.config.max_positions, member.config.max_positions),
            ):
                if expected != got:
                    raise ValueError(f"member {number}: expected the {name} of the first ({expected}), got {got}")
        self.members = nn.ModuleList(members)
        self.config = first.config
        self.order = first.order
        self.sizes = first.sizes


def mean(log_probs: Sequence[Tensor]) -> Tensor:
    """Return log 1/N sum_n p_n for N tensors of log p_n of one shape."""
    return torch.stack(list(log_probs)).logsumexp(0) - log(len(log_probs))


def networks(model: StepwiseModel | Ensemble) -> list[StepwiseModel]:
    """Return the members of an ensemble, or the one network."""
    return [member for member in model.members if isinstance(member, StepwiseModel)] if isinstance(model, Ensemble) else [model]
