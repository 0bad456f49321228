"""The functions of the aggressive family on networks."""

from __future__ import annotations

from torch import nn

from fewstep.config.network import Sizes
from fewstep.families.aggressive.config import AggressiveConfig
from models.aggressive import head_loss, loss
from models.aggressive.decode import DraftDecoder, load
from models.aggressive.head import DraftHead
from models.aggressive.model import AggressiveModel, fits
from models.family import Family, Loss
from models.training.batch import Batch


def build(config: AggressiveConfig, sizes: Sizes) -> AggressiveModel | DraftHead:
    """Return a newly initialised network. Raises ValueError for sizes that do not fit each other."""
    return (AggressiveModel if config.drafting == "parallel" else DraftHead)(config, sizes)


def objective(model: nn.Module, batch: Batch, update: int, label_smoothing: float) -> Loss:
    """Return the loss of a block drafter (`models.aggressive.loss`) or of a draft head (`models.aggressive.head_loss`)."""
    if isinstance(model, DraftHead):
        return head_loss.loss(model, batch, label_smoothing)
    return loss.loss(model, batch, update, label_smoothing)


FAMILY = Family(build, objective, fits, load, DraftDecoder)
