"""Run the train stage."""

from __future__ import annotations

from stages.context import StepContext
from stages.train import TrainConfig, TrainInputs
from stages.train.loop import Job, train


def run(inputs: TrainInputs, config: TrainConfig, context: StepContext) -> None:
    """Write the files of `Trained`. A rerun continues from the newest checkpoint and ends with the same bytes.

    Raises DataError for tokens that cannot be trained on and for a precision that the device does not support, StageError when the
    training diverges or the disk is full, and TransientError, with its state saved, when the step was asked to stop.
    """
    context.workers.train(train, Job(inputs, config, context.for_workers()))
