"""Greedy steps of several tokens whose slots know of each other, through torch. Independently chosen, neighbours may repeat or
contradict each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from operator import itemgetter
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from kernels import JointStep, Neighbours
from models.family import EOS
from models.stepwise.config import LEFTWARD, StepwiseSearch
from models.stepwise.orders import Order

if TYPE_CHECKING:
    from kernels.ngram import NgramScorer

Word = tuple[float, int]
"""A log-probability and an id."""


def joint_step(order: Order, search: StepwiseSearch, ngram: NgramScorer | None) -> JointStep | None:
    """How the search chooses its steps; None: each slot for itself."""
    if not search.chooses_jointly:
        return None
    return JointStep(neighbours=neighbours(order, search, ngram), end=search.end_threshold)


def neighbours(order: Order, search: StepwiseSearch, ngram: NgramScorer | None) -> Neighbours:
    """What links the words of a step."""
    weighed = ngram if search.ngram_weight else None
    return Neighbours(ngram=weighed, weight=search.ngram_weight, leftward=LEFTWARD.get(order.arrangement, (False,)))


def jointly(step: JointStep) -> Callable[[Tensor, int, Tensor], tuple[Tensor, Tensor, Tensor]]:
    """What `models.stepwise.greedy.write` chooses by; its margins are infinite."""
    linked = step.neighbours
    link = None if linked.ngram is None else _links(linked.ngram, linked.weight)

    def choose(log_probs: Tensor, slot: int, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        eos = log_probs[..., EOS]
        ranked = log_probs.index_fill(2, torch.tensor(EOS, device=log_probs.device), -torch.inf).sort(descending=True, stable=True)
        ids, scores = ranked.indices[..., 0].clone(), ranked.values[..., 0].clone()
        if link is not None:
            best = (part[..., : step.words].tolist() for part in (ranked.values, ranked.indices))
            offered = [[list(zip(*slot, strict=True)) for slot in zip(*row, strict=True)] for row in zip(*best, strict=True)]
            for row, slots in enumerate(offered):
                for direction, leftward in enumerate(linked.leftward):
                    words = best_chain(slots[direction :: len(linked.leftward)], partial(link, leftward))
                    places = slice(direction, None, len(linked.leftward))
                    scores[row, places], ids[row, places] = (torch.tensor(part).to(ids.device) for part in zip(*words, strict=True))
        ends = first_end(eos, ranked.values[..., 0], step.end)
        return ids.masked_fill(ends, EOS), torch.where(ends, eos, scores), torch.full_like(scores, torch.inf)

    return choose


def best_chain(slots: Sequence[Sequence[Word]], link: Callable[[int, int], float]) -> list[Word]:
    """Of the words offered for each slot those whose log-probabilities and links between neighbours have the highest sum."""
    chains = [(word[0], [word]) for word in slots[0]]
    for offered in slots[1:]:
        grown = [[(score + w[0] + link(chain[-1][1], w[1]), [*chain, w]) for score, chain in chains] for w in offered]
        chains = [max(choices, key=itemgetter(0)) for choices in grown]
    return max(chains, key=itemgetter(0))[1]


def first_end(eos: Tensor, best: Tensor, threshold: float) -> Tensor:
    """[R,z], True where an output ends: at the first slot by which it has ended with probability `threshold`, or with 0 where EOS
    [R,z] is at least as likely as the best other token."""
    ended = 1.0 - (1.0 - eos.double().exp()).cumprod(1) >= threshold if threshold else eos >= best
    return ended & (ended.long().cumsum(1) == 1)


def _links(ngram: NgramScorer, weight: float) -> Callable[[bool, int, int], float]:
    """weight (log p(right | left) - log p(right)) of a word and the one that its direction wrote before."""

    @cache
    def link(leftward: bool, before: int, word: int) -> float:
        left, right = (word, before) if leftward else (before, word)
        _, state = ngram.step(ngram.empty, left)
        return weight * (ngram.step(state, right)[0] - ngram.step(ngram.empty, right)[0])

    return link
