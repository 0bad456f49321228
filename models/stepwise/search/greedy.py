"""Greedy search and nucleus sampling: N outputs for each sentence, and all slots of a step chosen at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from fewstep import JointStep
from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.families.stepwise.orders import GenerationOrder
from fewstep.translation import Hypothesis
from fewstep.vocabulary import EOS, PAD
from models.common.buffers import Inputs, Size
from models.stepwise.arrangement import restore
from models.stepwise.ensemble import Ensemble
from models.stepwise.model import StepwiseModel
from models.stepwise.scores import TokenRules, penalty
from models.stepwise.search.incremental import IncrementalDecoders
from models.stepwise.search.joint_choice import JointChoice
from models.stepwise.search.sampling import draw


def ends_output(ids: Tensor) -> Tensor:
    """Return [...], True where a step [...,z] ends its output."""
    return (ids == EOS).any(-1)


def scored_mask(order: GenerationOrder, ids: Tensor, remaining: Tensor) -> Tensor:
    """Return [R,z], True at the slots of a step [R,z] whose probability counts.

    These are all slots up to the first EOS, or all of a step that may end in either direction, within the `remaining` [R] slots of
    the maximum length. Slots after the first EOS or the limit may hold any token, so their total probability is 1.
    """
    inside = torch.arange(ids.size(1), device=ids.device) < remaining[:, None]
    if order.stop == "per-direction":
        return inside
    ended = (ids == EOS).to(torch.int8)
    return inside & (ended.cumsum(1) - ended == 0)


class Outputs(NamedTuple):
    """N outputs in natural order."""

    tokens: Tensor
    """The tokens [N,T]; the first `lengths - ended` of each row count."""
    lengths: Tensor
    """The number of tokens of each output [N], with EOS if it was written."""
    ended: Tensor
    """A flag for each output [N]: 1 if EOS was written, 0 if the maximum length cut it."""

    @classmethod
    def cut(cls, order: GenerationOrder, flat: Tensor, written: Tensor) -> Outputs:
        """Return the outputs of flat tokens [N,T], of which the first `written` [N] were written.

        An output consists of the tokens before the first EOS or, if a step may end in either direction, of all tokens but EOS.
        """
        inside = torch.arange(flat.size(1), device=flat.device) < written[:, None]
        ends = (flat == EOS) & inside
        if order.stop == "per-direction":
            dropped = ends | ~inside
            # The token beside an EOS moves up into its slot.
            flat = flat.gather(1, dropped.to(torch.int8).argsort(dim=1, stable=True))
        else:
            dropped = (ends.cumsum(1) > 0) | ~inside
        counts = (~dropped).sum(1)
        ended = ends.any(1).long()
        return cls(restore(order, flat, counts), counts + ended, ended)


def hypotheses(outputs: Outputs, scores: Tensor, steps: Tensor, margins: Tensor) -> list[Hypothesis]:
    """Return the hypothesis of each output; scores, steps and margins are [N]."""
    counts = outputs.lengths - outputs.ended
    columns = zip(*(values.tolist() for values in (outputs.tokens, counts, scores, steps, margins)), strict=True)
    return [Hypothesis(row[:count], score, calls, {"margin": margin}) for row, count, score, calls, margin in columns]


Choose = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]
"""The function `choose(log_probs [R,z,V])`, which returns tokens, their log-probabilities and their margins, all [R,z]."""


def most_probable(log_probs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the best token of each slot, its log-probability and its margin over the second best, all [R,z]."""
    best = log_probs.topk(2).values
    # argmax takes the first of equal scores, as native code does; topk does not promise that.
    return log_probs.argmax(-1), best[..., 0], best[..., 0] - best[..., 1]


