"""Which words a drafter may choose among, where it does not choose among all."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from models.aggressive.config import AggressiveSearch
from models.common.options import MAX_SHORTLIST_TOKENS
from models.common.shortlist import token_mask
from models.family import EOS, RESERVED


class CommonWords(nn.Module):
    """How often each word stood in the training text."""

    counts: Tensor
    """[V]"""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.register_buffer("counts", torch.zeros(words))

    def add(self, labels: Tensor) -> None:
        """Count the words of an update [N]."""
        self.counts += torch.bincount(labels, minlength=len(self.counts))

    def most(self, count: int) -> Tensor:
        """[W] ids of at most `count` words and at most `MAX_SHORTLIST_TOKENS`: EOS, then by how often they stood there, of equals
        the lower id. Reserved ids are not among them."""
        own = torch.arange(len(RESERVED), len(self.counts), device=self.counts.device)
        ranked = own[self.counts[own].argsort(descending=True, stable=True)]
        return torch.cat((ranked.new_tensor([EOS]), ranked))[: min(count, MAX_SHORTLIST_TOKENS)]


def shortlists(
    words: CommonWords, linked: Tensor | None, source: Tensor, source_lengths: Tensor, search: AggressiveSearch
) -> Tensor | None:
    """[B,V]: may a word be drafted for sources [B,S]? None: all may."""
    shortlist = search.draft_shortlist
    if shortlist is None:
        return None
    some = None if linked is None else linked[:, : shortlist.links]
    return token_mask(words.most(shortlist.tokens), some, source, source_lengths, len(words.counts))
