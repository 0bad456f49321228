"""Train one network."""

from __future__ import annotations

from dataclasses import dataclass, replace

from models.training.config import TrainingConfig
from stages.artifacts import System, Tables, Text, Tokens, Trained, Vocabulary
from stages.families import Network
from stages.score.tasks import TaskName
from stages.stage import Stage, Work
from stages.workers import LocalWorkers


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
    network: Network
    """The network's sizes, of the family's config type."""
    training: TrainingConfig
    """The recipe."""
    target_language: str = ""
    """Language code of the target, for the tokeniser of validation BLEU (13a where nothing else is known of it)."""
    task: TaskName = "translation"
    """What is learnt; says by what metric greedy outputs are validated."""


def run(inputs: TrainInputs, config: TrainConfig, work: Work) -> None:
    """Write the files of `Trained`. A rerun continues from the newest checkpoint and ends with the same bytes.

    Raises DataError for tokens that cannot be trained on and for a precision that the device lacks, StageError when training
    diverges or the disk is full, TransientError when it was asked to stop (its state is then saved).
    """
    from stages.train.loop import Job, train

    work.workers.train(train, Job(inputs, config, replace(work, workers=LocalWorkers())))


STAGE = Stage(name="train", version=2, run=run, output=Trained, distributes=True, trains=True)
