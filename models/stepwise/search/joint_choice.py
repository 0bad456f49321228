"""The best tokens of the slots of a step, and coupled slots on a device: the bigrams of an n-gram model, and the joint choice of a
greedy step by `fewstep.JointStep`."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from fewstep import JointStep
from fewstep.ngram import NgramScorer
from fewstep.vocabulary import EOS


class SlotCandidates(NamedTuple):
    """The best W tokens of each of the z slots of R rows."""

    scores: Tensor
    """The log-probabilities [R,z,W], best first; minus infinity where there are fewer tokens."""
    ids: Tensor
    """The tokens [R,z,W], in the same order."""
    eos: Tensor
    """The log-probability of EOS in each slot [R,z]."""


def slot_candidates(log_probs: Tensor, count: int, *, separate_eos: bool) -> SlotCandidates:
    """Return the best `count` tokens by log-probabilities [R,z,V], which are changed in place; without EOS if `separate_eos`."""
    eos = log_probs[..., EOS].clone()
    if separate_eos:
        log_probs[..., EOS] = -torch.inf
    return SlotCandidates(*log_probs.topk(min(count, log_probs.size(2))), eos)


class Bigrams:
    """The log-probabilities of pairs of tokens by an n-gram model, in nats and float64, on a device.

    The pairs that the model has are a sorted array of numbers, `first N + second` of its N words, which a binary search looks up.
    """

    def __init__(self, ngram: NgramScorer, device: torch.device) -> None:
        self._words, self._log_probs, self._backoffs, self._pairs, self._pair_log_probs = (
            torch.from_numpy(part).to(device) for part in ngram.bigrams()
        )

    def gain(self, left: Tensor, right: Tensor) -> Tensor:
        """Return log p(right | left) - log p(right) for tokens of shapes that broadcast."""
        first, second = self._words[left], self._words[right]
        alone = self._log_probs[second].double()
        found = self._backoffs[first].double() + alone
        if len(self._pairs):
            pairs = first * len(self._log_probs) + second
            places = torch.searchsorted(self._pairs, pairs).clamp(max=len(self._pairs) - 1)
            found = torch.where(self._pairs[places] == pairs, self._pair_log_probs[places].double(), found)
        return found * math.log(10) - alone * math.log(10)


class JointChoice:
    """For each direction of a step, the best path over the candidates of its slots; and the slot where the output ends."""

    def __init__(self, step: JointStep, device: torch.device) -> None:
        self._step = step
        coupling = step.coupling
        self._bigrams = None if coupling.ngram is None else Bigrams(coupling.ngram, device)

    def choose(self, log_probs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return tokens [R,z] for log-probabilities [R,z,V], which are changed, their log-probabilities and infinite margins.

        Tokens behind the first EOS mean nothing.
        """
        top = slot_candidates(log_probs, self._step.candidates, separate_eos=True)
        chosen = torch.zeros_like(top.ids[..., 0])
        directions = len(self._step.coupling.right_to_left)
        if self._bigrams is not None:
            for direction in range(min(directions, chosen.size(1))):
                for slot, best in self._path(top, direction, directions, self._bigrams):
                    chosen[:, slot] = best
        ids, scores = (part.gather(2, chosen[..., None])[..., 0] for part in (top.ids, top.scores))
        ends = self._ends(top)
        return torch.where(ends, EOS, ids), torch.where(ends, top.eos, scores), torch.full_like(scores, torch.inf)

    def _path(self, top: SlotCandidates, direction: int, directions: int, bigrams: Bigrams) -> list[tuple[int, Tensor]]:
        """Return the slots of a direction with the candidates [R] of the path with the highest score, the first of equal ones."""
        coupling = self._step.coupling
        slots = range(direction, top.ids.size(1), directions)
        best = top.scores[:, direction].double()
        earlier: list[Tensor] = []
        for before, slot in pairwise(slots):
            tokens, preceding = top.ids[:, slot, None, :], top.ids[:, before, :, None]  # [R,1,W] and [R,W,1]
            pair = (tokens, preceding) if coupling.right_to_left[direction] else (preceding, tokens)
            scores = best[:, :, None] + top.scores[:, slot, None].double() + coupling.weight * bigrams.gain(*pair)
            earlier.append(scores.argmax(1))
            best = scores.gather(1, earlier[-1][:, None])[:, 0]
        last = best.argmax(1)
        path = [last]
        for choices in reversed(earlier):
            path.append(choices.gather(1, path[-1][:, None])[:, 0])
        return list(zip(slots, reversed(path), strict=True))

    def _ends(self, top: SlotCandidates) -> Tensor:
        """Return [R,z], True at slots where the output ends."""
        if self._step.end_threshold > 0:
            return 1 - (1 - top.eos.double().exp()).cumprod(1) >= self._step.end_threshold
        return top.eos >= top.scores[..., 0]
