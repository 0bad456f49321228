"""Train one network."""

from __future__ import annotations

from dataclasses import dataclass

from models.common.network import NetworkConfig
from models.training.config import TrainingConfig
from stages.artifacts import System, Tables, Text, Tokens, Trained, Vocabulary
from stages.score.tasks import TaskName
from stages.stage import Implementation, Stage


@dataclass(frozen=True)
class TrainInputs:
    tokens: tuple[Tokens, ...]
    """Training tokens; their shards form one list, which every epoch visits in an order of its own."""
    validation: Tokens
    validation_text: Text
    vocabulary: Vocabulary
    initial: Trained | System | None = None
    """A network to start from: its weights are taken wherever name and shape are the same."""
    tables: Tables | None = None
    """Candidate tables, for a family that looks its words up: validation decodes with them."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """One training: the network and the recipe."""

    family: str
    """Which family of models."""
    network: NetworkConfig
    """The network's sizes, of the family's config type."""
    training: TrainingConfig
    """The recipe."""
    target_language: str = ""
    """Language code of the target, for the tokeniser of validation BLEU (13a where nothing else is known of it)."""
    task: TaskName = "translation"
    """What is learnt; says by what metric greedy outputs are validated."""


STAGE: Stage[TrainInputs, TrainConfig, Trained] = Stage(
    name="train", version=3, run=Implementation(__name__), output=Trained, distributes=True, trains=True
)
