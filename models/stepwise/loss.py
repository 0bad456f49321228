"""Cross-entropy with label smoothing, and log-probabilities of given text."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from models.common.losses.cross_entropy import cross_entropy, token_log_probs
from models.family import Loss
from models.stepwise.ensemble import Ensemble, mean, networks
from models.stepwise.model import Predictions, StepwiseModel
from models.training.batch import Batch


def loss(model: nn.Module, batch: Batch, update: int, label_smoothing: float) -> Loss:
    """Return (1 - eps) (-log p(y)) + eps mean_v (-log p(v)), summed over labels (target tokens, EOS, filled tails), in nats;
    float32.

    Statistics: `nll` (without smoothing) and `correct` (tokens that the network ranks first).
    """
    predictions = _predict(model, batch)
    sums = cross_entropy(predictions.states, predictions.weight, predictions.labels, label_smoothing, bias=predictions.bias)
    return Loss(
        sums.total, torch.tensor(len(predictions.labels), device=sums.total.device), {"nll": sums.nll, "correct": sums.correct}
    )


def log_probability(model: StepwiseModel | Ensemble, batch: Batch) -> Tensor:
    """Return [B], the log-probability of writing each target and its EOS, float32. The network must be in evaluation mode.

    If the first EOS ends an output, the slots after it in its step may hold any token, so they do not count.
    """
    all_predictions = [_predict(member, batch) for member in networks(model)]
    log_probs = mean([token_log_probs(member.states, member.weight, member.labels, member.bias) for member in all_predictions])
    predictions = all_predictions[0]
    if model.order.stop == "first-eos":
        log_probs = log_probs * (predictions.slots < batch.target_lengths[predictions.rows])
    scores = log_probs.new_zeros(len(batch.ids), int(predictions.slots.max()) + 1)
    scores[predictions.rows, predictions.slots] = log_probs
    return scores.sum(1, dtype=torch.float64).float()


def _predict(model: nn.Module, batch: Batch) -> Predictions:
    predictions: Predictions = model(batch.source, batch.source_lengths, batch.target, batch.target_lengths)
    return predictions
