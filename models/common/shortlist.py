"""Lexical shortlists: the words that a sentence is written in are common ones, and those that words of its source are linked to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fewstep import CandidateTables, Lexicon
from models.bundle.weights import TABLES
from models.common.options import MAX_LINKS, MAX_SHORTLIST_TOKENS, Shortlist
from models.common.tables import load_tables
from models.family import RESERVED, Sizes


def load_lexicon(directory: Path, description: Mapping[str, Any], sizes: Sizes) -> Lexicon | None:
    """That of a system with candidate tables. Raises BundleError for those of another vocabulary or alignment, ValueError for
    tables that were counted without a backoff."""
    if TABLES not in description.get("parts", ()):
        return None
    tables = load_tables(directory, sizes.source, sizes.target, str(description.get("links", "")))
    return lexicon_of(tables, joint=sizes.joint)


def lexicon_of(tables: CandidateTables, *, joint: bool) -> Lexicon:
    """Reserved ids and the words that most words of sources are linked to, of equals the lower id, at most `MAX_SHORTLIST_TOKENS`; and for each
    word of a source the `MAX_LINKS` that it is linked to most often, with one vocabulary for both sides (`joint`) itself first, so
    that names can be copied. Raises ValueError for tables that were counted without a backoff."""
    linked = np.full((tables.summary.source_size, MAX_LINKS), -1)
    counts = np.zeros(tables.summary.target_size, np.int64)
    for word, row in enumerate(linked):
        entries, _ = tables.lexical_row(word)
        for entry, count in entries:
            counts[entry] += count
        own = [word] if joint and word >= len(RESERVED) else []
        links = [*own, *(entry for entry, _ in entries if entry not in own)][:MAX_LINKS]
        row[: len(links)] = links
    counts[: len(RESERVED)] = counts.max(initial=0) + 1
    return Lexicon(np.argsort(-counts, kind="stable")[:MAX_SHORTLIST_TOKENS], linked)


def listed_for(shortlist: Shortlist | None, lexicon: Lexicon | None, source: Tensor, source_lengths: Tensor, words: int) -> Tensor | None:
    """[B,V]: may a word be written for sources [B,S]? None: all may."""
    if shortlist is None:
        return None
    assert lexicon is not None
    common = torch.from_numpy(lexicon.common_tokens[: shortlist.tokens])
    return listed(common, linked_tokens(lexicon, shortlist.links), source, source_lengths, words)


def linked_tokens(lexicon: Lexicon | None, links: int = MAX_LINKS) -> Tensor | None:
    """[U,L] the first `links` of a lexicon's, if it has some."""
    if lexicon is None or lexicon.linked_tokens is None:
        return None
    return torch.from_numpy(lexicon.linked_tokens[:, :links])


def listed(common: Tensor, linked: Tensor | None, source: Tensor, source_lengths: Tensor, words: int) -> Tensor:
    """[B,V]: is a word among `common` [W], or linked to a word of sources [B,S] by `linked` [U,L], which -1 fills?"""
    found = torch.zeros((len(source), words), dtype=torch.bool, device=source.device)
    found[:, common] = True
    if linked is None:
        return found
    real = torch.arange(source.size(1), device=source.device) < source_lengths[:, None]
    rows, places = real.nonzero(as_tuple=True)
    brought = linked.to(source.device)[source[rows, places]]
    rows = rows[:, None].expand_as(brought)
    found[rows[brought >= 0], brought[brought >= 0]] = True
    return found
