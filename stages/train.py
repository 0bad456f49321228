"""Train one network."""

from __future__ import annotations

from dataclasses import dataclass

from models.stepwise.config import StepwiseConfig
from models.training.config import TrainingConfig
from stages.artifacts import Text, Tokens, Trained, Vocabulary
from stages.stage import Stage, Work


@dataclass(frozen=True)
class TrainInputs:
    tokens: tuple[Tokens, ...]
    """Training tokens; several are read one after the other within an epoch."""
    validation: Tokens
    validation_text: Text
    vocabulary: Vocabulary


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """One training: the network and the recipe."""

    family: str
    """Which family of models."""
    network: StepwiseConfig
    """The network's sizes, of the family's config type."""
    training: TrainingConfig
    """The recipe."""


def run(inputs: TrainInputs, config: TrainConfig, work: Work) -> None: ...


STAGE = Stage(name="train", version=1, run=run, output=Trained, distributes=True, trains=True)
