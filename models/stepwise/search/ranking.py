"""The best continuations of the live hypotheses of each sentence, by tensors of fixed shapes.

Legend: B sentences, K live hypotheses of each, R = B K rows, z slots, W candidates of a slot, N continuations that are kept.

The rankings are those of `csrc/inference/stepwise/step_selection.h`, with sums in float64 and the same order of equal scores: by
hypothesis, then by candidate, with EOS last.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from fewstep.search.beam import BeamOptions
from fewstep.vocabulary import EOS, PAD
from models.stepwise.search.joint_choice import Bigrams, SlotCandidates

COUPLED_FACTOR = 4
"""Partial continuations that are kept with coupling, as a multiple of K + 1."""


class Ranked(NamedTuple):
    """Continuations of each sentence, best first; minus infinity where there are fewer."""

    scores: Tensor
    """The log-probabilities of hypothesis and step, with coupling, float64 [B,N]."""
    parents: Tensor
    """The hypotheses that are continued [B,N]."""
    tokens: Tensor
    """The tokens of the step [B,N,z], PAD in slots that do not count."""
    ends: Tensor
    """Whether the output ends [B,N]."""

    def best(self, keys: Tensor, count: int) -> Ranked:
        """Return the `count` continuations with the highest keys [B,N]."""
        chosen = _first(keys, count)
        return Ranked(
            self.scores.gather(1, chosen),
            self.parents.gather(1, chosen),
            rows_of(self.tokens, chosen),
            self.ends.gather(1, chosen),
        )

    def going(self, count: int) -> Ranked:
        """Return the best `count` that do not end."""
        keys = self.scores.masked_fill(self.ends, -torch.inf)
        return self._replace(scores=keys).best(keys, count)


Rank = Callable[[SlotCandidates, Tensor, Tensor], tuple[Ranked, Ranked]]
"""The function `rank(top, live, remaining)`, which returns the best continuations, K + 1 or as many as an approximation keeps, and
the best K + 1 of those that do not end. `live` [B,K] are the log-probabilities of the hypotheses, and `remaining` [B] is the number
of slots within the maximum length; slots beyond it are PAD and cost nothing."""


def ranking(options: BeamOptions, device: torch.device) -> Rank:
    """Return the function that ranks the steps of a search."""
    coupling = options.coupling
    if coupling.ngram is not None:
        bigrams = Bigrams(coupling.ngram, device)
        return CoupledRanking(coupling.weight, coupling.right_to_left, bigrams).rank
    if options.step_size == 1 or options.selection == "exact":
        return partial(rank_exactly, per_direction=options.per_direction)
    if options.whole_steps:
        return partial(rank_outer, per_direction=options.per_direction, authors=options.selection == "outer-authors")
    return partial(rank_double_top_k, per_direction=options.per_direction)


def rows_of(values: Tensor, chosen: Tensor) -> Tensor:
    """Return rows [B,N,T] of `values` [B,M,T] by their indices [B,N]."""
    return values.gather(1, chosen[..., None].expand(-1, -1, values.size(2)))


def _first(scores: Tensor, count: int) -> Tensor:
    """Return the indices [...,count] of the highest scores [...,N], the first of equal ones first, which `topk` does not
    promise."""
    return scores.sort(dim=1, descending=True, stable=True).indices[:, :count]


class Continuations(NamedTuple):
    """Continuations of each row by some slots; minus infinity where there are fewer."""

    scores: Tensor
    """The sums of log-probabilities of the slots that count, float64 [R,N]."""
    tokens: Tensor
    """The tokens [R,N,s], PAD in slots that do not count."""

    @classmethod
    def of_no_slots(cls, top: SlotCandidates) -> Continuations:
        """Return one continuation of each row, by no slot."""
        rows = len(top.eos)
        device = top.eos.device
        return cls(
            torch.zeros((rows, 1), dtype=torch.float64, device=device), torch.empty((rows, 1, 0), dtype=torch.int64, device=device)
        )

    def best(self, count: int) -> Continuations:
        """Return the best `count`."""
        chosen = _first(self.scores, count)
        return Continuations(self.scores.gather(1, chosen), rows_of(self.tokens, chosen))

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

    def of_sentences(self, live: Tensor, ends: Tensor) -> Ranked:
        """Return the continuations of the hypotheses with log-probabilities `live` [B,K] in one list for each sentence, not ranked;
        `ends` [R,N] is True where the output ends."""
        sentences, beam = live.shape
        count, slots = self.tokens.shape[1:]
        places = torch.arange(beam * count, device=live.device)
        return Ranked(
            (live[:, :, None] + self.scores.view(sentences, beam, count)).flatten(1),
            (places // count).expand(sentences, -1),
            self.tokens.view(sentences, beam * count, slots),
            ends.view(sentences, beam * count),
        )


def expand(top: SlotCandidates, remaining: Tensor, count: int, *, per_direction: bool) -> tuple[Continuations, Continuations]:
    """Return the best `count` continuations without EOS and the best `count` that end.

    `top` has the best tokens of each slot without EOS, and `remaining` [R] is the number of slots within the maximum length. Slots
    after the first EOS are PAD and cost nothing, unless either direction may end (`per_direction`). The slots of a step are
    independent given the row, so the score of a continuation is a sum over its slots, and the best of s + 1 slots extend the best
    of s slots.
    """
    going = Continuations.of_no_slots(top)
    ended = Continuations(*(part[:, :0] for part in going))
    eos = torch.full_like(top.ids[:, 0, :1], EOS)
    for slot in range(top.eos.size(1)):
        inside = (slot < remaining)[:, None]
        scores, ids = _or_pad(inside, top.scores[:, slot], top.ids[:, slot])
        end = top.eos[:, slot, None].where(inside, -torch.inf)
        ends_here = going.extended(end, eos)
        if per_direction:
            after = ended.extended(torch.cat((scores, end), 1), torch.cat((ids, eos), 1))
        else:
            after = ended.extended(torch.zeros_like(end), torch.full_like(eos, PAD))
        ended = after.with_others(ends_here).best(count)
        going = going.extended(scores, ids).best(count)
    return going, ended


def _or_pad(inside: Tensor, scores: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return scores and tokens [...,W] where `inside` [...,1] is True, elsewhere PAD alone, which costs nothing."""
    only = torch.full_like(scores, -torch.inf)
    only[..., 0] = 0.0
    return scores.where(inside, only), ids.where(inside, PAD)


