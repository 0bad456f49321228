"""Greedy search as a program of fixed shapes; see `models.stepwise.search.greedy` for the same search with shrinking batches."""

from __future__ import annotations

import torch

from fewstep import JointStep
from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.translation import Hypothesis
from fewstep.vocabulary import PAD
from models.common.device_batch import Inputs, Size
from models.common.program import UniformSearch
from models.stepwise.device.joint_choice import JointChoice
from models.stepwise.device.rules import TokenRules
from models.stepwise.device.state import States
from models.stepwise.ensemble import Ensemble
from models.stepwise.model import StepwiseModel
from models.stepwise.outputs import Outputs, ends_output, hypotheses, scored_mask
from models.stepwise.scores import penalty
from models.stepwise.search.greedy import most_probable


class Greedy(UniformSearch):
    """The buffers of a greedy search. A sentence that has ended goes on with PAD, which changes nothing."""

    def __init__(self, model: StepwiseModel | Ensemble, search: StepwiseSearch, size: Size, joint: JointStep | None = None) -> None:
        """Allocate the buffers; `joint` chooses the slots of a step together (None: the most probable token of each)."""
        device = next(model.parameters()).device
        self.order, self.search = model.order, search
        self._choose = most_probable if joint is None else JointChoice(joint, device).choose
        self.state = States(model, size, beam=1, shortlists=search.shortlist is not None)
        self.rules = TokenRules(search, model.sizes.target, device)
        ints = torch.zeros(size.sentences, dtype=torch.int64, device=device)
        self.slots = torch.arange(model.order.step_size, device=device)
        self.previous = torch.full((size.sentences, model.order.step_size), PAD, device=device)
        self.tokens = torch.full((size.sentences, size.slots), PAD, device=device)
        self.limits, self.steps = ints.clone(), ints.clone()
        self.scores, self.margins = ints.float(), ints.float()
        self.alive = ints.bool()

    def start(self, inputs: Inputs) -> None:
        """Encode a batch and return to the first step."""
        self.state.start(inputs)
        torch.arange(len(self.slots), device=self.slots.device, out=self.slots)
        self.previous.fill_(PAD)
        self.tokens.fill_(PAD)
        self.limits.copy_(inputs.slots)
        self.steps.zero_()
        self.scores.zero_()
        self.margins.fill_(torch.inf)
        self.alive.copy_(inputs.slots > 0)

    def step(self) -> None:
        """Write the next z slots of every sentence that has not ended."""
        first = self.slots[:1]
        log_probs = self.rules.apply(self.state.log_probs(self.previous), self.slots)
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

    def outcome(self, sentences: int) -> list[list[Hypothesis]]:
        """Return the hypothesis of each of the first `sentences`."""
        parts = (self.tokens, self.steps, self.limits, self.scores, self.margins)
        tokens, steps, limits, scores, margins = (part[:sentences].cpu() for part in parts)
        outputs = Outputs.cut(self.order, tokens, torch.minimum(steps * self.order.step_size, limits))
        return [[one] for one in hypotheses(outputs, scores / penalty(self.search, outputs.lengths), steps, margins)]