class Greedy:
    """A search that writes each output token by token: one greedy output of a sentence, or `n_best` samples.

    The R rows are the outputs, grouped by sentence. One that has ended goes on with PAD, which changes nothing.
    """

    def __init__(
        self, model: StepwiseModel | Ensemble, search: StepwiseSearch, size: Size, inputs: Inputs, joint: JointStep | None = None
    ) -> None:
        """Allocate the buffers; `joint` chooses the slots of a step together (None: each by itself). Samples are drawn by the
        random numbers of `inputs`."""
        device = next(model.parameters()).device
        self.order = model.order
        self.search = search
        self.outputs = search.n_best if search.strategy == "sample" else 1
        self._choose: Choose = most_probable
        if search.strategy == "sample":
            self._choose = self._draw
        elif joint is not None:
            self._choose = JointChoice(joint, device).choose
        self.inputs = inputs
        self.decoders = IncrementalDecoders(model, size, self.outputs, shortlists=search.shortlist is not None)
        self.rules = TokenRules(search, model.order, model.sizes.target, device)
        rows = size.sentences * self.outputs
        ints = torch.zeros(rows, dtype=torch.int64, device=device)
        self.slots = torch.arange(model.order.step_size, device=device)
        self.previous = torch.full((rows, model.order.step_size), PAD, device=device)
        self.tokens = torch.full((rows, size.slots), PAD, device=device)
        self.limits = ints.clone()
        self.steps = ints.clone()
        self.scores = ints.float()
        self.margins = ints.float()
        self.alive = ints.bool()

    @property
    def passes(self) -> list[Callable[[], None]]:
        """The one function that takes a step."""
        return [self.step]

    @property
    def needed(self) -> Tensor:
        """True, which is 1, at the outputs [R] that have not ended."""
        return self.alive

    def start(self, inputs: Inputs) -> None:
        """Encode a batch and return to the first step."""
        self.decoders.start(inputs)
        torch.arange(len(self.slots), device=self.slots.device, out=self.slots)
        self.previous.fill_(PAD)
        self.tokens.fill_(PAD)
        self.limits.view(-1, self.outputs).copy_(inputs.slots[:, None])
        self.steps.zero_()
        self.scores.zero_()
        self.margins.fill_(torch.inf)
        self.alive.copy_(self.limits > 0)

    def step(self) -> None:
        """Write the next z slots of every output that has not ended."""
        first = self.slots[:1]
        log_probs = self.rules.apply(self.decoders.log_probs(self.previous), self.slots, self.tokens)
        ids, scores, margins = self._choose(log_probs)
        ids = torch.where(self.alive[:, None], ids, PAD)
        scored = scored_mask(self.order, ids, self.limits - first) & self.alive[:, None]
        self.scores += scores.masked_fill(~scored, 0.0).sum(1)
        torch.minimum(self.margins, margins.masked_fill(~scored, torch.inf).amin(1), out=self.margins)
        self.tokens.index_copy_(1, self.slots, ids)
        self.previous.copy_(ids)
        self.steps += self.alive
        self.slots += len(self.slots)
        self.alive &= ~ends_output(ids) & (self.limits > self.slots[:1])

    def _draw(self, log_probs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return a sample of each slot; see `most_probable`."""
        assert self.inputs.numbers is not None
        numbers = self.inputs.numbers.index_select(1, self.slots)
        return draw(log_probs, numbers.transpose(1, 2).flatten(0, 1), self.search.sampling)

    def outcome(self, sentences: int) -> list[list[Hypothesis]]:
        """Return the hypotheses of each of the first `sentences`, the most probable first."""
        rows = sentences * self.outputs
        parts = (self.tokens, self.steps, self.limits, self.scores, self.margins)
        tokens, steps, limits, scores, margins = (part[:rows].cpu() for part in parts)
        outputs = Outputs.cut(self.order, tokens, torch.minimum(steps * self.order.step_size, limits))
        written = hypotheses(outputs, scores / penalty(self.search, outputs.lengths), steps, margins)
        groups = [written[start : start + self.outputs] for start in range(0, rows, self.outputs)]
        return [sorted(group, key=lambda one: -one.score) for group in groups]
