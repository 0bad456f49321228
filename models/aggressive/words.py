"""Which words a drafter may choose among, where it does not choose among all."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kernels import CandidateTables
from models.aggressive.config import MOST, MOST_LINKS, AggressiveSearch
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
        """[W] ids of at most `count` words and at most `MOST`: EOS, then by how often they stood there, of equals the lower id.
        Reserved ids are not among them."""
        own = torch.arange(len(RESERVED), len(self.counts), device=self.counts.device)
        ranked = own[self.counts[own].argsort(descending=True, stable=True)]
        return torch.cat((ranked.new_tensor([EOS]), ranked))[: min(count, MOST)]


def linked_words(tables: CandidateTables) -> Tensor:
    """[U,L] by word of a source the `MOST_LINKS` words that are linked to it most often, then -1: a lexical shortlist. Raises
    ValueError for tables that were counted without a backoff."""
    found = torch.full((tables.summary.source_size, MOST_LINKS), -1)
    for word in range(len(found)):
        entries, _ = tables.row_of(word)
        linked = torch.tensor([entry for entry, _ in entries[:MOST_LINKS]], dtype=torch.int64)
        found[word, : len(linked)] = linked
    return found


def shortlists(
    words: CommonWords, linked: Tensor | None, source: Tensor, source_lengths: Tensor, search: AggressiveSearch
) -> Tensor | None:
    """[B,V]: may a word be drafted for sources [B,S]? None: all may."""
    if search.draft_words is None:
        return None
    listed = torch.zeros((len(source), len(words.counts)), dtype=torch.bool, device=source.device)
    listed[:, words.most(search.draft_words)] = True
    if search.draft_links and linked is not None:
        real = torch.arange(source.size(1), device=source.device) < source_lengths[:, None]
        rows, places = real.nonzero(as_tuple=True)
        found = linked.to(source.device)[source[rows, places], : search.draft_links]
        rows = rows[:, None].expand_as(found)
        listed[rows[found >= 0], found[found >= 0]] = True
    return listed
