"""What vertices would write, and where they would go on: the candidates of a search."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from models.common.linear import TokenTable
from models.family import BOS, EOS, RESERVED, UNK

LOGITS = 2**24
"""Logits held at a time."""
MANY, BLOCK = 2**11, 64
"""Words from which on the best are looked for in blocks, and words of a block."""


class Words(NamedTuple):
    """The best tokens of each vertex, best first."""

    scores: Tensor
    """[B,L,W] log-probabilities; minus infinity where there are no more"""
    ids: Tensor
    """[B,L,W]"""


class Candidates(NamedTuple):
    """The best pairs of next vertex and token of each vertex, best first."""

    scores: Tensor
    """[B,L,C]"""
    vertices: Tensor
    """[B,L,C]"""
    ids: Tensor
    """[B,L,C]"""


class _Ranked(NamedTuple):
    """Words that are ranked for a batch of sentences: all, or those that one of them lists."""

    ids: Tensor
    """[U] ascending, reserved ones first"""
    weight: Tensor
    """[U,D]"""
    mine: Tensor
    """[B,U]: does a sentence list it?"""

    def logits(self, states: Tensor, sentences: Tensor) -> Tensor:
        """States [R,D] of vertices of `sentences` [R] to [R,U], minus infinity for words that are not on their lists."""
        return F.linear(states, self.weight).masked_fill(~self.mine[sentences], -torch.inf)


def _ranked(listed: Tensor, table: TokenTable) -> _Ranked:
    kept = listed.any(0)
    kept[: len(RESERVED)] = True
    ids = kept.nonzero()[:, 0]
    return _Ranked(ids, table.weight[ids], listed[:, ids])


def best_words(
    states: Tensor, lengths: Tensor, table: TokenTable, count: int, *, allow_unknown: bool, listed: Tensor | None = None
) -> Words:
    """From states [B,L,D] of graphs of `lengths` [B] vertices: the first vertex can write BOS alone, the last one EOS, the others
    anything but reserved tokens, or what is `listed` [B,V] of these."""
    flat = states.flatten(0, 1)
    some = None if listed is None else _ranked(listed, table)
    size = table.num_embeddings if some is None else len(some.ids)
    count = min(count, size)
    never = banned(allow_unknown=allow_unknown)
    scores, ends = flat.new_empty(len(flat), count), flat.new_empty(len(flat), 2)
    ids = torch.empty((len(flat), count), dtype=torch.int64, device=flat.device)
    rows = max(1, LOGITS // size)
    sentence_of = torch.arange(len(states), device=flat.device).repeat_interleave(states.size(1))
    for part in (slice(start, start + rows) for start in range(0, len(flat), rows)):
        logits = table.logits(flat[part]) if some is None else some.logits(flat[part], sentence_of[part])
        log_probs = logits.log_softmax(1)
        ends[part] = log_probs[:, [BOS, EOS]]
        log_probs[:, never] = -torch.inf
        scores[part], ids[part] = highest(log_probs, count)
    if some is not None:
        ids = some.ids[ids]
    words = Words(scores.view(*states.shape[:2], count), ids.view(*states.shape[:2], count))
    sentences = torch.arange(len(states), device=flat.device)
    ends = ends.view(*states.shape[:2], 2)
    for vertex, end, token in ((torch.zeros_like(lengths), 0, BOS), (lengths - 1, 1, EOS)):
        words.scores[sentences, vertex] = -torch.inf
        words.scores[sentences, vertex, 0] = ends[sentences, vertex, end]
        words.ids[sentences, vertex, 0] = token
    return words


def highest(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` highest of each row [R,V] and their places, [R,count], highest first.

    Of many they are in the `count` blocks with the highest maxima, or behind the last whole block: topk looks at values one by one,
    and maxima are found many at a time. Of 8,000 words the two best take a fifth to a third of topk's time on a CPU.
    """
    rows, size = values.shape
    if size < MANY:
        return values.topk(count)
    whole = size // BLOCK * BLOCK
    blocks = values[:, :whole].view(rows, -1, BLOCK).amax(2).topk(min(count, whole // BLOCK)).indices
    inside = (blocks[:, :, None] * BLOCK + torch.arange(BLOCK, device=values.device)).flatten(1)
    places = torch.cat((inside, torch.arange(whole, size, device=values.device).expand(rows, -1)), 1)
    found, at = values.gather(1, places).topk(count)
    return found, places.gather(1, at)


def banned(*, allow_unknown: bool) -> list[int]:
    """Tokens that no vertex between the ends writes."""
    return [token for token in range(len(RESERVED)) if token != UNK or not allow_unknown]


def candidates(transitions: Tensor, words: Words, count: int, token_weight: float) -> Candidates:
    """The best `count` of each vertex by transition [B,L,L] plus `token_weight` times the token's score.

    Of one vertex the `count` best pairs lead to the `count` best next vertices, each with its best token.
    """
    size = transitions.size(2)
    weighted = torch.where(words.scores.isfinite(), words.scores * token_weight, -torch.inf)
    vertices = (transitions + weighted[:, None, :, 0]).topk(min(count, size), 2).indices
    steps = transitions.gather(2, vertices)
    rows = torch.arange(len(transitions), device=transitions.device)[:, None, None]
    pairs = (steps[..., None] + weighted[rows, vertices]).flatten(2)
    scores, chosen = pairs.topk(min(count, pairs.size(2)), 2)
    width = weighted.size(2)
    return Candidates(scores, vertices.gather(2, chosen // width), words.ids[rows, vertices].flatten(2).gather(2, chosen))
