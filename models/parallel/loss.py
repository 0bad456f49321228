"""The objective of a network, by its config, and that with one slot for each target token: all tokens at once, with glancing, or
partly hidden targets."""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fewstep.families.parallel.config import LENGTH_CLASSES, ParallelConfig
from fewstep.vocabulary import MASK
from models.common.glancing import first_pass, random_slots
from models.common.losses.cross_entropy import cross_entropy, token_log_probs
from models.family import Loss
from models.parallel import ctc as alignments
from models.parallel.glancing import shown_slots
from models.parallel.lengths import length_classes
from models.parallel.model import ParallelModel, Source
from models.parallel.ngram_loss import ngram_loss
from models.training.batch import Batch
from models.training.seeds import uniform_noise


def loss(model: nn.Module, batch: Batch, update: int, label_smoothing: float) -> Loss:
    """Return the objective of a batch; see `ctc_loss`, `ngram_loss` and `slot_loss`. No token is shown in evaluation mode."""
    network = cast(ParallelModel, model)
    if network.config.objective == "ctc-ngram":
        return ngram_loss(network, batch, update, label_smoothing)
    objective = alignments.ctc_loss if network.config.uses_ctc else slot_loss
    return objective(network, batch, update, label_smoothing)


def log_probability(model: ParallelModel, batch: Batch) -> Tensor:
    """Return log P(target | source) [B]: over all alignments with CTC, else with that of its length."""
    return alignments.log_probability(model, batch) if model.config.uses_ctc else _slot_log_probability(model, batch)


def slot_loss(model: ParallelModel, batch: Batch, update: int, label_smoothing: float) -> Loss:
    """Return (1 - eps) (-log p(y)) + eps mean_v (-log p(v)), summed over the slots that are not shown their token, plus
    `length_loss_weight` times the cross-entropy of the lengths; in nats, float32. The count is the number of these slots.

    Statistics: `nll` (without smoothing and lengths), `correct` (slots whose token the network ranks first), `shown` slots,
    `length_correct` and `length_clamped` (lengths that the network ranks first, and lengths beyond its classes).
    """
    source = model.read(batch.source, batch.source_lengths)
    real = torch.arange(batch.target.size(1), device=batch.target.device) < batch.target_lengths[:, None]
    inputs, hidden = _inputs(model, source, batch, real, update)
    states = model.states(inputs, batch.target_lengths, source)
    labels = model.output_index[batch.target[hidden]]
    sums = cross_entropy(states[hidden], model.output_weight(), labels, label_smoothing)
    length_cost, statistics = _length_cost(model.config, source, batch)
    statistics |= {"nll": sums.nll, "correct": sums.correct, "shown": (real & ~hidden).sum()}
    total = sums.total + model.config.length_loss_weight * length_cost
    return Loss(total, torch.tensor(max(1, len(labels)), device=total.device), statistics)


def _slot_log_probability(model: ParallelModel, batch: Batch) -> Tensor:
    """Return log P(length | source) + sum_t log p(y_t | slot t of a target of this length) [B].

    It is minus infinity for a length beyond the network's classes or slots.
    """
    source = model.read(batch.source, batch.source_lengths)
    assert source.lengths is not None
    states = model.states(model.inputs(source, batch.target_lengths, batch.target.size(1)), batch.target_lengths, source)
    real = torch.arange(batch.target.size(1), device=batch.target.device) < batch.target_lengths[:, None]
    scores = torch.zeros(real.shape, device=states.device)
    scores[real] = token_log_probs(states[real], model.output_weight(), model.output_index[batch.target[real]])
    classes = length_classes(model.config, batch.source_lengths, batch.target_lengths)
    possible = (classes >= 0) & (classes < LENGTH_CLASSES) & (batch.target_lengths <= model.config.max_slots)
    of_length = source.lengths.float().log_softmax(1).gather(1, classes.clamp(0, LENGTH_CLASSES - 1)[:, None])[:, 0]
    return (scores.sum(1) + of_length).masked_fill(~possible, -torch.inf)


def _inputs(model: ParallelModel, source: Source, batch: Batch, real: Tensor, update: int) -> tuple[Tensor, Tensor]:
    """Return the inputs of slots [B,T,D], and a mask [B,T] of those that are not shown their token."""
    if model.config.objective == "cmlm":
        hidden = hidden_slots(batch.ids, batch.target_lengths, real, training=model.training)
        return model.embedded(batch.target.masked_fill(hidden, MASK)), hidden
    inputs = model.inputs(source, batch.target_lengths, batch.target.size(1))
    if not (model.config.glances and model.training):
        return inputs, real
    with first_pass(inputs.device, same_dropout=model.config.glancing_same_dropout):
        states = model.states(inputs, batch.target_lengths, source)
        best = first_tokens(model, states, real)
    shown = shown_slots(model.config, update, best != batch.target, real, batch.ids)
    return torch.where(shown[:, :, None], model.embedded(batch.target), inputs), real & ~shown


def first_tokens(model: ParallelModel, states: Tensor, real: Tensor) -> Tensor:
    """Return the token [B,T] that each real slot ranks first, and 0 elsewhere; the logits of some slots are held at a time."""
    found = torch.zeros(real.shape, dtype=torch.int64, device=states.device)
    weight = model.output_weight()
    parts = [(part @ weight.t()).argmax(1) for part in torch.split(states[real], 1024)]
    found[real] = model.outputs[torch.cat(parts)]
    return found


def hidden_slots(ids: Tensor, lengths: Tensor, real: Tensor, *, training: bool) -> Tensor:
    """Return a mask [B,T] of 1 to M random slots of targets of M [B] tokens; each number is equally probable (Ghazvininejad et al.
    2019, section 3). Outside training it is a function of the pairs' `ids` [B]."""
    noise = uniform_noise(ids, real.size(1) + 1, training=training)
    return random_slots((noise[:, 0] * lengths).long() + 1, real, noise[:, 1:])


def _length_cost(config: ParallelConfig, source: Source, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the summed cross-entropy of the lengths, those beyond the classes as the nearest class, and its statistics."""
    assert source.lengths is not None
    classes = length_classes(config, batch.source_lengths, batch.target_lengths)
    nearest = classes.clamp(0, LENGTH_CLASSES - 1)
    logits = source.lengths.float()
    return F.cross_entropy(logits, nearest, reduction="sum"), {
        "length_correct": (logits.argmax(1) == classes).sum(),
        "length_clamped": (nearest != classes).sum(),
    }
