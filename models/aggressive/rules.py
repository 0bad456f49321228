"""The tokens that may be written."""

from __future__ import annotations

import torch
from torch import Tensor

from fewstep.families.aggressive.config import AggressiveSearch
from fewstep.families.aggressive.options import banned
from fewstep.vocabulary import EOS


def ban(log_probs: Tensor, search: AggressiveSearch, slots: Tensor) -> Tensor:
    """Set log-probabilities [R,Q,V] of slots [R,Q] to minus infinity, in place, for banned ids, and for EOS where it would make the
    output shorter than `min_tokens`."""
    log_probs[..., banned(search)] = -torch.inf
    log_probs[..., EOS] = log_probs[..., EOS].masked_fill(slots < search.output_limits.min_tokens, -torch.inf)
    return log_probs
