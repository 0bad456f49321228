"""The cross-entropy of a Markov transformer, with a penalty that makes unnormalised logits comparable, and the log-probabilities of
given texts."""

from __future__ import annotations

from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from models.common.losses.cross_entropy import cross_entropy, token_log_probs
from models.family import Loss
from models.lattice.cascade import bigram_states
from models.lattice.markov import draw_contexts
from models.lattice.model import LatticeModel
from models.training.batch import Batch


class Predictions(NamedTuple):
    """The states that predict the M tokens of a batch, sentence by sentence."""

    states: Tensor
    """The states, [M,D]."""
    labels: Tensor
    """The ids of the predicted tokens, [M]."""
    rows: Tensor
    """The sentence of each token, [M]."""


def loss(model: nn.Module, batch: Batch, update: int, label_smoothing: float) -> Loss:
    """Return the sum over target tokens with EOS, in nats, float32, of

        (1 - eps) (-log p(y)) + eps mean_v (-log p(v)) + c (log Z)^2

    In training the slots of a sentence see the tokens of the segments that are drawn for it, and none where the previous token is
    dropped; in evaluation all slots are the bigrams of decoding. The statistics are `nll` (without smoothing and
    penalty), `correct` (the number of tokens ranked first) and, with a penalty, `log_z_squared`.
    """
    network = cast(LatticeModel, model)
    predictions = _predict(network, batch, *_drawn(network, batch.target))
    penalty = network.config.normalizer_penalty
    sums = cross_entropy(predictions.states, network.target_embedding.weight, predictions.labels, label_smoothing, penalty)
    statistics = {"nll": sums.nll, "correct": sums.correct, **({"log_z_squared": sums.log_z_squared} if penalty else {})}
    return Loss(sums.total, torch.tensor(len(predictions.labels), device=sums.total.device), statistics)


def log_probability(model: LatticeModel, batch: Batch) -> Tensor:
    """Return the log-probability [B] of each target and its EOS, float32.

    It is that of bigrams over the whole vocabulary, not over a lattice. The network must be in evaluation mode.
    """
    states, labels, rows = _predict(model, batch)
    scores = token_log_probs(states, model.target_embedding.weight, labels)
    return torch.zeros(len(batch.ids), dtype=torch.float64, device=scores.device).index_add(0, rows, scores.double()).float()


def _drawn(model: LatticeModel, target: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Return `earlier` and `dropped` [B,T] of `LatticeModel.hidden`; dropped slots see no other."""
    if not model.training:
        return None, None
    config = model.config
    earlier = (
        None if config.segment_length == 1 else draw_contexts(len(target), target.size(1), config.segment_length, target.device)
    )
    if config.segment_start == "bos":
        return earlier, None if earlier is None else earlier == 0
    if not config.word_dropout:
        return earlier, None
    dropped = torch.rand(target.shape, device=target.device) < config.word_dropout
    return (None if earlier is None else earlier.masked_fill(dropped, 0)), dropped


def _predict(model: LatticeModel, batch: Batch, earlier: Tensor | None = None, dropped: Tensor | None = None) -> Predictions:
    memories = model.encode(batch.source, batch.source_lengths)
    if model.config.segment_start == "bos" and earlier is None:
        states = bigram_states(model, batch.target, memories)
    else:
        states = model.hidden(batch.target, memories, earlier, dropped)
    real = torch.arange(batch.target.size(1), device=states.device) < batch.target_lengths[:, None]
    rows, slots = real.nonzero(as_tuple=True)
    return Predictions(states[rows, slots], batch.target[rows, slots], rows)
