"""The tokens that may be written, and those among which a drafter with a shortlist chooses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn

from fewstep.config.options import MAX_SHORTLIST_TOKENS
from fewstep.families.aggressive.config import AggressiveSearch
from fewstep.families.aggressive.drafter import common_tokens
from fewstep.families.aggressive.options import banned
from fewstep.vocabulary import EOS
from models.common.shortlist import token_mask


class CommonTokens(nn.Module):
    """Counts of the tokens in the training text."""

    counts: Tensor
    """The count of each token [V]."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("counts", torch.zeros(size))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Convert the counts to another device alone: half precision does not hold them."""
        counts = self.counts
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.counts = counts.to(self.counts.device)
        return self

    def add(self, labels: Tensor) -> None:
        """Count the tokens of an update [N]."""
        self.counts += torch.bincount(labels, minlength=len(self.counts))

    def most_common(self, count: int) -> Tensor:
        """Return [W], at most `count` and at most `MAX_SHORTLIST_TOKENS` ids: EOS, then other tokens by their counts, ties by the
        lower id. Reserved ids are left out."""
        found = common_tokens(self.counts.cpu().numpy(), min(count, MAX_SHORTLIST_TOKENS))
        return torch.from_numpy(found).to(self.counts.device)


def draft_mask(
    tokens: CommonTokens, linked: Tensor | None, source: Tensor, source_lengths: Tensor, search: AggressiveSearch
) -> Tensor | None:
    """Return [B,V], True at the tokens that may be drafted for sources [B,S]; None: all tokens."""
    shortlist = search.draft_shortlist
    if shortlist is None or shortlist.tokens is None:
        return None
    links = None if linked is None else linked[:, : shortlist.links]
    common = tokens.most_common(shortlist.tokens).to(source.device)
    return token_mask(common, links, source, source_lengths, len(tokens.counts))


def ban(log_probs: Tensor, search: AggressiveSearch, slots: Tensor) -> Tensor:
    """Set log-probabilities [B,Q,V] of slots [B,Q] to minus infinity, in place, for banned ids, and for EOS where it would make the
    output shorter than `min_tokens`."""
    for token in banned(search):  # not a list of them, which would be copied to a GPU
        log_probs[..., token] = -torch.inf
    log_probs[..., EOS] = log_probs[..., EOS].masked_fill(slots < search.output_limits.min_tokens, -torch.inf)
    return log_probs


def writable_prefix(ids: Tensor, search: AggressiveSearch) -> Tensor:
    """Return drafts [B,W], -1 from the first one on that may not be written: a banned token, or one after EOS."""
    ended = (ids == EOS).long()
    invalid = (ids < 0) | ((ended.cumsum(1) - ended) > 0)
    for token in banned(search):
        invalid |= ids == token
    return ids.masked_fill(invalid.long().cumsum(1) > 0, -1)
