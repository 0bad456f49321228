"""Greedy decoding and sampling: one hypothesis a row, all slots of a step chosen at once."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fewstep import JointStep
from models.family import PAD, Hypothesis
from models.stepwise.config import StepwiseSearch
from models.stepwise.ensemble import Ensemble, Together, begin
from models.stepwise.incremental import Incremental
from models.stepwise.joint_step import jointly
from models.stepwise.model import StepwiseModel
from models.stepwise.orders import GenerationOrder
from models.stepwise.outputs import Outputs, charged, hypotheses, stops
from models.stepwise.scores import ban, penalty

Choose = Callable[[Tensor, int, Tensor], tuple[Tensor, Tensor, Tensor]]
"""`choose(log_probs [R,z,V], slot, rows [R])` -> tokens, their log-probabilities and how far they are from being others, all [R,z];
`slot` is the first of the step, `rows` are places in the batch."""


def greedy(
    model: StepwiseModel | Ensemble,
    source: Tensor,
    source_lengths: Tensor,
    search: StepwiseSearch,
    limits: Tensor,
    joint: JointStep | None = None,
    listed: Tensor | None = None,
) -> list[list[Hypothesis]]:
    """The likeliest token in each slot, or what `joint` chooses: one hypothesis for each source [B,S]; `limits` [B] are in tokens
    with EOS, `listed` [B,V] says what may be written."""
    choose = _likeliest if joint is None else jointly(joint)
    return write(begin(model, source, source_lengths, listed), model.order, limits, search, choose)


def _likeliest(log_probs: Tensor, slot: int, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    best = log_probs.topk(2).values
    # Of equals the first, as native code has it; topk promises none.
    return log_probs.argmax(-1), best[..., 0], best[..., 0] - best[..., 1]


def write(
    state: Incremental | Together, order: GenerationOrder, limits: Tensor, search: StepwiseSearch, choose: Choose
) -> list[list[Hypothesis]]:
    """One hypothesis for each row of `state`, whose longest outputs are `limits` [R] tokens with EOS."""
    z = order.step_size
    alive = torch.arange(len(limits), device=limits.device)
    tokens = torch.full((len(limits), -(-int(limits.max()) // z) * z), PAD, device=limits.device)
    scores = torch.zeros(len(limits), device=limits.device)
    margin = torch.full_like(scores, torch.inf)
    steps = torch.zeros_like(limits)
    previous = None
    for slot in range(0, tokens.size(1), z):
        ids, chosen, gaps = choose(ban(state.step(previous).log_softmax(2), search, slot), slot, alive)
        counts = charged(order, ids, limits[alive] - slot)
        scores[alive] += chosen.masked_fill(~counts, 0.0).sum(1)
        margin[alive] = torch.minimum(margin[alive], gaps.masked_fill(~counts, torch.inf).amin(1))
        tokens[alive, slot : slot + z] = ids
        steps[alive] += 1
        going = ~stops(ids) & (limits[alive] > slot + z)
        previous = ids
        if not bool(going.all()):
            kept = going.nonzero()[:, 0]
            if len(kept) == 0:
                break
            alive, previous = alive[kept], previous[kept]
            state.select(kept, kept)
    outputs = Outputs.cut(order, tokens, torch.minimum(steps * z, limits))
    return [[found] for found in hypotheses(outputs, scores / penalty(search, outputs.lengths), steps, margin)]
