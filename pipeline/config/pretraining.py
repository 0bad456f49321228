"""Pre-training in a config: the text, its masking, and what differs from the training of a system."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from fewstep.config.bounds import Ge, Gt
from models.training.config import Infilling, TrainingConfig

PRETRAINING = "pretraining"
"""The value of `initial_weights` that asks for pre-training."""


@dataclass(frozen=True, kw_only=True)
class Pretraining(Infilling):
    """A training on text alone before that of a system: its network learns to write masked spans (Huang, Ke and Huang 2023).

    Systems with `initial_weights: pretraining` start from its weights. It has the network and the recipe of the system except for
    the keys here, and is validated by its loss. The vocabulary must be joint.
    """

    monolingual: tuple[Path, ...] = ()
    """Files of text in the source language, one sentence or document a line. Sentences of test and validation texts are dropped."""
    target_monolingual: tuple[Path, ...] = ()
    """Files of text in the target language. If there are no files for either language, the text is the source side of the training
    text."""
    updates: Annotated[int, Ge(1)] = 10000
    """Largest number of optimiser updates."""
    validate_every: Annotated[int, Ge(1)] = 500
    """Updates between two validations."""
    batch_tokens: Annotated[int, Ge(1)] | None = None
    """Padded tokens in the batch of one update. Empty: as in the training of the system."""
    learning_rate: Annotated[float, Gt(0)] | None = None
    """Peak learning rate. Empty: as in the training of the system."""
    warmup_updates: Annotated[int, Ge(0)] | None = None
    """Updates over which the learning rate rises. Empty: as in the training of the system."""

    def recipe(self, training: TrainingConfig) -> TrainingConfig:
        """Return the recipe of the pre-training of a system that is trained by `training`."""
        own = {key: getattr(self, key) for key in ("updates", "validate_every", "batch_tokens", "learning_rate", "warmup_updates")}
        stated = {key: value for key, value in own.items() if value is not None}
        return replace(training, **stated, validation_metric="loss", validation_sentences=0, keep_first=False, curriculum=())
