"""The objective of a draft head: the next token, from the verifier's states (EAGLE, Li et al. 2024, section 3.2)."""

from __future__ import annotations

import torch

from models.aggressive.head import DraftHead
from models.common.losses.cross_entropy import cross_entropy
from models.family import Loss
from models.training.batch import Batch


def loss(network: DraftHead, batch: Batch, label_smoothing: float) -> Loss:
    """Return (1 - eps) (-log p(y)) + eps mean_v (-log p(v)), summed over all tokens with EOS; in nats, float32.

    All slots carry the verifier's states, so one pass trains all slots. (The paper's distance to the verifier's next state made no
    difference.) Statistics: `nll` (without smoothing), `correct` (tokens that the network ranks first).
    """
    source = network.read(batch.source, batch.source_lengths)
    states = network.states(batch.target, network.verifier_states(batch.target, source.verifier), source.head)
    rows, slots = (torch.arange(states.size(1), device=states.device) < batch.target_lengths[:, None]).nonzero(as_tuple=True)
    labels = batch.target[rows, slots]
    if network.training:
        network.words.add(labels)
    sums = cross_entropy(states[rows, slots], network.target_embedding.weight, labels, label_smoothing)
    return Loss(sums.total, torch.tensor(len(labels), device=labels.device), {"nll": sums.nll, "correct": sums.correct})
