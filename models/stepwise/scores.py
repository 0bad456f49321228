"""What searches may write, how long, and how they compare outputs of unequal lengths."""

from __future__ import annotations

import torch
from torch import Tensor

from models.family import EOS, RESERVED, UNK
from models.stepwise.config import StepwiseSearch


def banned(search: StepwiseSearch) -> list[int]:
    """Ids that are never written."""
    allowed = {EOS, UNK} if search.output_limits.allow_unknown else {EOS}
    return [token for token in range(len(RESERVED)) if token not in allowed]


def ban(log_probs: Tensor, search: StepwiseSearch, slot: int) -> Tensor:
    """Log-probabilities [R,z,V] of the slots from `slot` on, changed in place: minus infinity for reserved ids but EOS, and for EOS
    where it would make the output shorter than `min_tokens`."""
    log_probs[..., banned(search)] = -torch.inf
    if (missing := search.output_limits.min_tokens - slot) > 0:
        log_probs[..., :missing, EOS] = -torch.inf
    return log_probs


def penalty(search: StepwiseSearch, tokens: Tensor) -> Tensor:
    """What the log-probability of an output of so many tokens (with EOS) is divided by."""
    if search.length_penalty_form == "gnmt":
        return ((5.0 + tokens) / 6.0) ** search.length_penalty
    return tokens.float() ** search.length_penalty


def gap(kept: Tensor, dropped: Tensor) -> Tensor:
    """How far `dropped` is behind `kept`: infinitely far where nothing was dropped."""
    return torch.where(dropped.isfinite(), kept - dropped, torch.inf)
