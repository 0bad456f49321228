"""Beam search as a program of fixed shapes: the rules of `fewstep.Beam` by tensors on the device."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor

from fewstep import BigramCoupling
from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.families.stepwise.decoder import hypotheses
from fewstep.families.stepwise.options import beam_options
from fewstep.search.beam import Outcome
from fewstep.search.coupling import NO_COUPLING
from fewstep.translation import Hypothesis
from fewstep.vocabulary import EOS, PAD
from models.common.device_batch import Inputs, Size
from models.common.program import UniformSearch
from models.stepwise.device.bigrams import Bigrams
from models.stepwise.device.finished import Finished
from models.stepwise.device.ranking import CoupledRanking, Ranked, rank_independently, rows_of
from models.stepwise.device.rules import TokenRules
from models.stepwise.device.state import States
from models.stepwise.ensemble import Ensemble
from models.stepwise.model import StepwiseModel
from models.stepwise.scores import penalty
from models.stepwise.search.top_tokens import top_k_tokens


class Beam(UniformSearch):
    """The buffers of a beam search of B sentences with K live hypotheses each; those that are missing have minus infinity."""

    def __init__(
        self, model: StepwiseModel | Ensemble, search: StepwiseSearch, size: Size, coupling: BigramCoupling = NO_COUPLING
    ) -> None:
        """Allocate the buffers; `coupling` scores the tokens of a step as pairs."""
        device, beam = next(model.parameters()).device, search.beam_size
        self.order, self.search, self.options = model.order, search, beam_options(search, model.order, coupling)
        self._candidates = beam if coupling.ngram is None else self.options.num_candidates
        independent = partial(rank_independently, per_direction=self.options.per_direction)
        self._rank = independent if coupling.ngram is None else CoupledRanking(coupling, Bigrams(coupling.ngram, device)).rank
        self.state = States(model, size, beam, shortlists=search.shortlist is not None)
        self.rules = TokenRules(search, model.sizes.target, device)
        step = model.order.step_size
        self.slots = torch.arange(step, device=device)
        self.first_rows = torch.arange(size.sentences, device=device)[:, None] * beam
        self.previous = torch.full((size.sentences * beam, step), PAD, device=device)
        self.tokens = torch.full((size.sentences, beam, size.slots), PAD, device=device)
        self.live = torch.zeros((size.sentences, beam), device=device)
        self.written = torch.zeros((size.sentences, beam), dtype=torch.int64, device=device)
        self.limits = torch.zeros(size.sentences, dtype=torch.int64, device=device)
        self.steps = torch.zeros_like(self.limits)
        self.alive = torch.zeros_like(self.limits, dtype=torch.bool)
        self.finished = Finished(size.sentences, search.n_best, size.slots, device)

    def start(self, inputs: Inputs) -> None:
        """Encode a batch and return to the first step."""
        self.state.start(inputs)
        torch.arange(len(self.slots), device=self.slots.device, out=self.slots)
        self.previous.fill_(PAD)
        self.tokens.fill_(PAD)
        self.live.fill_(-torch.inf)
        self.live[:, 0] = 0.0
        self.written.zero_()
        self.limits.copy_(inputs.slots)
        self.steps.zero_()
        self.alive.copy_(inputs.slots > 0)
        self.finished.start()

    def step(self) -> None:
        """Take one step for every sentence that is not done."""
        beam, z = self.search.beam_size, len(self.slots)
        remaining = self.limits - self.slots[0]
        log_probs = self.rules.apply(self.state.log_probs(self.previous), self.slots)
        top = top_k_tokens(log_probs, self._candidates, separate_eos=True)
        live = self.live.masked_fill(~self.alive[:, None], -torch.inf)
        every, going = self._rank(top, live, remaining)

        forced = (remaining <= z) & self.alive
        self._finish(every, every.scores.masked_fill(~(every.ends | forced[:, None]), -torch.inf))

        best = torch.maximum(self.finished.best, every.scores[:, 0])
        threshold = best - (math.inf if self.options.beam_threshold is None else self.options.beam_threshold)
        self._continue(going, going.scores.masked_fill(going.scores < threshold[:, None], -torch.inf))
        self.steps += self.alive
        self.slots += z
        self.alive &= ~(forced | (self.finished.count >= beam) | (self.live[:, 0] == -torch.inf) | self._settled())

    def _finish(self, ranked: Ranked, scores: Tensor) -> None:
        """Add continuations with log-probabilities `scores` [B,K] (minus infinity: none) to the finished hypotheses."""
        lengths = self.written.gather(1, ranked.parents) + _text(ranked.tokens) + ranked.ends
        whole = rows_of(self.tokens, ranked.parents).index_copy(2, self.slots, ranked.tokens)
        self.finished.add(scores, scores / penalty(self.search, lengths.clamp(min=1)), whole)

    def _continue(self, ranked: Ranked, scores: Tensor) -> None:
        """Continue with K hypotheses of each sentence, of log-probabilities `scores` [B,K] (minus infinity: none)."""
        self.live.copy_(scores)
        self.written.copy_(self.written.gather(1, ranked.parents) + _text(ranked.tokens))
        self.tokens.copy_(rows_of(self.tokens, ranked.parents).index_copy(2, self.slots, ranked.tokens))
        self.previous.copy_(ranked.tokens.flatten(0, 1))
        self.state.select((self.first_rows + ranked.parents).flatten())

    def _settled(self) -> Tensor:
        """Return [B], whether no live hypothesis can outrank the worst of the n best."""
        shortest, longest = self.slots[:1] + 1, self.limits
        bound = self.live[:, 0] / torch.maximum(penalty(self.search, shortest), penalty(self.search, longest))
        worst = self.finished.scores[:, -1]
        return (worst > -torch.inf) & (worst >= bound)

    def outcome(self, sentences: int) -> list[list[Hypothesis]]:
        """Return the hypotheses of each of the first `sentences`, best first."""
        scores, tokens, steps = (part[:sentences].cpu() for part in (self.finished.scores, self.finished.tokens, self.steps))
        rows = zip(scores.tolist(), tokens.tolist(), steps.tolist(), strict=True)
        return [hypotheses(Outcome(_distinct(*row), count, math.inf), self.order) for *row, count in rows]


def _text(tokens: Tensor) -> Tensor:
    """Return the number of tokens [B,K] of steps [B,K,z] other than EOS and PAD."""
    return ((tokens != EOS) & (tokens != PAD)).sum(2)


def _distinct(scores: list[float], tokens: list[list[int]]) -> list[tuple[float, list[int]]]:
    """Return the finished hypotheses without EOS and PAD, each text once with its best score."""
    found: dict[tuple[int, ...], float] = {}
    for score, row in zip(scores, tokens, strict=True):
        if score > -math.inf:
            found.setdefault(tuple(token for token in row if token not in (EOS, PAD)), score)
    return [(score, list(row)) for row, score in found.items()]
