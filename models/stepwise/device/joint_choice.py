"""The joint choice of a greedy step by tensors on the device: the rules of `fewstep.JointStep`."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from fewstep import JointStep
from fewstep.vocabulary import EOS
from models.stepwise.device.bigrams import Bigrams
from models.stepwise.search.top_tokens import TopTokens, top_k_tokens


class JointChoice:
    """For each direction of a step, the best path over the candidates of its slots; and the slot where the output ends."""

    def __init__(self, step: JointStep, device: torch.device) -> None:
        self._step, coupling = step, step.coupling
        self._bigrams = None if coupling.ngram is None else Bigrams(coupling.ngram, device)

    def choose(self, log_probs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return tokens [R,z] for log-probabilities [R,z,V], which are changed, their log-probabilities and infinite margins.

        Tokens behind the first EOS mean nothing.
        """
        top = top_k_tokens(log_probs, self._step.candidates, separate_eos=True)
        chosen = torch.zeros_like(top.ids[..., 0])
        directions = len(self._step.coupling.right_to_left)
        if self._bigrams is not None:
            for direction in range(min(directions, chosen.size(1))):
                for slot, best in self._path(top, direction, directions, self._bigrams):
                    chosen[:, slot] = best
        ids, scores = (part.gather(2, chosen[..., None])[..., 0] for part in (top.ids, top.scores))
        ends = self._ends(top)
        return torch.where(ends, EOS, ids), torch.where(ends, top.eos, scores), torch.full_like(scores, torch.inf)

    def _path(self, top: TopTokens, direction: int, directions: int, bigrams: Bigrams) -> list[tuple[int, Tensor]]:
        """Return the slots of a direction with the candidates [R] of the path with the highest score, the first of equal ones."""
        coupling, slots = self._step.coupling, range(direction, top.ids.size(1), directions)
        best, earlier = top.scores[:, direction].double(), []
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

    def _ends(self, top: TopTokens) -> Tensor:
        """Return [R,z], True at slots where the output ends."""
        if self._step.end_threshold > 0:
            return 1 - (1 - top.eos.double().exp()).cumprod(1) >= self._step.end_threshold
        return top.eos >= top.scores[..., 0]
