"""Train one network."""

from __future__ import annotations

from dataclasses import dataclass, field

from fewstep.config.network import NetworkConfig
from models.training.config import Infilling, TrainingConfig
from stages.artifacts import System, Tables, Text, Tokens, Trained, Vocabulary
from stages.shared.tasks import TaskName, validation_quality
from stages.stage import Implementation, Stage


@dataclass(frozen=True)
class TrainInputs:
    tokens: tuple[Tokens, ...]
    """Training tokens. Their shards form one list, which every epoch visits in a different order."""
    validation: Tokens
    validation_text: Text
    vocabulary: Vocabulary
    initial: Trained | System | None = None
    """Network whose weights initialise those with the same name and shape."""
    tables: Tables | None = None
    """Candidate tables with which validation decodes, for a family that uses them."""
    verifier: System | None = None
    """The system that verifies a drafter's drafts, where validation counts tokens a pass."""
    texts: dict[str, tuple[Tokens, ...]] = field(default_factory=dict)
    """The texts of the curriculum by name, in place of `tokens`; empty without one."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Network and recipe of one training."""

    family: str
    """Family of the network."""
    network: NetworkConfig
    """Sizes and options of the network, of the family's config type."""
    training: TrainingConfig
    """Recipe of the training."""
    target_language: str = ""
    """Language code of the target, which determines the tokeniser of validation BLEU (13a for most languages)."""
    task: TaskName = "translation"
    """Task of the training; determines the metric of greedy outputs in validation."""

    infilling: Infilling | None = None
    """Train on texts with masked spans, which are drawn from the sources of the tokens in each epoch. None: on the pairs
    themselves."""

    @property
    def metric(self) -> str:
        """Name of the metric of decoded validation outputs."""
        return validation_quality(self.training, self.task)


STAGE: Stage[TrainInputs, TrainConfig, Trained] = Stage(
    name="train", version=5, run=Implementation(__name__), output=Trained, distributes=True, trains=True
)
