"""Greedy search, and the loop that it shares with sampling: one hypothesis per row, all slots of a step chosen at once."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fewstep import JointStep
from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.families.stepwise.orders import GenerationOrder
from fewstep.translation import Hypothesis
from fewstep.vocabulary import PAD
from models.stepwise.ensemble import Ensemble
from models.stepwise.model import StepwiseModel
from models.stepwise.outputs import Outputs, ends_output, hypotheses, scored_mask
from models.stepwise.scores import ban, penalty
from models.stepwise.search.incremental import EnsembleState, Incremental, begin
from models.stepwise.search.joint_choice import choose_jointly

Choose = Callable[[Tensor, int, Tensor], tuple[Tensor, Tensor, Tensor]]
"""The function `choose(log_probs [R,z,V], slot, rows [R])`, which returns tokens, their log-probabilities and their margins, all
[R,z]; `slot` is the first slot of the step, `rows` are positions in the batch."""


def greedy(
    model: StepwiseModel | Ensemble,
    source: Tensor,
    source_lengths: Tensor,
    search: StepwiseSearch,
    limits: Tensor,
    joint: JointStep | None = None,
    allowed: Tensor | None = None,
) -> list[list[Hypothesis]]:
    """Return one hypothesis for each source [B,S], of the most probable token in each slot or of the tokens that `joint` chooses.

    `limits` [B] are maximum output lengths in tokens with EOS; `allowed` [B,V] is a shortlist (None: all tokens).
    """
    choose = _independently if joint is None else choose_jointly(joint)
    return write(begin(model, source, source_lengths, allowed), model.order, limits, search, choose)


def _independently(log_probs: Tensor, slot: int, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return most_probable(log_probs)


def most_probable(log_probs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the best token of each slot, its log-probability and its margin over the second best, all [R,z]."""
    best = log_probs.topk(2).values
    # argmax takes the first of equal scores, as native code does; topk does not promise that.
    return log_probs.argmax(-1), best[..., 0], best[..., 0] - best[..., 1]


def write(
    state: Incremental | EnsembleState, order: GenerationOrder, limits: Tensor, search: StepwiseSearch, choose: Choose
) -> list[list[Hypothesis]]:
    """Return one hypothesis for each row of `state`; `limits` [R] are maximum output lengths in tokens with EOS."""
    z = order.step_size
    alive = torch.arange(len(limits), device=limits.device)
    tokens = torch.full((len(limits), -(-int(limits.max()) // z) * z), PAD, device=limits.device)
    scores = torch.zeros(len(limits), device=limits.device)
    margin = torch.full_like(scores, torch.inf)
    steps = torch.zeros_like(limits)
    previous = None
    for slot in range(0, tokens.size(1), z):
        ids, log_probs, margins = choose(ban(state.step(previous).log_softmax(2), search, slot), slot, alive)
        scored = scored_mask(order, ids, limits[alive] - slot)
        scores[alive] += log_probs.masked_fill(~scored, 0.0).sum(1)
        margin[alive] = torch.minimum(margin[alive], margins.masked_fill(~scored, torch.inf).amin(1))
        tokens[alive, slot : slot + z] = ids
        steps[alive] += 1
        going = ~ends_output(ids) & (limits[alive] > slot + z)
        previous = ids
        if not bool(going.all()):
            remaining = going.nonzero()[:, 0]
            if len(remaining) == 0:
                break
            alive, previous = alive[remaining], previous[remaining]
            state.select(remaining, remaining)
    outputs = Outputs.cut(order, tokens, torch.minimum(steps * z, limits))
    return [[found] for found in hypotheses(outputs, scores / penalty(search, outputs.lengths), steps, margin)]
