"""Beam search by the rules of `fewstep.Beam`, by tensors of fixed shapes on any device."""

from __future__ import annotations

import math
from collections.abc import Callable

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
from models.common.buffers import Inputs, Size
from models.stepwise.ensemble import Ensemble
from models.stepwise.model import StepwiseModel
from models.stepwise.scores import TokenRules, penalty
from models.stepwise.search.incremental import IncrementalDecoders
from models.stepwise.search.joint_choice import slot_candidates
from models.stepwise.search.ranking import Ranked, ranking, rows_of


class Finished:
    """The N best finished hypotheses of B sentences, best first; minus infinity where there are fewer."""

    def __init__(self, sentences: int, count: int, slots: int, device: torch.device) -> None:
        self.scores = torch.full((sentences, count), -torch.inf, dtype=torch.float64, device=device)
        """The log-probabilities divided by the penalty [B,N]."""
        self.tokens = torch.full((sentences, count, slots), PAD, device=device)
        """The written tokens [B,N,T] with EOS and PAD."""
        self.count = torch.zeros(sentences, dtype=torch.int64, device=device)
        """The number of all finished hypotheses [B]."""
        self.best = torch.full((sentences,), -torch.inf, dtype=torch.float64, device=device)
        """Their highest log-probability [B]."""

    def start(self) -> None:
        """Forget all hypotheses."""
        self.scores.fill_(-torch.inf)
        self.tokens.fill_(PAD)
        self.count.zero_()
        self.best.fill_(-torch.inf)

    def add(self, log_probs: Tensor, scores: Tensor, tokens: Tensor) -> None:
        """Add K hypotheses of each sentence: log-probabilities and scores [B,K] (minus infinity: none) and tokens [B,K,T]."""
        self.count += (log_probs > -torch.inf).sum(1)
        torch.maximum(self.best, log_probs.amax(1), out=self.best)
        # Stable, so that of equal scores the one that was finished earlier, which is shorter, comes first.
        best, chosen = torch.cat((self.scores, scores), 1).sort(dim=1, descending=True, stable=True)
        kept = self.scores.size(1)
        self.scores.copy_(best[:, :kept])
        self.tokens.copy_(rows_of(torch.cat((self.tokens, tokens), 1), chosen[:, :kept]))


