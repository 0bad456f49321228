"""The tokens that searches may write, and the penalty that makes outputs of different lengths comparable."""

from __future__ import annotations

import torch
from torch import Tensor

from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.families.stepwise.options import banned
from fewstep.vocabulary import EOS


def ban(log_probs: Tensor, search: StepwiseSearch, slot: int) -> Tensor:
    """Set log-probabilities [R,z,V] of the slots from `slot` on to minus infinity, in place, for banned ids, and for EOS where it
    would make the output shorter than `min_tokens`."""
    min_tokens = search.output_limits.min_tokens
    log_probs[..., banned(search)] = -torch.inf
    if slot < min_tokens:
        log_probs[..., : min_tokens - slot, EOS] = -torch.inf
    return log_probs


def penalty(search: StepwiseSearch, tokens: Tensor) -> Tensor:
    """Return the divisor of log-probabilities of outputs of `tokens` tokens, EOS included."""
    if search.length_penalty_form == "gnmt":
        return ((5.0 + tokens) / 6.0) ** search.length_penalty
    return tokens.float() ** search.length_penalty
