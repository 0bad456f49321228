"""The objective of heads on a verifier (Cai et al. 2024, section 2.2)."""

from __future__ import annotations

import torch
from torch import Tensor

from models.aggressive.medusa import MedusaHeads
from models.common.losses.cross_entropy import CrossEntropy, cross_entropy
from models.family import Loss
from models.training.batch import Batch

RANKED_SLOTS = 1024
"""Number of slots whose logits are held at a time."""


def loss(network: MedusaHeads, batch: Batch, label_smoothing: float) -> Loss:
    """Return sum_i lambda^i CE_i over the heads i = 1..k (equation 1), with CE = (1 - eps) (-log p(y)) + eps mean_v (-log p(v)),
    summed over all slots t whose token t + i exists, EOS included; in nats, float32. With `train_verifier`, CE_0 of the network's
    own next token is added (equation 2).

    lambda is `head_loss_decay`. The count is the number of target tokens with EOS. Statistics, as sums over tokens: `nll` of the
    first head without smoothing; `top1_I`, the tokens that head I ranks first; outside training also `top3_I`, those that it ranks
    among its three best, and `accepted`, the heads of all slots that are right together with all heads before them, which a
    verifier that writes the target would accept.
    """
    memories = network.encode(batch.source, batch.source_lengths)
    states = network.verifier_states(batch.target, memories)
    real = torch.arange(states.size(1), device=states.device) < batch.target_lengths[:, None]
    if network.training:
        network.words.add(batch.target[real])
    parts = [_cross_entropy(network, states, batch.target, real, 0, label_smoothing)] if network.config.train_verifier else []
    total = parts[0].total if parts else torch.zeros((), device=states.device)
    drafting = network.drafting_states(states)
    statistics: dict[str, Tensor] = {}
    for head in range(1, network.config.draft_width + 1):
        found = _cross_entropy(network, drafting[:, :, head - 1], batch.target, real, head, label_smoothing)
        total = total + network.config.head_loss_decay**head * found.total
        statistics |= {"nll": found.nll} if head == 1 else {}
        statistics[f"top1_{head}"] = found.correct
        if not network.training:
            statistics[f"top3_{head}"] = _in_best_three(network, drafting[:, :, head - 1], batch.target, real, head)
    if not network.training:
        statistics["accepted"] = _accepted(network, drafting, batch.target, real)
    return Loss(total, real.sum(), statistics)


def _cross_entropy(
    network: MedusaHeads, states: Tensor, target: Tensor, real: Tensor, head: int, label_smoothing: float
) -> CrossEntropy:
    """Return the cross-entropy of tokens t + `head` from states [B,T,D] of slots t; `real` [B,T] is True at tokens."""
    labelled = real[:, head:]
    size = labelled.size(1)
    return cross_entropy(
        states[:, :size][labelled], network.target_embedding.weight, target[:, head:][labelled], label_smoothing, bias=None
    )


def _in_best_three(network: MedusaHeads, states: Tensor, target: Tensor, real: Tensor, head: int) -> Tensor:
    """Return the number of tokens t + `head` that are among the three best of slots t with states [B,T,D]."""
    labelled = real[:, head:]
    rows = states[:, : labelled.size(1)][labelled], target[:, head:][labelled]
    count = torch.zeros((), dtype=torch.int64, device=states.device)
    for part, labels in zip(*(torch.split(values, RANKED_SLOTS) for values in rows), strict=True):
        logits = network.logits(part)
        count = count + ((logits > logits.gather(1, labels[:, None])).sum(1) < 3).sum()
    return count


def _accepted(network: MedusaHeads, drafting: Tensor, target: Tensor, real: Tensor) -> Tensor:
    """Return the number of heads of all slots that are right together with all heads before them."""
    before = real
    count = torch.zeros((), dtype=torch.int64, device=real.device)
    for head in range(1, network.config.draft_width + 1):
        labelled = real[:, head:]
        before = before[:, : labelled.size(1)] & labelled
        rows, slots = before.nonzero(as_tuple=True)
        right = network.logits(drafting[rows, slots, head - 1]).argmax(1) == target[rows, slots + head]
        before = before.index_put((rows, slots), right)
        count = count + right.sum()
    return count