def rank_exactly(top: SlotCandidates, live: Tensor, remaining: Tensor, *, per_direction: bool) -> tuple[Ranked, Ranked]:
    """Rank all continuations of independent slots; see `Rank`. `top` has K + 1 tokens of each slot without EOS."""
    beam = live.size(1)
    going, ended = expand(top, remaining.repeat_interleave(beam), beam + 1, per_direction=per_direction)
    both = going.with_others(ended)
    ends = torch.arange(both.scores.size(1), device=live.device) >= going.scores.size(1)
    every = both.of_sentences(live, ends.expand(len(both.scores), -1).contiguous())
    return every.best(every.scores, beam + 1), every.going(beam + 1)


def rank_outer(
    top: SlotCandidates, live: Tensor, remaining: Tensor, *, per_direction: bool, authors: bool
) -> tuple[Ranked, Ranked]:
    """Rank sums of the first K tokens of each slot, cut to K before each further slot (Zhang et al. 2020, algorithm 1); see `Rank`.

    Every slot counts, also those after an EOS, which is among the K tokens, and those beyond the limit. The sums are cut to K after
    the last slot too, and all of all hypotheses are kept. The authors' program does not cut them there and keeps the first 2 K of a
    sentence.
    """
    beam = live.size(1)
    kept = 2 * beam if authors else beam**2
    found = Continuations.of_no_slots(top)
    for slot in range(top.eos.size(1)):
        found = found.best(beam).extended(top.scores[:, slot], top.ids[:, slot])
    if not authors:
        found = found.best(beam)
    every = found.of_sentences(live, (found.tokens == EOS).any(2))
    every = every.best(every.scores, kept + 1)
    ranked, _ = _approximate(every, beam, per_direction=per_direction)
    return ranked, Ranked(*(part[:, :kept] for part in ranked)).going(beam + 1)


def rank_double_top_k(top: SlotCandidates, live: Tensor, remaining: Tensor, *, per_direction: bool) -> tuple[Ranked, Ranked]:
    """Rank the first 2 K left tokens over all hypotheses, then the first 3 K pairs over these (Imamura and Sumita 2020, section
    3.3); see `Rank`. `top` has the first 3 K tokens of each of two slots, EOS among them, and every slot counts."""
    sentences, beam = live.shape
    scores, ids = (part.view(sentences, beam, *part.shape[1:]) for part in (top.scores, top.ids))
    found = _no_slots(live, ids)
    for slot, kept in zip(range(top.eos.size(1)), (2 * beam, 3 * beam), strict=True):
        inside = (slot < remaining)[:, None, None]
        own = _or_pad(inside, *(rows_of(part[:, :, slot], found.parents) for part in (scores, ids)))
        longer = _longer(found, found.scores[..., None] + own[0], own[1])
        found = longer.best(longer.scores, kept)
    return _approximate(found, beam, per_direction=per_direction)


def _approximate(found: Ranked, beam: int, *, per_direction: bool) -> tuple[Ranked, Ranked]:
    """Return ranked continuations, and those among them that do not end; see `Rank`. Tokens after the first EOS, which count in the
    scores, are no part of an output unless either direction may end."""
    if not per_direction:
        ends = (found.tokens == EOS).long()
        found = found._replace(tokens=found.tokens.masked_fill(ends.cumsum(2) - ends > 0, PAD))
    return found, found.going(beam + 1)


