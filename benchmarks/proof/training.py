"""The train stage as it runs in a proof: text that is too small for a network is refused, and weights are rounded to 16 bits."""

from __future__ import annotations

import json
import shutil

from torch import nn

from models.bundle.directory import load_model, save_model
from models.family import family_named
from stages.context import StepContext
from stages.errors import DataError
from stages.train import TrainConfig, TrainInputs
from stages.train.run import run
from stages.train.token_files import vocabulary_sizes

MAX_WEIGHTS_PER_TOKEN = 50
"""Weights of the layers for each target token of the text beyond which it is too small for a network: half of what Transformer-base
has on Multi30k, for which Wu et al. (2021) chose 4 + 4 layers of width 128."""


def train(inputs: TrainInputs, config: TrainConfig, context: StepContext) -> None:
    """Run the train stage. The weights that it leaves can be stored in 16 bits without a change, and only those are left: an
    artifact that travels is the one that was decoded. Raises DataError for text that is too small, and what the stage raises."""
    refuse_small_text(inputs, config)
    run(inputs, config, context)
    round_weights(inputs, config, context)


def refuse_small_text(inputs: TrainInputs, config: TrainConfig) -> None:
    """Raise DataError if the network has too many weights for its text."""
    tokens = sum(json.loads((part.path / "tokens.json").read_text(encoding="utf-8"))["target_tokens"] for part in inputs.tokens)
    model = family_named(config.family).functions.build(config.network, vocabulary_sizes(inputs.vocabulary))
    layers = (part for part in model.modules() if not isinstance(part, nn.Embedding))
    weights = sum(weight.numel() for part in layers for weight in part.parameters(recurse=False))
    if weights > MAX_WEIGHTS_PER_TOKEN * tokens:
        raise DataError(
            f"training: expected a text of {weights // MAX_WEIGHTS_PER_TOKEN:,} target tokens or more for layers of {weights:,} "
            f"weights, got {tokens:,}; choose a smaller size, or more text"
        )


def round_weights(inputs: TrainInputs, config: TrainConfig, context: StepContext) -> None:
    """Round the weights of a finished training to 16 bits, and remove those of other updates."""
    directory = context.directory
    state = load_model(directory).state_dict()
    rounded = {name: tensor.half().to(tensor.dtype) for name, tensor in state.items()}
    shutil.rmtree(directory / "kept")
    save_model(directory, config.family, config.network, vocabulary_sizes(inputs.vocabulary), rounded)
