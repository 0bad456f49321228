"""Cross-entropy of a Markov transformer, with a penalty that makes its logits comparable as they are; scores of given text."""

from __future__ import annotations

from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from models.common.losses.cross_entropy import cross_entropy, token_log_probs
from models.family import Loss
from models.lattice.markov import draw_pairs
from models.lattice.model import LatticeModel
from models.training.batch import Batch


class Predictions(NamedTuple):
    """What predicts the M tokens of a batch, sentence after sentence."""

    states: Tensor
    """[M,D]"""
    labels: Tensor
    """[M]"""
    rows: Tensor
    """[M] the sentence of each"""


def loss(model: nn.Module, batch: Batch, update: int, label_smoothing: float) -> Loss:
    """Summed over target tokens with EOS, in nats, float32:

        (1 - eps) (-log p(y)) + eps mean_v (-log p(v)) + c (log Z)^2

    In training the slots of a sentence are bigrams and trigrams by the segments that are drawn for it, those whose word is
    dropped unigrams; in evaluation all are the bigrams of decoding. Statistics: `nll` (without smoothing and penalty),
    `correct` (tokens ranked first); with a penalty also `log_z_squared`.
    """
    network = cast(LatticeModel, model)
    found = _predict(network, batch, *_drawn(network, batch.target))
    penalty = network.config.normalizer_penalty
    sums = cross_entropy(found.states, network.target_embedding.weight, found.labels, label_smoothing, penalty)
    statistics = {"nll": sums.nll, "correct": sums.correct, **({"log_z_squared": sums.log_z_squared} if penalty else {})}
    return Loss(sums.total, torch.tensor(len(found.labels), device=sums.total.device), statistics)


def log_probability(model: LatticeModel, batch: Batch) -> Tensor:
    """[B]: log-probability of each target and its end by its bigrams, over the whole vocabulary and not over a lattice, float32;
    call with the network in evaluation mode."""
    found = _predict(model, batch)
    scores = token_log_probs(found.states, model.target_embedding.weight, found.labels)
    return torch.zeros(len(batch.ids), dtype=torch.float64, device=scores.device).index_add(0, found.rows, scores.double()).float()


def _drawn(model: LatticeModel, target: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Which slots [B,T] see the one before them, and which know no word: those see themselves alone."""
    if not model.training:
        return None, None
    paired = draw_pairs(len(target), target.size(1), target.device) if model.config.segment_length == 2 else None
    if not model.config.word_dropout:
        return paired, None
    dropped = torch.rand(target.shape, device=target.device) < model.config.word_dropout
    return (None if paired is None else paired & ~dropped), dropped


def _predict(model: LatticeModel, batch: Batch, paired: Tensor | None = None, dropped: Tensor | None = None) -> Predictions:
    states = model.hidden(batch.target, model.encode(batch.source, batch.source_lengths), paired, dropped)
    real = torch.arange(batch.target.size(1), device=states.device) < batch.target_lengths[:, None]
    rows, slots = real.nonzero(as_tuple=True)
    return Predictions(states[rows, slots], batch.target[rows, slots], rows)
