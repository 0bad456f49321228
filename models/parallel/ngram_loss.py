"""The n-gram objective of CTC (Shao and Feng 2022, "Non-Monotonic Latent Alignments"): expected bigrams over all alignments.

Legend: B batch, M target tokens (without EOS), T slots. With P_t the distribution of slot t, the bigram g h is written where slot i
ends a run of g, slot j begins one of h, and all slots between write blanks:

    E[g,h]   = sum_{i<j} P_i(g) P_j(h) prod_{i<k<j} P_k(blank), without the terms j = i + 1 if g = h
    sum E    = E[length] - 1 + P(empty)
    E[length] = sum_t (1 - P_t(blank)) - sum_{t>0} sum_{w != blank} P_t(w) P_{t-1}(w)
    F        = 2 sum_{g,h} min(E[g,h], count of g h in the target) / (sum E + M - 1)
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from fewstep.vocabulary import BLANK
from models.common.losses.target_ngrams import clipped_matches, target_ngrams
from models.family import Loss
from models.parallel.ctc import slots_needed, target_scores, targets_of
from models.parallel.model import ParallelModel
from models.training.batch import Batch

ORDER = 2
PROBABILITIES = 2**24
"""The number of probabilities of tokens at slots that are held at a time."""


def ngram_loss(model: ParallelModel, batch: Batch, update: int, label_smoothing: float) -> Loss:
    """Return minus the sum over sentences of F, from -1 to 0; the count is the number of sentences.

    Statistics: `precision` and `recall` of expected bigrams, and targets that are `impossible` to write in their slots, which are
    trained on all the same. No token is shown.
    """
    source = model.read(batch.source, batch.source_lengths)
    target = targets_of(model, batch)
    states = model.states(model.inputs(source, target.slots, target.size), target.slots, source)
    scores = target_scores(model, states, target).log_probs
    with torch.autocast(scores.device.type, enabled=False):
        overlaps = neighbour_overlaps(states, model.output_weight(), int(model.output_index[BLANK]))
        matched = clipped_matches(
            expected_bigrams(scores, target.ids, target.lengths, target.slots), target_ngrams(target.ids, target.lengths, ORDER)
        )
        written = expected_total(scores[:, 0], overlaps, target.slots)
    wanted = (target.lengths - 1).clamp(min=0)
    total = written + wanted
    agreement = 2.0 * matched / total.where(total > 0, 1.0)
    statistics = {
        "precision": (matched / written.where(written > 0, 1.0)).detach().sum(),
        "recall": (matched / wanted.clamp(min=1)).detach().sum(),
        "impossible": (target.slots < slots_needed(target.ids, target.lengths)).sum(),
    }
    return Loss(-agreement.sum(), torch.tensor(len(scores), device=scores.device), statistics)


def expected_bigrams(scores: Tensor, targets: Tensor, target_lengths: Tensor, lengths: Tensor) -> Tensor:
    """Return the expected number [B,max(M-1,0)] of the bigram at each position of targets [B,M]; 0 in their padding.

    `scores` [B,M+1,T] are the log-probabilities of the blank and of each target token, and `lengths` [B] the numbers of slots.
    """
    slot = torch.arange(scores.size(2), device=scores.device)
    token = torch.arange(targets.size(1), device=scores.device)
    real_slots = slot < lengths[:, None]
    real = (token < target_lengths[:, None])[:, :, None] & real_slots[:, None]
    tokens = scores[:, 1:].masked_fill(~real, -torch.inf).exp()
    first, second = tokens[:, :-1], tokens[:, 1:]
    found = ((first @ _blanks_between(scores[:, 0].where(real_slots, 0.0))) * second).sum(2)
    adjacent = (first[:, :, :-1] * second[:, :, 1:]).sum(2)
    return found - torch.where(targets[:, :-1] == targets[:, 1:], adjacent, 0.0)


def expected_total(blanks: Tensor, overlaps: Tensor, lengths: Tensor) -> Tensor:
    """Return the expected number [B] of bigrams, from log-probabilities [B,T] of blanks and `neighbour_overlaps` [B,T-1]."""
    real = torch.arange(blanks.size(1), device=blanks.device) < lengths[:, None]
    runs = (1.0 - blanks.exp()).where(real, 0.0).sum(1) - overlaps.where(real[:, 1:], 0.0).sum(1)
    return runs - 1.0 + blanks.where(real, 0.0).sum(1).exp()


def neighbour_overlaps(states: Tensor, weight: Tensor, blank: int) -> Tensor:
    """Return the probability [B,T-1] that a slot and the one before write the same token, which is not the blank.

    States are [B,T,D] and the output projection [V,D]. The computation proceeds some sentences at a time and is repeated for the
    gradient.
    """
    some = max(1, PROBABILITIES // max(1, states.size(1) * len(weight)))
    parts = [checkpoint(_overlaps, part, weight, blank, use_reentrant=False) for part in torch.split(states, some)]
    return torch.cat(parts)


def _overlaps(states: Tensor, weight: Tensor, blank: int) -> Tensor:
    probabilities = F.linear(states.to(weight.dtype), weight).softmax(2)
    products = probabilities[:, 1:] * probabilities[:, :-1]
    return products.sum(2) - products[:, :, blank]


def _blanks_between(blanks: Tensor) -> Tensor:
    """Return the probability [B,T,T] that all slots between that of the row and a later one, that of the column, write blanks; 0 at
    columns that are not later."""
    slot = torch.arange(blanks.size(1), device=blanks.device)
    later = slot > slot[:, None]
    logs = blanks[:, None].expand(-1, blanks.size(1), -1).masked_fill(~later, 0.0)
    before = F.pad(logs.cumsum(2), (1, 0))[:, :, :-1]
    return before.masked_fill(~later, -torch.inf).exp()
