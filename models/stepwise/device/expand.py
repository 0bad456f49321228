"""The best continuations of a step of several slots, by tensors of fixed shapes.

Legend: R rows, z slots, W candidates of a slot, N continuations that are kept of each row.

The slots of a step are independent given the row, so the score of a continuation is a sum over its slots, and the best N of s + 1
slots extend the best N of s slots.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fewstep.vocabulary import EOS, PAD
from models.stepwise.search.top_tokens import TopTokens


class Continuations(NamedTuple):
    """Continuations of each row, best first; minus infinity where there are fewer."""

    scores: Tensor
    """The sums of log-probabilities of the slots that count [R,N]."""
    tokens: Tensor
    """The tokens [R,N,z], PAD in slots that do not count."""

    def best(self, count: int) -> Continuations:
        """Return the best `count`."""
        scores, chosen = self.scores.topk(min(count, self.scores.size(1)))
        return Continuations(scores, self.tokens.gather(1, chosen[..., None].expand(-1, -1, self.tokens.size(2))))

    def extended(self, scores: Tensor, ids: Tensor) -> Continuations:
        """Return all continuations by one more slot with tokens `ids` [R,W] of `scores` [R,W]."""
        rows, count, slots = self.tokens.shape
        width = ids.size(1)
        before = self.tokens[:, :, None].expand(-1, -1, width, -1)
        tokens = torch.cat((before, ids[:, None, :, None].expand(-1, count, -1, -1)), 3)
        return Continuations((self.scores[:, :, None] + scores[:, None]).flatten(1), tokens.reshape(rows, -1, slots + 1))

    def with_others(self, others: Continuations) -> Continuations:
        """Return these and others as one list."""
        return Continuations(torch.cat((self.scores, others.scores), 1), torch.cat((self.tokens, others.tokens), 1))


def expand(top: TopTokens, remaining: Tensor, count: int, *, per_direction: bool) -> tuple[Continuations, Continuations]:
    """Return the best `count` continuations without EOS and the best `count` that end.

    `top` has the best tokens of each slot without EOS, and `remaining` [R] is the number of slots within the maximum length; slots
    beyond it are PAD and cost nothing, as do those after the first EOS unless either direction may end (`per_direction`).
    """
    rows, slots = top.eos.shape
    going = Continuations(top.eos.new_zeros(rows, 1), torch.empty((rows, 1, 0), dtype=torch.int64, device=top.eos.device))
    ended = Continuations(*(part[:, :0] for part in going))
    eos = torch.full((rows, 1), EOS, device=top.eos.device)
    for slot in range(slots):
        inside = (slot < remaining)[:, None]
        scores, ids = _or_pad(inside, top.scores[:, slot], top.ids[:, slot])
        end = top.eos[:, slot, None].where(inside, -torch.inf)
        ends_here = going.extended(end, eos)
        if per_direction:
            after = ended.extended(torch.cat((scores, end), 1), torch.cat((ids, eos), 1))
        else:
            after = ended.extended(torch.zeros_like(end), torch.full_like(eos, PAD))
        ended, going = after.with_others(ends_here).best(count), going.extended(scores, ids).best(count)
    return going, ended


def _or_pad(inside: Tensor, scores: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return scores and tokens [R,W] where `inside` [R,1] is True, elsewhere PAD alone, which costs nothing."""
    only = torch.full_like(scores, -torch.inf)
    only[:, 0] = 0.0
    return scores.where(inside, only), ids.where(inside, PAD)
