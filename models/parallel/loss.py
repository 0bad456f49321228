"""The objective of a network, by its config."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from models.family import Loss
from models.parallel import ctc_loss as alignments
from models.parallel import slot_loss as slots
from models.parallel.model import ParallelModel
from models.parallel.ngram_loss import ngram_loss
from models.training.batch import Batch


def loss(model: nn.Module, batch: Batch, update: int, label_smoothing: float) -> Loss:
    """Return the objective of a batch; see `ctc_loss`, `ngram_loss` and `slot_loss`. No token is shown in evaluation mode."""
    network = cast(ParallelModel, model)
    if network.config.objective == "ctc-ngram":
        return ngram_loss(network, batch, update, label_smoothing)
    objective = alignments.ctc_loss if network.config.uses_ctc else slots.slot_loss
    return objective(network, batch, update, label_smoothing)


def log_probability(model: ParallelModel, batch: Batch) -> Tensor:
    """Return log P(target | source) [B]: over all alignments with CTC, else with that of its length."""
    return alignments.log_probability(model, batch) if model.config.uses_ctc else slots.log_probability(model, batch)
