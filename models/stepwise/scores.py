"""The tokens that searches may write, and the penalty that makes outputs of different lengths comparable."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.families.stepwise.options import banned, min_tokens
from fewstep.families.stepwise.orders import GenerationOrder
from fewstep.vocabulary import EOS

NO_TOKEN = -1


class TokenRules:
    """The tokens that may not be written: banned ids, EOS where it would make the output too short, and tokens that would repeat an
    n-gram."""

    def __init__(self, search: StepwiseSearch, order: GenerationOrder, tokens: int, device: torch.device) -> None:
        """`tokens` is the size of the vocabulary."""
        ids = torch.arange(tokens, device=device)
        self.min_tokens = min_tokens(search, order)
        self.banned = torch.isin(ids, torch.tensor(banned(search), device=device))
        self.eos = ids == EOS
        self.no_repeat_ngram = search.no_repeat_ngram
        self.directions = order.directions

    def apply(self, log_probs: Tensor, slots: Tensor, written: Tensor) -> Tensor:
        """Return log-probabilities [R,z,V] of `slots` [z], in ascending order, with minus infinity for tokens that may not be
        written after the tokens `written` [R,T] in the slots before them."""
        never = self.banned | (self.eos & (slots[:, None] < self.min_tokens))
        if self.no_repeat_ngram:
            never = never | self._repeats(log_probs, slots, written)
        return log_probs.masked_fill(never, -torch.inf)

    def _repeats(self, log_probs: Tensor, slots: Tensor, written: Tensor) -> Tensor:
        """Return [R,z,V], True at tokens that would repeat an n-gram of their direction: the tokens that follow
        an earlier occurrence of its last n - 1 tokens."""
        places = torch.arange(written.size(1), device=written.device)
        same = (places < slots[:, None]) & ((slots[:, None] - places) % self.directions == 0)  # [z,T]
        found = same.expand(len(written), -1, -1)
        for back in range(self.directions, self.no_repeat_ngram * self.directions, self.directions):
            earlier = F.pad(written, (back, 0), value=NO_TOKEN)[:, : written.size(1)]
            last = written.index_select(1, (slots - back).clamp(min=0))
            found = found & (earlier[:, None] == last[..., None]) & (slots >= back)[:, None]
        # Counts, since several places may hold one token.
        counts = torch.zeros(log_probs.shape, dtype=torch.int32, device=log_probs.device)
        counts.scatter_add_(2, written[:, None].expand_as(found), found.int())
        return counts > 0


def penalty(search: StepwiseSearch, tokens: Tensor) -> Tensor:
    """Return the divisor of log-probabilities of outputs of `tokens` tokens, EOS included."""
    if search.length_penalty_form == "gnmt":
        return ((5.0 + tokens) / 6.0) ** search.length_penalty
    return tokens.float() ** search.length_penalty