def _no_slots(live: Tensor, ids: Tensor) -> Ranked:
    """Return the hypotheses [B,K] themselves, continued by no slot."""
    hypotheses = torch.arange(live.size(1), device=live.device).expand(len(live), -1)
    return Ranked(live, hypotheses, ids.new_zeros(*live.shape, 0), torch.zeros_like(hypotheses, dtype=torch.bool))


def _longer(found: Ranked, scores: Tensor, ids: Tensor) -> Ranked:
    """Return all continuations by one more slot with tokens `ids` [B,N,W], of `scores` [B,N,W], not ranked."""
    width = ids.size(2)
    return Ranked(
        scores.flatten(1),
        found.parents[..., None].expand(-1, -1, width).flatten(1),
        torch.cat((found.tokens[:, :, None].expand(-1, -1, width, -1), ids[..., None]), 3).flatten(1, 2),
        ((ids == EOS) | found.ends[..., None]).flatten(1),
    )


class CoupledRanking:
    """The ranking with bigram coupling, for outputs that end at the first EOS.

    Slot by slot the best partial continuations of a sentence are kept, by their score plus an upper bound of the slots to come.
    """

    def __init__(self, weight: float, right_to_left: tuple[bool, ...], bigrams: Bigrams) -> None:
        self._weight = weight
        self._right_to_left = right_to_left
        self._bigrams = bigrams

    def rank(self, top: SlotCandidates, live: Tensor, remaining: Tensor) -> tuple[Ranked, Ranked]:
        """Return the best continuations, and the best of those that do not end; see `Rank`."""
        sentences, beam = live.shape
        scores, ids, eos = (part.view(sentences, beam, *part.shape[1:]) for part in top)
        # One pass ranks both: the second half of the batch has no EOS.
        endings = torch.cat((eos, torch.full_like(eos, -torch.inf))).double()
        both = SlotCandidates(scores.double().repeat(2, 1, 1, 1), ids.repeat(2, 1, 1, 1), endings)
        ranked = self._best(both, live.repeat(2, 1), remaining.repeat(2))
        return Ranked(*(part[:sentences] for part in ranked)), Ranked(*(part[sentences:] for part in ranked))

    def _best(self, top: SlotCandidates, live: Tensor, remaining: Tensor) -> Ranked:
        beam, slots = top.eos.shape[1:]
        completions = _completions(top, remaining)
        found = _no_slots(live, top.ids)
        for slot in range(slots):
            counts = (slot < remaining)[:, None] & ~found.ends
            longer, keys = self._extended(found, top, slot, counts, completions)
            found = longer.best(keys, (beam + 1) * (1 if slot + 1 == slots else COUPLED_FACTOR))
        return found.best(found.scores, beam + 1)

    def _extended(
        self, found: Ranked, top: SlotCandidates, slot: int, counts: Tensor, completions: Tensor
    ) -> tuple[Ranked, Tensor]:
        """Return all continuations by one more slot, with the keys of their ranking. `counts` [B,N] is True where the slot counts
        for `found`; the others take PAD."""
        ids, scores = (rows_of(part[:, :, slot], found.parents) for part in (top.ids, top.scores))
        sums = found.scores[..., None] + scores + self._gains(found, ids, slot)
        # A gain may be infinite, as may a score: their sum would be NaN where there is no token.
        sums = sums.masked_fill(~counts[..., None] | (scores == -torch.inf), -torch.inf)
        ending = found.scores + top.eos[:, :, slot].gather(1, found.parents)
        ending = ending.masked_fill(~counts, -torch.inf)
        waiting = found.scores.masked_fill(counts, -torch.inf)
        last = torch.stack((ending, waiting), 2)
        keys = torch.cat((sums + completions[:, :, slot].gather(1, found.parents)[..., None], last), 2)
        written = torch.cat((ids, torch.full_like(ids[..., :1], EOS), torch.full_like(ids[..., :1], PAD)), 2)
        return _longer(found, torch.cat((sums, last), 2), written), keys.flatten(1)

    def _gains(self, found: Ranked, ids: Tensor, slot: int) -> Tensor | float:
        """Return the coupling scores [B,N,W] of the candidates of a slot with the previous token of its direction."""
        directions = len(self._right_to_left)
        if slot < directions:
            return 0.0
        earlier = found.tokens[:, :, slot - directions, None]
        pair = (ids, earlier) if self._right_to_left[slot % directions] else (earlier, ids)
        return self._weight * self._bigrams.gain(*pair)


def _completions(top: SlotCandidates, remaining: Tensor) -> Tensor:
    """Return upper bounds [B,K,z] of what the slots after each slot can add, without coupling."""
    after = torch.zeros_like(top.eos[..., 0])
    bounds = [after]
    for slot in range(top.eos.size(2) - 1, 0, -1):
        best = torch.maximum(top.eos[..., slot], top.scores[..., slot, 0] + after)
        after = torch.where((slot < remaining)[:, None], best, after)
        bounds.append(after)
    return torch.stack(bounds[::-1], 2)
