"""The step that trains a network."""

from __future__ import annotations

from models.stepwise.system import StepwiseTeacher
from models.training.recipe import TrainedSystem
from pipeline.plan import stage_configs
from pipeline.plan.flow import Encoded, Flow, TrainingData
from stages import train
from stages.artifacts import System, Tables, Trained


def train_network(
    flow: Flow,
    name: str,
    settings: StepwiseTeacher | TrainedSystem,
    encoded: Encoded,
    data: TrainingData,
    initial: Trained | System | None = None,
    tables: Tables | None = None,
    verifier: System | None = None,
) -> Trained:
    """Train the network of a teacher or system on `data`. It starts from `initial`, or from random weights."""
    inputs = train.TrainInputs(data, encoded.validation, encoded.texts.validation, encoded.vocabulary, initial, tables, verifier)
    return flow.steps.add(train.STAGE, name, inputs, stage_configs.train_config(flow.config, settings))
