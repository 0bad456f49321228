"""The objective of CTC over upsampled slots (Libovicky and Helcl 2018), and its glancing (Gu and Kong 2021)."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fewstep.vocabulary import BLANK
from models.common.glancing import first_pass
from models.common.losses.token_scores import TokenScores, token_scores
from models.family import Loss
from models.parallel.ctc import ctc_best_alignment, ctc_log_likelihood
from models.parallel.glancing import shown_slots
from models.parallel.lengths import upsampled
from models.parallel.model import ParallelModel, Source
from models.training.batch import Batch


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
