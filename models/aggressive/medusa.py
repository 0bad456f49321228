"""Heads on a verifier that predict the tokens after its next one (Stern et al. 2018; Medusa, Cai et al. 2024), with their loss."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fewstep.config.network import Sizes
from fewstep.families.aggressive.config import AggressiveConfig
from models.aggressive.extension import VerifierExtension
from models.common.layers.dropout import Dropout
from models.common.layers.initialisation import initialise
from models.common.layers.linear import Linear
from models.common.losses.cross_entropy import CrossEntropy, cross_entropy
from models.family import Loss
from models.training.batch import Batch


class MedusaHeads(VerifierExtension):
    """The verifier's network, and `draft_width` heads on its states.

    From the state h_t of slot t, which predicts token t, head i = 1..k predicts token t + i from h_t + SiLU(W_i h_t + b_i), by the
    verifier's own output projection (Cai et al. 2024, section 2.1.1). W_i and b_i are 0 at first.
    """

    def __init__(self, config: AggressiveConfig, sizes: Sizes) -> None:
        """Create the network. Raises ValueError if the width is not an even multiple of the number of heads of attention."""
        super().__init__(config, sizes)
        self.medusa = Linear(config.width, config.draft_width * config.width)
        self.medusa_dropout = Dropout(config.dropout)
        initialise(self)
        nn.init.zeros_(self.medusa.weight)
        self.freeze_shared()

    def drafting_states(self, states: Tensor) -> Tensor:
        """Return the states [...,k,D] of all heads for the verifier's states [...,D]."""
        residual: Tensor = F.silu(self.medusa(self.medusa_dropout(states)))
        return states.unsqueeze(-2) + residual.reshape(*states.shape[:-1], -1, states.size(-1))


RANKED_SLOTS = 1024
"""Number of slots whose logits are held at a time."""


def medusa_loss(network: MedusaHeads, batch: Batch, label_smoothing: float) -> Loss:
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
