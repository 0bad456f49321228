"""Lexical shortlists: the tokens of a sentence are frequent ones and those that its source tokens are linked to."""

from __future__ import annotations

import torch
from torch import Tensor

from fewstep import Lexicon
from fewstep.config.options import MAX_LINKS, Shortlist


def shortlist_mask(
    shortlist: Shortlist | None, lexicon: Lexicon | None, source: Tensor, source_lengths: Tensor, size: int
) -> Tensor | None:
    """Return [B,V], True at the tokens of the shortlists of sources [B,S]; None without a shortlist of a stated size.
    `size` is V."""
    if shortlist is None or shortlist.tokens is None:
        return None
    assert lexicon is not None
    common = torch.from_numpy(lexicon.common_tokens[: shortlist.tokens])
    return token_mask(common, linked_tokens(lexicon, shortlist.links), source, source_lengths, size)


def linked_tokens(lexicon: Lexicon | None, links: int = MAX_LINKS) -> Tensor | None:
    """Return [U,L], the first `links` linked tokens of each source token; None without a lexicon or links."""
    if lexicon is None or lexicon.linked_tokens is None:
        return None
    return torch.from_numpy(lexicon.linked_tokens[:, :links])


def token_mask(common: Tensor, linked: Tensor | None, source: Tensor, source_lengths: Tensor, size: int) -> Tensor:
    """Return [B,size], True at the tokens `common` [W] and at those that `linked` [U,L], padded with -1, lists for a token of the
    sources [B,S]."""
    mask = torch.zeros((len(source), size), dtype=torch.bool, device=source.device)
    mask[:, common] = True
    if linked is None:
        return mask
    real = torch.arange(source.size(1), device=source.device) < source_lengths[:, None]
    rows, positions = real.nonzero(as_tuple=True)
    tokens = linked.to(source.device)[source[rows, positions]]
    rows = rows[:, None].expand_as(tokens)
    mask[rows[tokens >= 0], tokens[tokens >= 0]] = True
    return mask
