"""Several networks that write together: the probability of a token is the mean of theirs."""

from __future__ import annotations

from collections.abc import Sequence
from math import log

import torch
from torch import Tensor, nn

from models.stepwise.incremental import Incremental
from models.stepwise.model import StepwiseModel


class Ensemble(nn.Module):
    """Networks of one order over one vocabulary, of any sizes: p(y_t | y_<t, x) = 1/N sum_n p_n(y_t | y_<t, x)."""

    def __init__(self, members: Sequence[StepwiseModel]) -> None:
        """Raises ValueError for networks that cannot write together."""
        super().__init__()
        first = members[0]
        for number, member in enumerate(members[1:], 2):
            for what, own, its in (
                ("order", first.order, member.order),
                ("words", first.target_embedding.weight.size(0), member.target_embedding.weight.size(0)),
                ("max_positions", first.config.max_positions, member.config.max_positions),
            ):
                if own != its:
                    raise ValueError(f"member {number}: expected the {what} of the first ({own}), got {its}")
        self.members = nn.ModuleList(members)
        self.config, self.order = first.config, first.order


class Together:
    """`Incremental` for all members at once."""

    def __init__(self, ensemble: Ensemble, source: Tensor, source_lengths: Tensor, listed: Tensor | None = None) -> None:
        self._states = [Incremental(member, source, source_lengths, listed) for member in networks(ensemble)]

    def step(self, tokens: Tensor | None) -> Tensor:
        """Log-probabilities [R,z,V], whose softmax they are themselves."""
        return mean([state.step(tokens).log_softmax(2) for state in self._states])

    def select(self, rows: Tensor, sentences: Tensor | None = None) -> None:
        for state in self._states:
            state.select(rows, sentences)


def mean(log_probs: Sequence[Tensor]) -> Tensor:
    """log 1/N sum_n p_n for N tensors of log p_n of one shape."""
    return torch.stack(list(log_probs)).logsumexp(0) - log(len(log_probs))


def networks(model: StepwiseModel | Ensemble) -> list[StepwiseModel]:
    """The members, or the one network."""
    return [member for member in model.members if isinstance(member, StepwiseModel)] if isinstance(model, Ensemble) else [model]


def begin(
    model: StepwiseModel | Ensemble, source: Tensor, source_lengths: Tensor, listed: Tensor | None = None
) -> Incremental | Together:
    """Decoding of sources [B,S] with EOS, before its first step. `listed` [B,V]: may a word be written? None: all may."""
    if isinstance(model, Ensemble):
        return Together(model, source, source_lengths, listed)
    return Incremental(model, source, source_lengths, listed)
