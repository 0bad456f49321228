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
    for token in banned(search):  # not a list of them, which would be copied to a GPU
        log_probs[..., token] = -torch.inf
    log_probs[..., EOS] = log_probs[..., EOS].masked_fill(slots < search.output_limits.min_tokens, -torch.inf)
    return log_probs


def writable_prefix(ids: Tensor, search: AggressiveSearch) -> Tensor:
    """Return drafts [R,W], -1 from the first one on that may not be written: a banned token, or one after EOS."""
    ended = (ids == EOS).long()
    invalid = (ids < 0) | ((ended.cumsum(1) - ended) > 0)
    for token in banned(search):
        invalid |= ids == token
    return ids.masked_fill(invalid.long().cumsum(1) > 0, -1)
