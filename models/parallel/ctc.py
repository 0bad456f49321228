"""Connectionist temporal classification over the slots of a decoder (Graves et al. 2006; Libovicky and Helcl 2018), and its
glancing (Gu and Kong 2021).

A slot writes a token or a blank. A text is written by all sequences of slots that become it when equal neighbours are merged and
then blanks are removed. Legend: B batch, M target tokens (without EOS), T slots.

Scores are log-probabilities [B,M+1,T] of the blank (row 0) and of each target token, at each slot. States of the lattice are blank,
y_1, blank, ..., y_M, blank; even ones are blanks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fewstep.vocabulary import BLANK
from models.common.glancing import first_pass
from models.common.losses.token_scores import TokenScores, token_scores
from models.family import Loss
from models.parallel.glancing import shown_slots
from models.parallel.lengths import upsampled
from models.parallel.model import ParallelModel, Source
from models.training.batch import Batch


def slots_needed(targets: Tensor, target_lengths: Tensor) -> Tensor:
    """Return the fewest slots [B] that can write targets [B,M] of `target_lengths` [B]: one for each token, and one between equal
    neighbours."""
    inside = torch.arange(1, max(targets.size(1), 1), device=targets.device) < target_lengths[:, None]
    return target_lengths + ((targets[:, 1:] == targets[:, :-1]) & inside).sum(1)


def ctc_log_likelihood(scores: Tensor, targets: Tensor, target_lengths: Tensor, lengths: Tensor) -> Tensor:
    """Return log P(target) [B], the sum over all alignments; minus infinity where the slots do not suffice.

    `scores` are [B,M+1,T], targets [B,M] with `target_lengths` [B] tokens, and `lengths` [B] the numbers of slots. The gradient of
    the scores is the posterior probability of each token at each slot, and 0 where the slots do not suffice.
    """
    possible = lengths >= slots_needed(targets, target_lengths)
    found: Tensor = _LogLikelihood.apply(scores, targets, target_lengths, lengths, possible)  # type: ignore[no-untyped-call]
    return found


class _LogLikelihood(torch.autograd.Function):
    """`torch.nn.functional.ctc_loss` over the scores of a target's own tokens.

    Its gradient is softmax minus posterior, which is the gradient with respect to logits. The scores here are parts of normalised
    rows, so the softmax is added again.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, targets: Tensor, target_lengths: Tensor, lengths: Tensor, possible: Tensor) -> Tensor:
        trained = ctx.needs_input_grad[0]
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            given = scores.detach().permute(2, 0, 1).contiguous().requires_grad_(trained)
            costs = F.ctc_loss(given, _classes(targets), lengths, target_lengths, reduction="none", zero_infinity=True)
        if trained:
            (gradient,) = torch.autograd.grad(costs, given, torch.ones_like(costs))
            real = torch.arange(scores.size(2), device=scores.device) < lengths[:, None]
            posteriors = (given.detach().exp() - gradient).permute(1, 2, 0)
            ctx.save_for_backward(posteriors.where((real & possible[:, None])[:, None], 0.0))
        return -costs.detach().masked_fill(~possible, torch.inf)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        (posteriors,) = ctx.saved_tensors
        return (posteriors * upstream[0][:, None, None], None, None, None, None)


def _classes(targets: Tensor) -> Tensor:
    """Return the row of the scores [B,max(M,1)] for each target token: that of its first occurrence, so that equal tokens have
    equal rows."""
    if targets.size(1) == 0:
        return targets.new_zeros(len(targets), 1)
    return (targets[:, :, None] == targets[:, None, :]).int().argmax(2) + 1


