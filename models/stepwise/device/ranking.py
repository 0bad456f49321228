"""The best continuations of the live hypotheses of each sentence, by tensors of fixed shapes.

Legend: B sentences, K live hypotheses of each, R = B K rows, z slots, W candidates of a slot, N continuations that are kept.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fewstep import BigramCoupling
from fewstep.vocabulary import EOS, PAD
from models.stepwise.device.bigrams import Bigrams
from models.stepwise.device.expand import expand
from models.stepwise.search.top_tokens import TopTokens

COUPLED_FACTOR = 4
"""Partial continuations that are kept with coupling, as a multiple of K + 1, as in `csrc/inference/stepwise/step_selection.cc`."""


class Ranked(NamedTuple):
    """Continuations of each sentence, best first; minus infinity where there are fewer."""

    scores: Tensor
    """The log-probabilities of hypothesis and step, with coupling [B,N]."""
    parents: Tensor
    """The hypotheses that are continued [B,N]."""
    tokens: Tensor
    """The tokens of the step [B,N,z], PAD in slots that do not count."""
    ends: Tensor
    """Whether the output ends [B,N]."""

    def best(self, keys: Tensor, count: int) -> Ranked:
        """Return the `count` continuations with the highest keys [B,N]."""
        chosen = keys.topk(min(count, keys.size(1))).indices
        return Ranked(
            self.scores.gather(1, chosen),
            self.parents.gather(1, chosen),
            rows_of(self.tokens, chosen),
            self.ends.gather(1, chosen),
        )


def rows_of(values: Tensor, chosen: Tensor) -> Tensor:
    """Return rows [B,N,T] of `values` [B,M,T] by their indices [B,N]."""
    return values.gather(1, chosen[..., None].expand(-1, -1, values.size(2)))


def rank_independently(top: TopTokens, live: Tensor, remaining: Tensor, *, per_direction: bool) -> tuple[Ranked, Ranked]:
    """Return the best K continuations, and the best K of those that do not end.

    `top` has the best tokens of each slot of R rows without EOS, `live` [B,K] are the log-probabilities of the hypotheses, and
    `remaining` [B] is the number of slots within the maximum length.
    """
    sentences, beam = live.shape
    going, ended = expand(top, remaining.repeat_interleave(beam), beam, per_direction=per_direction)
    both = going.with_others(ended)
    width = both.scores.size(1)
    places = torch.arange(beam * width, device=live.device)
    every = Ranked(
        (live[:, :, None] + both.scores.view(sentences, beam, width)).flatten(1),
        (places // width).expand(sentences, -1),
        both.tokens.view(sentences, beam * width, -1),
        (places % width >= going.scores.size(1)).expand(sentences, -1),
    )
    return every.best(every.scores, beam), every.best(every.scores.masked_fill(every.ends, -torch.inf), beam)


class CoupledRanking:
    """The ranking of `csrc/inference/stepwise/step_selection.h` with bigram coupling, for outputs that end at the first EOS.

    Slot by slot the best partial continuations of a sentence are kept, by their score plus an upper bound of the slots to come.
    """

    def __init__(self, coupling: BigramCoupling, bigrams: Bigrams) -> None:
        self._weight, self._right_to_left, self._bigrams = coupling.weight, coupling.right_to_left, bigrams

    def rank(self, top: TopTokens, live: Tensor, remaining: Tensor) -> tuple[Ranked, Ranked]:
        """Return the best K continuations, and the best K of those that do not end; see `rank_independently`."""
        sentences, beam = live.shape
        scores, ids, eos = (part.view(sentences, beam, *part.shape[1:]) for part in top)
        endings = torch.cat((eos, torch.full_like(eos, -torch.inf))).double()
        both = TopTokens(scores.double().repeat(2, 1, 1, 1), ids.repeat(2, 1, 1, 1), endings)  # one pass ranks both
        ranked = self._best(both, live.repeat(2, 1), remaining.repeat(2))
        return Ranked(*(part[:sentences] for part in ranked)), Ranked(*(part[sentences:] for part in ranked))

    def _best(self, top: TopTokens, live: Tensor, remaining: Tensor) -> Ranked:
        sentences, beam, slots = top.eos.shape
        completions = _completions(top, remaining)
        hypotheses = torch.arange(beam, device=live.device).expand(sentences, -1)
        found = Ranked(
            live.double(), hypotheses, top.ids.new_zeros(sentences, beam, 0), torch.zeros_like(hypotheses, dtype=torch.bool)
        )
        for slot in range(slots):
            counts = (slot < remaining)[:, None] & ~found.ends
            longer, keys = self._extended(found, top, slot, counts, completions)
            found = longer.best(keys, (beam + 1) * (1 if slot + 1 == slots else COUPLED_FACTOR))
        return found._replace(scores=found.scores.float()).best(found.scores, beam)

    def _extended(self, found: Ranked, top: TopTokens, slot: int, counts: Tensor, completions: Tensor) -> tuple[Ranked, Tensor]:
        """Return all continuations by one more slot, with the keys of their ranking. `counts` [B,N] is True
        where the slot counts for `found`; the others take PAD."""
        ids, scores = (rows_of(part[:, :, slot], found.parents) for part in (top.ids, top.scores))
        sums = found.scores[..., None] + scores + self._gains(found, ids, slot)
        sums = sums.masked_fill(~counts[..., None] | (scores == -torch.inf), -torch.inf)
        ending = found.scores + top.eos[:, :, slot].gather(1, found.parents)
        ending = ending.masked_fill(~counts, -torch.inf)
        waiting = found.scores.masked_fill(counts, -torch.inf)
        last = torch.stack((ending, waiting), 2)
        keys = torch.cat((sums + completions[:, :, slot].gather(1, found.parents)[..., None], last), 2)
        written = torch.cat((ids, torch.full_like(ids[..., :1], EOS), torch.full_like(ids[..., :1], PAD)), 2)
        width = written.size(2)
        ends = torch.zeros_like(keys, dtype=torch.bool)
        ends[..., width - 2] = True
        longer = Ranked(
            torch.cat((sums, last), 2).flatten(1),
            found.parents[..., None].expand(-1, -1, width).flatten(1),
            torch.cat((found.tokens[:, :, None].expand(-1, -1, width, -1), written[..., None]), 3).flatten(1, 2),
            (ends | found.ends[..., None]).flatten(1),
        )
        return longer, keys.flatten(1)

    def _gains(self, found: Ranked, ids: Tensor, slot: int) -> Tensor | float:
        """Return the coupling scores [B,N,W] of the candidates of a slot with the previous token of its direction."""
        directions = len(self._right_to_left)
        if slot < directions:
            return 0.0
        earlier = found.tokens[:, :, slot - directions, None]
        pair = (ids, earlier) if self._right_to_left[slot % directions] else (earlier, ids)
        return self._weight * self._bigrams.gain(*pair)


def _completions(top: TopTokens, remaining: Tensor) -> Tensor:
    """Return upper bounds [B,K,z] of what the slots after each slot can add, without coupling."""
    after = torch.zeros_like(top.eos[..., 0])
    bounds = [after]
    for slot in range(top.eos.size(2) - 1, 0, -1):
        best = torch.maximum(top.eos[..., slot], top.scores[..., slot, 0] + after)
        after = torch.where((slot < remaining)[:, None], best, after)
        bounds.append(after)
    return torch.stack(bounds[::-1], 2)
