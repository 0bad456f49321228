"""The tokens that may be written, and the width of blocks."""

from __future__ import annotations

import torch
from torch import Tensor

from fewstep.families.aggressive.config import AggressiveConfig, AggressiveSearch
from fewstep.vocabulary import EOS, RESERVED, UNK


def banned(search: AggressiveSearch) -> list[int]:
    """Return the ids that neither drafter nor verifier writes."""
    allowed = {EOS, UNK} if search.output_limits.allow_unknown else {EOS}
    return [token for token in range(len(RESERVED)) if token not in allowed]


def ban(log_probs: Tensor, search: AggressiveSearch, slots: Tensor) -> Tensor:
    """Set log-probabilities [R,Q,V] of slots [R,Q] to minus infinity, in place, for banned ids, and for EOS where it would make the
    output shorter than `min_tokens`."""
    log_probs[..., banned(search)] = -torch.inf
    log_probs[..., EOS] = log_probs[..., EOS].masked_fill(slots < search.output_limits.min_tokens, -torch.inf)
    return log_probs


def block_width(search: AggressiveSearch, config: AggressiveConfig) -> int:
    """Return the width k of a block."""
    return search.draft_width or config.draft_width