class Beam:
    """A beam search of B sentences with K live hypotheses each; those that are missing have minus infinity."""

    def __init__(
        self, model: StepwiseModel | Ensemble, search: StepwiseSearch, size: Size, coupling: BigramCoupling = NO_COUPLING
    ) -> None:
        """Allocate the buffers; `coupling` scores the tokens of a step as pairs."""
        device = next(model.parameters()).device
        beam = search.beam_size
        step = model.order.step_size
        self.order = model.order
        self.search = search
        self.options = beam_options(search, model.order, coupling)
        self.exact = self.options.selection == "exact" or step == 1
        self._rank = ranking(self.options, device)
        self.decoders = IncrementalDecoders(model, size, beam, shortlists=search.shortlist is not None)
        self.rules = TokenRules(search, model.order, model.sizes.target, device)
        self.begun = int(model.config.begin_vectors)
        """Tokens that count in the length of an output before its first one is written, as the begin token of BART does."""
        self.slots = torch.arange(step, device=device)
        self.first_rows = torch.arange(size.sentences, device=device)[:, None] * beam
        self.previous = torch.full((size.sentences * beam, step), PAD, device=device)
        self.tokens = torch.full((size.sentences, beam, size.slots), PAD, device=device)
        self.live = torch.zeros((size.sentences, beam), dtype=torch.float64, device=device)
        """The log-probabilities of the live hypotheses [B,K], best first."""
        self.written = torch.zeros((size.sentences, beam), dtype=torch.int64, device=device)
        self.limits = torch.zeros(size.sentences, dtype=torch.int64, device=device)
        self.steps = torch.zeros_like(self.limits)
        self.margins = torch.zeros_like(self.live[:, 0])
        """The smallest gap [B] between a hypothesis that was kept and one that was dropped; see `fewstep.search.beam.Outcome`."""
        self.alive = torch.zeros_like(self.limits, dtype=torch.bool)
        # One more than are returned, for the margin of the last one.
        self.finished = Finished(size.sentences, (beam if self.options.whole_steps else search.n_best) + 1, size.slots, device)

    @property
    def passes(self) -> list[Callable[[], None]]:
        """The one function that takes a step."""
        return [self.step]

    @property
    def needed(self) -> Tensor:
        """True, which is 1, at the sentences [B] that have not ended."""
        return self.alive

    def start(self, inputs: Inputs) -> None:
        """Encode a batch and return to the first step."""
        self.decoders.start(inputs)
        torch.arange(len(self.slots), device=self.slots.device, out=self.slots)
        self.previous.fill_(PAD)
        self.tokens.fill_(PAD)
        self.live.fill_(-torch.inf)
        self.live[:, 0] = 0.0
        self.written.fill_(self.begun)
        self.limits.copy_(inputs.slots)
        self.steps.zero_()
        self.margins.fill_(torch.inf)
        self.alive.copy_(inputs.slots > 0)
        self.finished.start()

    def step(self) -> None:
        """Take one step for every sentence that is not done."""
        beam = self.search.beam_size
        z = len(self.slots)
        remaining = self.limits - self.slots[0]
        log_probs = self.rules.apply(self.decoders.log_probs(self.previous), self.slots, self.tokens.flatten(0, 1))
        # EOS is ranked apart from the tokens, in either direction, so K + 1 of them suffice.
        count = beam + 1 if self.exact else self.options.num_candidates
        top = slot_candidates(log_probs, count, separate_eos=self.exact)
        every, going = self._rank(top, self.live.masked_fill(~self.alive[:, None], -torch.inf), remaining)

        forced = (remaining <= z) & self.alive
        ends = every.ends | (forced & self._ends_by_force(every))[:, None]
        self._finish(every, every.scores.masked_fill(~ends, -torch.inf))
        best = torch.maximum(self.finished.best, every.scores[:, 0])
        cutoff = (best - self.options.beam_threshold)[:, None]
        self._continue(going, going.scores.masked_fill(going.scores < cutoff, -torch.inf))

        self.steps += self.alive
        self.slots += z
        # A sentence that is done keeps its margin: it has no live hypothesis that could lower it.
        was_alive = self.alive.clone()
        self.alive &= ~(forced | (self.live[:, 0] == -torch.inf) | self._settled())
        margins = self._margins(every._replace(ends=ends), going, cutoff)
        torch.where(was_alive, torch.minimum(self.margins, margins), self.margins, out=self.margins)

    def _ends_by_force(self, every: Ranked) -> Tensor:
        """Return [B], whether hypotheses end at the maximum length: all of them, unless every slot counts and one has ended."""
        if not self.options.whole_steps:
            return torch.ones_like(self.alive)
        ended = every.ends & (every.scores > -torch.inf)
        return (self.finished.count == 0) & ~ended[:, : self.options.num_kept].any(1)

    def _finish(self, ranked: Ranked, scores: Tensor) -> None:
        """Add those of the first continuations that have log-probabilities [B,N] (minus infinity: none) to the finished
        hypotheses."""
        kept = self.options.num_kept
        ranked = Ranked(*(part[:, :kept] for part in ranked))
        scores = scores[:, :kept]
        lengths = self.written.gather(1, ranked.parents) + _text(ranked.tokens) + ranked.ends
        if self.options.whole_steps:
            lengths = (self.slots[-1:] + 1).expand_as(lengths)
        whole = rows_of(self.tokens, ranked.parents).index_copy(2, self.slots, ranked.tokens)
        self.finished.add(scores, scores / penalty(self.search, lengths.clamp(min=1)), whole)

    def _continue(self, ranked: Ranked, scores: Tensor) -> None:
        """Continue with the first K hypotheses of each sentence, of log-probabilities `scores` [B,N] (minus infinity: none)."""
        beam = self.search.beam_size
        ranked = Ranked(*(part[:, :beam] for part in ranked))
        self.live.copy_(scores[:, :beam])
        self.written.copy_(self.written.gather(1, ranked.parents) + _text(ranked.tokens))
        self.tokens.copy_(rows_of(self.tokens, ranked.parents).index_copy(2, self.slots, ranked.tokens))
        self.previous.copy_(ranked.tokens.flatten(0, 1))
        self.decoders.select((self.first_rows + ranked.parents).flatten())

    def _settled(self) -> Tensor:
        """Return [B], whether a search is done by its finished hypotheses: they are K, or no live one can outrank the worst of the
        n best. Algorithm 1 of Zhang et al. (2020) has the first condition alone; see `fewstep.Beam` for their program."""
        enough = self.finished.count >= self.search.beam_size
        if self.options.whole_steps and self.options.selection == "outer":
            return enough
        if self.options.whole_steps:
            best = self.finished.scores[:, : self.search.beam_size]
            lowest = best.masked_fill(best == -torch.inf, torch.inf).amin(1)
            return (best[:, 0] > -torch.inf) & (lowest > self.live[:, 0] / penalty(self.search, self.limits))
        # The score of a live hypothesis is at most its log-probability divided by the largest penalty that it can reach.
        shortest = self.slots[:1] + 1 + self.begun
        longest = self.limits + self.begun
        bound = self.live[:, 0] / torch.maximum(penalty(self.search, shortest), penalty(self.search, longest))
        worst = self.finished.scores[:, self.search.n_best - 1]
        return enough | ((worst > -torch.inf) & (worst >= bound))

    def _margins(self, every: Ranked, going: Ranked, cutoff: Tensor) -> Tensor:
        """Return the smallest gap [B] of the decisions of a step: of finished hypotheses to the border of those kept, of each of
        the first K that go on to the cutoff and, unless the sentence is done, of the last kept one to the next."""
        beam = self.search.beam_size
        kept = self.options.num_kept
        scores = every.scores
        inside = scores[:, :kept] - _column(scores, kept)
        outside = scores[:, kept - 1 : kept] - scores[:, kept:]
        of_ends = torch.cat((inside, outside), 1).masked_fill(~every.ends, torch.inf)
        of_cutoff = (going.scores[:, :beam] - cutoff).abs()
        dropped = (_column(going.scores, beam - 1) - _column(going.scores, beam))[:, 0]
        kept_all = self.alive & (self.live[:, -1] > -torch.inf)
        gaps = torch.cat((of_ends, of_cutoff, dropped.masked_fill(~kept_all, torch.inf)[:, None]), 1)
        return gaps.nan_to_num(nan=torch.inf, posinf=torch.inf).amin(1)  # NaN: between two that are missing

    def outcome(self, sentences: int) -> list[list[Hypothesis]]:
        """Return the hypotheses of each of the first `sentences`, best first."""
        shown = self.search.n_best
        scores = self.finished.scores[:, : shown + 1]
        margins = self.margins
        between = (scores[:, :-1] - scores[:, 1:]).nan_to_num(nan=torch.inf, posinf=torch.inf).amin(1)
        parts = (scores[:, :shown], self.finished.tokens[:, :shown], self.steps, torch.minimum(margins, between))
        rows = zip(*(part[:sentences].tolist() for part in parts), strict=True)
        return [hypotheses(Outcome(_distinct(*row), count, margin), self.order) for *row, count, margin in rows]


def _text(tokens: Tensor) -> Tensor:
    """Return the number of tokens [B,K] of steps [B,K,z] other than EOS and PAD."""
    return ((tokens != EOS) & (tokens != PAD)).sum(2)


def _column(scores: Tensor, rank: int) -> Tensor:
    """Return the scores [B,1] of a rank; minus infinity if there are fewer."""
    return scores[:, rank : rank + 1] if scores.size(1) > rank else scores.new_full((len(scores), 1), -torch.inf)


def _distinct(scores: list[float], tokens: list[list[int]]) -> list[tuple[float, list[int]]]:
    """Return the finished hypotheses without EOS and PAD, each text once with its best score."""
    found: dict[tuple[int, ...], float] = {}
    for score, row in zip(scores, tokens, strict=True):
        if score > -math.inf:
            found.setdefault(tuple(token for token in row if token not in (EOS, PAD)), score)
    return [(score, list(row)) for row, score in found.items()]
