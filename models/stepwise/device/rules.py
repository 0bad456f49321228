"""The tokens that a step may write, by masks on the device."""

from __future__ import annotations

import torch
from torch import Tensor

from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.families.stepwise.options import banned
from fewstep.vocabulary import EOS


class TokenRules:
    """Banned tokens and the minimum length; see `models.stepwise.scores.ban`."""

    def __init__(self, search: StepwiseSearch, tokens: int, device: torch.device) -> None:
        ids = torch.arange(tokens, device=device)
        self.min_tokens = search.output_limits.min_tokens
        self.banned = torch.isin(ids, torch.tensor(banned(search), device=device))
        self.eos = ids == EOS

    def apply(self, log_probs: Tensor, slots: Tensor) -> Tensor:
        """Return log-probabilities [R,z,V] of `slots` [z] with minus infinity for tokens that may not be written."""
        never = self.banned | (self.eos & (slots[:, None] < self.min_tokens))
        return log_probs.masked_fill(never, -torch.inf)
