"""The files of a training: checkpoints, candidates and results."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import nn

import durable
from fewstep.config.network import Sizes
from models.bundle.directory import save_model
from models.bundle.weights import save_weights
from models.training import averaging, checkpoint
from models.training.averaging import Validation
from models.training.batch import Position
from models.training.checkpoint import Checkpoint
from models.training.finite import not_finite
from models.training.optimizer import Optimizer
from models.training.parallel import broadcast
from models.training.worker import TrainingWorker
from stages.artifacts import CHECKPOINTS
from stages.context import Context
from stages.errors import ArtifactError, unwritable
from stages.train import TrainConfig

START = Position()
MOMENTS_SINCE = "moments_since"
"""Key of a checkpoint's state with `Progress.moments_since`, if it is not 0."""


@dataclass(frozen=True)
class Progress:
    """Progress of a training: updates, position in the stream of batches, and validations."""

    update: int = 0
    position: Position = START
    validations: tuple[Validation, ...] = ()
    num_shares: int = 1
    """Number of shares of each batch, which stays that of the first attempt, whatever the number of workers."""
    moments_since: int = 0
    """The update of the checkpoint that was left without the moments of the optimiser; 0 if none was."""


class TrainingFiles:
    """The files of one training. Only the first worker writes."""

    def __init__(self, context: Context, config: TrainConfig) -> None:
        self._context = context
        self._config = config.training
        self._owner = context.directory.name.partition("-")[0]  # the step's fingerprint: its inputs, config and version
        self.directory = context.directory / CHECKPOINTS
        self.candidates = self.directory / "candidates"

    def candidate(self, update: int) -> Path:
        """Return the file with the weights after an update."""
        return self.candidates / f"{update}.safetensors"

    def save_candidate(self, update: int, model: nn.Module) -> None:
        """Write the current weights as a candidate. Raises StageError when the disk is full."""
        path = self.candidate(update)
        try:
            durable.make_directory(self.candidates)
            durable.write_whole(path, lambda temporary: save_weights(temporary, model.state_dict()), self._context.temporary(path))
        except OSError as error:
            raise unwritable(path, error) from error

    def save(self, progress: Progress, model: nn.Module, optimizer: Optimizer) -> None:
        """Write a checkpoint and delete candidates that no checkpoint needs. Raises StageError when the disk is full."""
        state = {
            "step": self._owner,
            "update": progress.update,
            "num_shares": progress.num_shares,
            "position": list(progress.position),
            "validations": [list(validation) for validation in progress.validations],
            **({MOMENTS_SINCE: progress.moments_since} if progress.moments_since else {}),
        }
        try:
            checkpoint.save(self.directory, Checkpoint(model.state_dict(), optimizer.state(), state), self._context.attempt)
        except OSError as error:
            raise unwritable(self.directory / str(progress.update), error) from error
        self._drop_candidates()

    def _drop_candidates(self) -> None:
        needed: set[int] = set()
        for state in checkpoint.states(self.directory):
            needed.update(self.wanted([Validation(*values) for values in state["validations"]]))
        for path in self.candidates.glob("*.safetensors"):
            if int(path.stem) not in needed:
                path.unlink()

    def wanted(self, validations: Sequence[Validation]) -> list[int]:
        """Return the updates of the candidates that the results need: averaged ones, the last, and optionally the first."""
        ends = [*validations[-1:], *(validations[:1] if self._config.keep_first else ())]
        return sorted({*averaging.kept(self._config, validations), *(validation.update for validation in ends)})

    def resume(self, model: nn.Module, optimizer: Optimizer, training_worker: TrainingWorker) -> Progress:
        """Load the newest complete checkpoint, the same on every worker, and return its progress.

        Raises ArtifactError when it belongs to another training, or when its weights are not finite.
        """
        found = checkpoint.newest(self.directory) if training_worker.rank == 0 else None
        (update,) = broadcast(training_worker, [found.state["update"] if found else 0])
        num_shares = self._context.num_shares or training_worker.world_size
        if update == 0:
            return Progress(num_shares=num_shares)
        found = found or checkpoint.load(self.directory, update)
        if found.state["step"] != self._owner:
            raise ArtifactError(
                f"{self.directory / str(update)}: this checkpoint belongs to a training with other inputs or another config "
                f"(expected that of {self._owner}, got that of {found.state['step']}); remove {self.directory} to start again"
            )
        if names := not_finite(found.model):
            raise ArtifactError(
                f"{self.directory / str(update)}: expected finite weights, got inf or NaN in {', '.join(names[:3])}; "
                f"remove {self.directory} to start again"
            )
        model.load_state_dict(found.model)
        optimizer.load(found.optimizer)
        optimizer.moments_since = int(found.state.get(MOMENTS_SINCE, 0))
        validations = tuple(Validation(*values) for values in found.state["validations"])
        return Progress(
            update, Position(*found.state["position"]), validations, int(found.state["num_shares"]), optimizer.moments_since
        )

    def finish(self, progress: Progress, config: TrainConfig, sizes: Sizes, facts: dict[str, Any]) -> None:
        """Average the candidates and write the results of the stage.

        Raises StageError when the disk is full, NotFiniteError when a mean of weights is not finite.
        """
        directory = self._context.directory
        averaged = averaging.kept(self._config, progress.validations)
        try:
            shutil.rmtree(directory / "kept", ignore_errors=True)
            (directory / "kept").mkdir(parents=True)
            kept = {f"kept/{update}.safetensors": self.candidate(update) for update in self.wanted(progress.validations)}
            for name, candidate in kept.items():
                shutil.copyfile(candidate, directory / name)
            weights = averaging.mean([load_file(self.candidate(update)) for update in averaged])
            save_model(directory, config.family, config.network, sizes, weights, list(kept))
            epoch = progress.position.epoch
            report = {
                "updates": progress.update,
                **({"curriculum_stage": epoch + 1} if config.training.curriculum else {"epochs": epoch}),
                "averaged": averaged,
                "stopped_early": progress.update < self._config.updates,
                "validations": [
                    {"update": found.update, "loss": found.loss, config.metric: found.quality} for found in progress.validations
                ],
                **facts,
            }
            self._context.write_json(directory / "training.json", report)
        except OSError as error:
            raise unwritable(directory, error) from error