def ctc_best_alignment(scores: Tensor, targets: Tensor, target_lengths: Tensor, lengths: Tensor) -> Tensor:
    """Return the row of the scores [B,T] that each slot writes on the most probable alignment: 0 is the blank, i the i-th target
    token; -1 at slots past `lengths` [B] and where the slots do not suffice. No gradients.

    Among equal alignments, a slot prefers to stay in its state, then to come from the state before, then to skip a blank; the last
    state is preferred to be a blank.
    """
    scores = scores.detach()
    states = torch.arange(2 * targets.size(1) + 1, device=scores.device)
    rows = torch.where(states % 2 == 0, 0, (states + 1) // 2)
    emissions = scores[:, rows]  # [B,2M+1,T]
    tokens = F.pad(targets, (1, 0), value=-1)[:, rows]
    skips = (states % 2 == 1) & (states >= 3) & (tokens != F.pad(tokens, (2, 0), value=-1)[:, :-2])
    best = torch.where(states < 2, emissions[..., 0], -torch.inf)
    moves = torch.zeros(emissions.shape, dtype=torch.int8, device=scores.device)
    for slot in range(1, scores.size(2)):
        one = F.pad(best, (1, 0), value=-torch.inf)[:, :-1]
        two = F.pad(best, (2, 0), value=-torch.inf)[:, :-2].where(skips, -torch.inf)
        before = best
        move = torch.zeros_like(moves[..., 0])
        for number, other in ((1, one), (2, two)):
            better = other > before
            before = torch.where(better, other, before)
            move = move.masked_fill(better, number)
        running = (slot < lengths)[:, None]
        best = torch.where(running, before + emissions[..., slot], best)
        moves[..., slot] = move * running
    last = 2 * target_lengths[:, None]
    ends = best.gather(1, torch.cat((last, (last - 1).clamp(min=0)), 1))
    state = torch.where(ends[:, 0] >= ends[:, 1], last[:, 0], last[:, 0] - 1)
    path = _walk_back(moves, state, lengths)
    possible = (lengths >= slots_needed(targets, target_lengths))[:, None]
    real = torch.arange(scores.size(2), device=scores.device) < lengths[:, None]
    return rows[path].masked_fill(~(possible & real), -1)


def _walk_back(moves: Tensor, state: Tensor, lengths: Tensor) -> Tensor:
    """Return the states [B,T] that lead to `state` [B] by the moves [B,2M+1,T] into each state at each slot."""
    path = torch.zeros(moves.size(0), moves.size(2), dtype=torch.int64, device=moves.device)
    for slot in range(moves.size(2) - 1, -1, -1):
        path[:, slot] = state
        state = (state - moves[..., slot].gather(1, state[:, None])[:, 0]).clamp(min=0)
    return path


class Targets(NamedTuple):
    """Targets without EOS, and the numbers of slots that write them."""

    ids: Tensor
    """The token ids [B,M]."""
    lengths: Tensor
    """The numbers of tokens [B]."""
    slots: Tensor
    """The numbers of slots [B]."""
    labels: Tensor
    """The indices [B,M+1] of the blank and of the tokens among the outputs of the network."""

    @property
    def size(self) -> int:
        """The largest number of slots."""
        return int(self.slots.max())


def ctc_loss(model: ParallelModel, batch: Batch, update: int, label_smoothing: float) -> Loss:
    """Return the sum of -log P(target | source) over all alignments, in nats; the count is the number of target tokens.

    With `label_smoothing` e it is (1 - e) times that, plus e times the sum over all slots of mean_v (-log p(v)). Targets that need
    more slots than there are cost nothing and are counted. Statistics: `nll` (without smoothing), `impossible` targets, and with
    glancing the shares of slots that are `shown` their token and that rank the token of the best alignment first (`correct`), times
    the target tokens.
    """
    source = model.read(batch.source, batch.source_lengths)
    target = targets_of(model, batch)
    inputs, statistics = _glance(model, source, target, batch.ids, update)
    states = model.states(inputs, target.slots, source)
    scores = target_scores(model, states, target).log_probs
    log_probs = ctc_log_likelihood(scores, target.ids, target.lengths, target.slots)
    possible = log_probs.isfinite()
    nll = -log_probs.where(possible, 0.0).sum()
    total = (1.0 - label_smoothing) * nll
    if label_smoothing:
        total = total + label_smoothing * _spread(model, states, scores[:, 0], target.slots * possible)
    count = (target.lengths * possible).sum().clamp(min=1)
    return Loss(total, count, {"nll": nll.detach(), "impossible": (~possible).sum(), **statistics})


def log_probability(model: ParallelModel, batch: Batch) -> Tensor:
    """Return log P(target | source) [B] over all alignments; minus infinity where the slots do not suffice."""
    source = model.read(batch.source, batch.source_lengths)
    target = targets_of(model, batch)
    states = model.states(model.inputs(source, target.slots, target.size), target.slots, source)
    return ctc_log_likelihood(target_scores(model, states, target).log_probs, target.ids, target.lengths, target.slots)


def targets_of(model: ParallelModel, batch: Batch) -> Targets:
    """Return the targets of a batch."""
    ids = batch.target[:, :-1]
    labels = model.output_index[F.pad(ids, (1, 0), value=BLANK)]
    return Targets(ids, batch.target_lengths - 1, upsampled(model.config, batch.source_lengths), labels)


def target_scores(model: ParallelModel, states: Tensor, target: Targets, *, with_best: bool = False) -> TokenScores:
    """Return the scores [B,M+1,T] of the blank and of each target token at each slot."""
    return token_scores(states, model.output_weight(), target.labels, target.slots, with_best=with_best)


def _glance(model: ParallelModel, source: Source, target: Targets, ids: Tensor, update: int) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the inputs [B,T,D] of slots, some of which are shown their token on the best alignment, and statistics.

    A first pass without gradients finds the alignment; blanks are shown too.
    """
    inputs = model.inputs(source, target.slots, target.size)
    if not (model.config.glances and model.training):
        return inputs, {}
    with first_pass(inputs.device, same_dropout=model.config.glancing_same_dropout):
        found = target_scores(model, model.states(inputs, target.slots, source), target, with_best=True)
        rows = ctc_best_alignment(found.log_probs, target.ids, target.lengths, target.slots)
    aligned = rows >= 0
    tokens = F.pad(target.ids, (1, 0), value=BLANK).gather(1, rows.clamp(min=0))
    wrong = model.outputs[found.best] != tokens
    shown = shown_slots(model.config, update, wrong, aligned, ids)
    share = target.lengths / target.slots  # so that sums over slots are comparable with the count, the target tokens
    statistics = {name: (mask.sum(1) * share).sum() for name, mask in (("correct", aligned & ~wrong), ("shown", shown))}
    return torch.where(shown[:, :, None], model.embedded(tokens), inputs), statistics


def _spread(model: ParallelModel, states: Tensor, blanks: Tensor, slots: Tensor) -> Tensor:
    """Return the sum over the first `slots` [B] slots of mean_v (-log p(v)), from the scores [B,T] of blanks.

    -log p(v) is the blank's logit less that of v, minus the blank's log-probability; the mean needs the mean logit alone.
    """
    weight = model.output_weight().float()
    blank = model.output_index[BLANK]
    difference = states.float() @ (weight[blank] - weight.mean(0))
    real = torch.arange(states.size(1), device=states.device) < slots[:, None]
    return (difference - blanks).where(real, 0.0).sum()
