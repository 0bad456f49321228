"""The tokens that searches may write, and the penalty that makes outputs of different lengths comparable."""

from __future__ import annotations

import torch
from torch import Tensor

from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.families.stepwise.options import banned, min_tokens
from fewstep.families.stepwise.orders import GenerationOrder
from fewstep.vocabulary import EOS


class TokenRules:
    """The tokens that may not be written: banned ids, and EOS where it would make the output too short."""

    def __init__(self, search: StepwiseSearch, order: GenerationOrder, tokens: int, device: torch.device) -> None:
        """`tokens` is the size of the vocabulary."""
        ids = torch.arange(tokens, device=device)
        self.min_tokens = min_tokens(search, order)
        self.banned = torch.isin(ids, torch.tensor(banned(search), device=device))
        self.eos = ids == EOS

    def apply(self, log_probs: Tensor, slots: Tensor) -> Tensor:
        """Return log-probabilities [R,z,V] of `slots` [z] with minus infinity for tokens that may not be written."""
        never = self.banned | (self.eos & (slots[:, None] < self.min_tokens))
        return log_probs.masked_fill(never, -torch.inf)


def penalty(search: StepwiseSearch, tokens: Tensor) -> Tensor:
    """Return the divisor of log-probabilities of outputs of `tokens` tokens, EOS included."""
    if search.length_penalty_form == "gnmt":
        return ((5.0 + tokens) / 6.0) ** search.length_penalty
    return tokens.float() ** search.length_penalty
