"""The functions of the aggressive family on networks."""

from __future__ import annotations

from torch import nn

from fewstep.config.network import Sizes
from fewstep.families.aggressive.config import AggressiveConfig
from models.aggressive.decode import DraftDecoder, load
from models.aggressive.loss import loss
from models.aggressive.model import AggressiveModel, fits
from models.aggressive.on_verifier import DraftHead, MedusaHeads, head_loss, medusa_loss
from models.family import Family, Loss
from models.training.batch import Batch

NETWORKS: dict[str, type[AggressiveModel] | type[DraftHead] | type[MedusaHeads]] = {
    "parallel": AggressiveModel,
    "autoregressive": DraftHead,
    "medusa": MedusaHeads,
}


def build(config: AggressiveConfig, sizes: Sizes) -> AggressiveModel | DraftHead | MedusaHeads:
    """Return a newly initialised network. Raises ValueError for sizes that do not fit each other."""
    return NETWORKS[config.drafting](config, sizes)


def objective(model: nn.Module, batch: Batch, update: int, label_smoothing: float) -> Loss:
    """Return the loss of a block drafter (`loss`), a draft head (`head_loss`) or of heads (`medusa_loss`)."""
    if isinstance(model, MedusaHeads):
        return medusa_loss(model, batch, label_smoothing)
    if isinstance(model, DraftHead):
        return head_loss(model, batch, label_smoothing)
    return loss(model, batch, update, label_smoothing)


FAMILY = Family(build, objective, fits, load, DraftDecoder)
