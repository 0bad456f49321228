"""Which continuations of K live hypotheses are best: one step of beam search, for steps of z slots.

Given a hypothesis its slots are independent, so a joint continuation scores the hypothesis' log-probability plus the sum of its
slots'. What stands after an EOS may be any token and costs nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from models.family import EOS, PAD
from models.stepwise.config import StepwiseSearch
from models.stepwise.orders import Order
from models.stepwise.outputs import stops


class Candidates(NamedTuple):
    """Continuations of N sentences, best first. Minus infinity: there is none."""

    scores: Tensor
    """[N,M] log-probabilities"""
    parents: Tensor
    """[N,M] the hypothesis that each continues"""
    tokens: Tensor
    """[N,M,z]; PAD after an EOS that ends the output, and beyond the longest output"""

    def pick(self, index: Tensor) -> Candidates:
        """Those at `index` [N,m] of each sentence."""
        tokens = self.tokens.gather(1, index[..., None].expand(-1, -1, self.tokens.size(2)))
        return Candidates(self.scores.gather(1, index), self.parents.gather(1, index), tokens)

    def best(self, count: int, keys: Tensor) -> Candidates:
        """The `count` best by `keys` [N,M], or all."""
        return self.pick(keys.topk(min(count, keys.size(1)))[1])


class Selected(NamedTuple):
    """What a step found."""

    ranked: Candidates
    """At least the first K + 1 of all continuations."""
    living: Candidates
    """The first K + 1 of those that do not end."""


def select(logits: Tensor, normaliser: Tensor, live: Tensor, room: Tensor, order: Order, search: StepwiseSearch) -> Selected:
    """From logits [N,K,z,V] (changed in place), less their `normaliser` [N,K,z], of hypotheses with log-probabilities `live` [N,K],
    `room` [N] slots before the longest output."""
    if order.step_size == 1:
        return _split(_single(logits, live[..., None] - normaliser), live.size(1))
    if search.selection == "double-top-k":
        return _split(_double_top_k(logits - normaliser[..., None], live), live.size(1))
    beams, apart = live.size(1), search.selection == "exact" and order.stop == "first-eos"
    slots = _Slots.of(logits, normaliser, room, beams + (1 if apart else 2), apart=apart)
    return _split(_outer(slots, live), beams) if search.selection == "outer" else _exact(slots, live, order)


def _split(ranked: Candidates, beams: int) -> Selected:
    """Those that do not end, picked out of all; where there are fewer than K + 1, the rest are none."""
    ends = stops(ranked.tokens)
    living = ranked.pick(ends.to(torch.int8).argsort(dim=1, stable=True)[:, : beams + 1])
    return Selected(ranked, living._replace(scores=living.scores.masked_fill(stops(living.tokens), -torch.inf)))


def _single(logits: Tensor, offsets: Tensor) -> Candidates:
    """One slot: the first 2K + 1 continuations, of which at least K + 1 do not end; `offsets` [N,K,1] make their scores."""
    beams, vocabulary = logits.size(1), logits.size(3)
    scores, places = logits.add_(offsets[..., None]).flatten(1).topk(2 * beams + 1)
    return Candidates(scores, places // vocabulary, (places % vocabulary)[..., None])


class _Slots(NamedTuple):
    """The best tokens of each slot."""

    scores: Tensor
    """[N,K,z,W] log-probabilities, best first"""
    ids: Tensor
    """[N,K,z,W]"""
    eos: Tensor
    """[N,K,z] that of EOS, where it is kept apart from the others; else minus infinity"""

    @classmethod
    def of(cls, logits: Tensor, normaliser: Tensor, room: Tensor, width: int, *, apart: bool) -> _Slots:
        """Slots beyond `room` [N] write nothing, for nothing."""
        eos = logits[..., EOS] - normaliser
        if apart:
            logits[..., EOS] = -torch.inf
        scores, ids = logits.topk(min(width, logits.size(3)))
        scores = scores - normaliser[..., None]
        beyond = (torch.arange(logits.size(2), device=room.device) >= room[:, None])[:, None, :, None]
        nothing = torch.full((scores.size(3),), -torch.inf, device=room.device)
        nothing[0] = 0.0
        eos = eos.masked_fill(beyond[..., 0], -torch.inf) if apart else torch.full_like(eos, -torch.inf)
        return cls(torch.where(beyond, nothing, scores), ids.masked_fill(beyond, PAD), eos)


def _exact(slots: _Slots, live: Tensor, order: Order) -> Selected:
    """The exact first K + 1 continuations, and the exact first K + 1 that do not end.

    Slot by slot, partial continuations are ranked by their score plus that of their best completion: one that is dropped is
    beaten by K + 1 whole ones.
    """
    if order.stop == "per-direction":  # EOS is a token among others; both slots always count
        without = _Slots(slots.scores.masked_fill(slots.ids == EOS, -torch.inf), slots.ids, slots.eos)
        return Selected(_merge(slots, live, slots.eos), _merge(without, live, slots.eos))
    return Selected(_merge(slots, live, slots.eos), _merge(slots, live, torch.full_like(slots.eos, -torch.inf)))


def _merge(slots: _Slots, live: Tensor, eos: Tensor) -> Candidates:
    sentences, beams, z, _ = slots.scores.shape
    rest = _completions(slots.scores.amax(3), eos)
    tokens = torch.full((sentences, beams, z), PAD, device=live.device)
    partial = Candidates(live, torch.arange(beams, device=live.device).expand(sentences, beams), tokens)
    ended = torch.zeros_like(live, dtype=torch.bool)
    for slot in range(z):
        partial, ended = _extend(partial, ended, slots, eos, rest, slot, beams + 1)
    return partial


def _completions(best: Tensor, eos: Tensor) -> Tensor:
    """[N,K,z]: the best that the slots after each can add, from the best token of each slot and EOS, both [N,K,z]."""
    rest = [torch.zeros_like(best[..., 0])]
    for slot in range(best.size(2) - 1, 0, -1):
        rest.append(torch.maximum(best[..., slot] + rest[-1], eos[..., slot]))
    return torch.stack(rest[::-1], 2)


def _extend(
    partial: Candidates, ended: Tensor, slots: _Slots, eos: Tensor, rest: Tensor, slot: int, count: int
) -> tuple[Candidates, Tensor]:
    """Partial continuations [N,P] and whether they have ended, one slot on: the first `count`. An ended one goes on as it is."""
    width = slots.scores.size(3)
    own = partial.parents[..., None].expand(-1, -1, width)
    words = slots.scores[:, :, slot].gather(1, own).masked_fill(ended[..., None], -torch.inf)
    last = torch.where(ended, 0.0, eos[..., slot].gather(1, partial.parents))
    options = torch.cat((words, last[..., None]), 2) + partial.scores[..., None]
    bonus = rest[..., slot].gather(1, partial.parents)[..., None].expand_as(words)
    keys = torch.cat((options[..., :width] + bonus, options[..., width:]), 2).flatten(1)
    kept = keys.topk(min(count, keys.size(1)))[1]
    origin, choice = kept // (width + 1), kept % (width + 1)
    picked = partial.pick(origin)
    finished = choice == width
    ids = slots.ids[:, :, slot].gather(1, own).flatten(1).gather(1, origin * width + choice.clamp(max=width - 1))
    before = ended.gather(1, origin)
    picked.tokens[..., slot] = torch.where(finished, torch.where(before, PAD, EOS), ids)
    return picked._replace(scores=options.flatten(1).gather(1, kept)), finished


def _outer(slots: _Slots, live: Tensor) -> Candidates:
    """Zhang et al. 2020, algorithm 1: sums of the first K tokens of each slot, cut to K before each further slot; the first 2K + 1
    of all. All slots of a step count."""
    beams = live.size(1)
    scores, ids = slots.scores[..., :beams], slots.ids[..., :beams]
    sums, tokens = scores[:, :, 0], ids[:, :, 0, :, None]
    for slot in range(1, scores.size(2)):
        if slot > 1:
            sums, kept = sums.topk(beams)
            tokens = tokens.gather(2, kept[..., None].expand(-1, -1, -1, slot))
        sums = (sums[..., None] + scores[:, :, slot, None]).flatten(2)
        left = tokens.repeat_interleave(beams, dim=2)
        right = ids[:, :, slot].repeat(1, 1, tokens.size(2))
        tokens = torch.cat((left, right[..., None]), 3)
    pairs = sums.size(2)
    total = (live[..., None] + sums).flatten(1)
    parents = torch.arange(beams, device=live.device).repeat_interleave(pairs).expand(len(live), -1)
    return Candidates(total, parents, tokens.flatten(1, 2)).best(2 * beams + 1, total)


def _double_top_k(log_probs: Tensor, live: Tensor) -> Candidates:
    """Imamura & Sumita 2020, section 3.3: the first 2K left tokens over all hypotheses, then the first 3K pairs over these."""
    beams, vocabulary = live.size(1), log_probs.size(3)
    left, places = (live[..., None] + log_probs[:, :, 0]).flatten(1).topk(2 * beams)
    parents = places // vocabulary
    right = log_probs[:, :, 1].gather(1, parents[..., None].expand(-1, -1, vocabulary))
    scores, pairs = (left[..., None] + right).flatten(1).topk(3 * beams)
    origin = pairs // vocabulary
    tokens = torch.stack((places.gather(1, origin) % vocabulary, pairs % vocabulary), 2)
    return Candidates(scores, parents.gather(1, origin), tokens)
