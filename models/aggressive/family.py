"""The `aggressive` family, as its callers see it."""

from __future__ import annotations

from torch import nn

from models.aggressive import head_loss, loss
from models.aggressive.config import AggressiveConfig
from models.aggressive.decode import DraftDecoder, load
from models.aggressive.head import DraftHead
from models.aggressive.model import AggressiveModel, fits
from models.family import Family, Loss, Sizes
from models.training.batch import Batch


def build(config: AggressiveConfig, sizes: Sizes) -> AggressiveModel | DraftHead:
    """A freshly initialised network. Raises ValueError when the sizes do not fit each other."""
    return (AggressiveModel if config.drafting == "parallel" else DraftHead)(config, sizes)


def objective(model: nn.Module, batch: Batch, update: int, label_smoothing: float) -> Loss:
    """Of either kind of drafter: `models.aggressive.loss`, `models.aggressive.head_loss`."""
    if isinstance(model, DraftHead):
        return head_loss.loss(model, batch, label_smoothing)
    return loss.loss(model, batch, update, label_smoothing)


FAMILY = Family(build, objective, fits, load, DraftDecoder)
