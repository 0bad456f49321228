"""Lexical shortlists: the tokens of a sentence are frequent ones and those that its source tokens are linked to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fewstep import CandidateTables, Lexicon
from fewstep.config.network import Sizes
from fewstep.config.options import MAX_LINKS, MAX_SHORTLIST_TOKENS, Shortlist
from fewstep.system.format import TABLES
from fewstep.system.parts import load_tables
from fewstep.vocabulary import RESERVED


def load_lexicon(directory: Path, description: Mapping[str, Any], sizes: Sizes) -> Lexicon | None:
    """Return the lexicon of a system, or None if it has no candidate tables.

    Raises BundleError for tables of another vocabulary or alignment, ValueError for tables that were counted without a backoff.
    """
    if TABLES not in description.get("parts", ()):
        return None
    tables = load_tables(directory, sizes.source, sizes.target, str(description.get("links", "")))
    return build_lexicon(tables, joint=sizes.joint)


def build_lexicon(tables: CandidateTables, *, joint: bool) -> Lexicon:
    """Build a lexicon from candidate tables.

    Its common tokens are the reserved ids and the target tokens with most links, ties by the lower id, at most
    `MAX_SHORTLIST_TOKENS`. Its linked tokens are the `MAX_LINKS` most frequent links of each source token; with a `joint`
    vocabulary the source token itself comes first, so that names can be copied. Raises ValueError for tables that were counted
    without a backoff.
    """
    linked = np.full((tables.summary.source_size, MAX_LINKS), -1)
    counts = np.zeros(tables.summary.target_size, np.int64)
    for token, row in enumerate(linked):
        entries, _ = tables.lexical_row(token)
        for entry, count in entries:
            counts[entry] += count
        own = [token] if joint and token >= len(RESERVED) else []
        links = [*own, *(entry for entry, _ in entries if entry not in own)][:MAX_LINKS]
        row[: len(links)] = links
    counts[: len(RESERVED)] = counts.max(initial=0) + 1
    return Lexicon(np.argsort(-counts, kind="stable")[:MAX_SHORTLIST_TOKENS], linked)


def shortlist_mask(
    shortlist: Shortlist | None, lexicon: Lexicon | None, source: Tensor, source_lengths: Tensor, size: int
) -> Tensor | None:
    """Return [B,V], True at the tokens of the shortlists of sources [B,S]; None without a shortlist. `size` is V."""
    if shortlist is None:
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
