"""Analysis of slots: the accuracy and the ranks of target tokens under the best assignment of tokens to slots.

Legend: B batch, M target tokens without EOS, T slots, W outputs of the network, R slots of all sentences.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fewstep.vocabulary import BLANK
from models.common.inference import inference_mode
from models.parallel.ctc import ctc_best_alignment, target_scores, targets_of
from models.parallel.lengths import length_candidates
from models.parallel.model import ParallelModel, Source
from models.training.batch import Batch

RANKED_SLOTS = 1024
"""Number of slots whose logits are held at a time."""


class SlotRanks(NamedTuple):
    """Slots with the tokens that they are assigned to, [R]."""

    right: Tensor
    """Whether the slot ranks its token first among all outputs."""
    ranks: Tensor
    """The rank of the token, from 0, among all outputs except the blank."""
    entropies: Tensor
    """The entropy of the slot's distribution, in nats."""


class Assigned(NamedTuple):
    """The tokens of a target under the best assignment to slots; on the CPU."""

    correct: Tensor
    """The share [M] of the slots of each token that rank it first; 0 for a token without a slot."""
    ranks: Tensor
    """The best rank [M] of each token in its slots, from 0; the number of outputs for a token without a slot."""
    predicted_ranks: Tensor | None
    """The same with slots for a target of the predicted length, [M]; None with CTC, which predicts none."""
    entropies: Tensor
    """The entropies of the slots of the target, in nats."""


def inspect(model: ParallelModel, batch: Batch) -> list[Assigned | None]:
    """Return the targets of a batch beside the slots that decoding would compute; None for those with too few slots.

    A slot writes the token at its own position; with CTC, the tokens of the most probable alignment (Huang et al. 2022, table 2).
    """
    with inference_mode(model) as device:
        batch = batch.to(device)
        source = model.read(batch.source, batch.source_lengths)
        if model.config.uses_ctc:
            return _aligned(model, source, batch)
        lengths = batch.target_lengths - 1
        true = _in_place(model, source, batch, batch.target_lengths, lengths)
        assert source.lengths is not None
        guess = length_candidates(model.config, source.lengths, batch.source_lengths, 1)[0][:, 0]
        predicted = _in_place(model, source, batch, guess, lengths.minimum(guess))
        return [
            None if slots > model.config.max_slots else one._replace(predicted_ranks=other.ranks)
            for one, other, slots in zip(true, predicted, batch.target_lengths.tolist(), strict=True)
        ]


def _in_place(model: ParallelModel, source: Source, batch: Batch, slots: Tensor, written: Tensor) -> list[Assigned]:
    """The targets with slot i for token i, in targets of `slots` [B] slots of which the first `written` [B] have a token."""
    slots = slots.clamp(max=model.config.max_slots)
    size = int(slots.max())
    positions = torch.arange(size, device=slots.device)
    rows = torch.where(positions < written[:, None], positions + 1, -1)
    states = model.states(model.inputs(source, slots, size), slots, source)
    return assigned(states, model.output_weight(), rows, _labels(model, batch), batch.target_lengths - 1, blank=None)


def _aligned(model: ParallelModel, source: Source, batch: Batch) -> list[Assigned | None]:
    target = targets_of(model, batch)
    states = model.states(model.inputs(source, target.slots, target.size), target.slots, source)
    scores = target_scores(model, states, target).log_probs
    rows = ctc_best_alignment(scores, target.ids, target.lengths, target.slots)
    blank = int(model.output_index[BLANK])
    found = assigned(states, model.output_weight(), rows, target.labels, target.lengths, blank=blank)
    possible = (rows >= 0).any(1).tolist()
    return [one if known else None for one, known in zip(found, possible, strict=True)]


def _labels(model: ParallelModel, batch: Batch) -> Tensor:
    """The indices [B,M+1] of the blank and of the tokens among the outputs."""
    return model.output_index[F.pad(batch.target[:, :-1], (1, 0), value=BLANK)]


def assigned(states: Tensor, weight: Tensor, rows: Tensor, labels: Tensor, lengths: Tensor, *, blank: int | None) -> list[Assigned]:
    """Return the targets of `lengths` [B] tokens whose token i is written by the slots with i in `rows` [B,T].

    Rows are 0 for a blank and -1 for no part of the target; `states` [B,T,D] and `weight` [W,D] give the logits, and `labels`
    [B,M+1] are the indices of the blank and of the tokens among the outputs. `blank` is that of the blank, which takes no rank.
    """
    part = rows >= 0
    found = slot_ranks(states[part], weight, labels.gather(1, rows.clamp(min=0))[part], blank)
    right, ranks, entropies = (torch.zeros(rows.shape, dtype=one.dtype, device=one.device) for one in found)
    right[part], ranks[part], entropies[part] = found
    size = labels.size(1)
    slots = rows.clamp(min=0)
    count = torch.zeros(len(rows), size, device=rows.device).scatter_add(1, slots, part.float())
    correct = torch.zeros_like(count).scatter_add(1, slots, (right & part).float()) / count.clamp(min=1)
    best = torch.full(count.shape, len(weight), device=rows.device).scatter_reduce(
        1, slots, ranks.masked_fill(~part, len(weight)), "amin"
    )
    return [
        Assigned(
            correct=correct[row, 1 : length + 1].cpu(),
            ranks=best[row, 1 : length + 1].cpu(),
            predicted_ranks=None,
            entropies=entropies[row][part[row]].cpu(),
        )
        for row, length in enumerate(lengths.tolist())
    ]


def slot_ranks(states: Tensor, weight: Tensor, labels: Tensor, blank: int | None) -> SlotRanks:
    """Return the ranks of the outputs `labels` [R] at slots with states [R,D]; among equal outputs the lower index is first."""
    parts = [
        _ranks(part.float() @ weight.float().t(), label, blank)
        for part, label in zip(torch.split(states, RANKED_SLOTS), torch.split(labels, RANKED_SLOTS), strict=True)
    ]
    return SlotRanks(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _ranks(logits: Tensor, labels: Tensor, blank: int | None) -> SlotRanks:
    own = logits.gather(1, labels[:, None])
    indices = torch.arange(logits.size(1), device=logits.device)
    before = (logits > own) | ((logits == own) & (indices < labels[:, None]))
    ranks = before.sum(1)
    log_probs = logits.log_softmax(1)
    entropies = -(log_probs.exp() * log_probs.clamp(min=-1e30)).sum(1)
    others = ranks if blank is None else ranks - before[:, blank].long()
    return SlotRanks(ranks == 0, others, entropies)
