"""Small random networks with an opinion, and what several tests ask of them."""

import dataclasses
import random

import torch

from models.aggressive.config import AggressiveConfig
from models.aggressive.model import AggressiveModel
from models.family import Sizes
from models.stepwise.config import StepwiseConfig
from models.stepwise.model import StepwiseModel

SIZES = {"encoder_layers": 2, "width": 32, "feed_forward": 24, "heads": 2, "dropout": 0.0, "max_positions": 40}
VERIFIER = StepwiseConfig(decoder_layers=2, **SIZES)
DRAFTER = AggressiveConfig(decoder_layers=1, draft_width=4, **SIZES)


def sharpen(model, seed):
    """Large embeddings make sharp distributions that vary with the prefix."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, values in model.named_parameters():
            if name.endswith((".bias", "norm.weight")):
                values.add_(torch.randn_like(values) * 0.1)
        model.target_embedding.weight.mul_(2.0)
    return model.eval()


def verifier_of(joint=True, seed=1, **changes):
    torch.manual_seed(seed)
    config = dataclasses.replace(VERIFIER, **changes)
    return sharpen(StepwiseModel(config, Sizes(23, 23 if joint else 19, joint), config.generation()), seed)


def drafter_of(joint=True, seed=2, **changes):
    torch.manual_seed(seed)
    return sharpen(AggressiveModel(dataclasses.replace(DRAFTER, **changes), Sizes(23, 23 if joint else 19, joint)), seed)


def sharing(verifier, **changes):
    """A drafter that reads the encoder of `verifier`."""
    model = drafter_of(joint=verifier.sizes.joint, encoder="shared", **changes)
    state, taken = model.state_dict(), verifier.state_dict()
    table = "target_embedding." if verifier.sizes.joint else "source_embedding."
    shared = [name for name in state if name.startswith(("encoder.", "source_positions.", table))]
    model.load_state_dict({**state, **{name: taken[name] for name in shared}})
    return model


def sources(count, longest=9, seed=0):
    draw = random.Random(seed)
    return [[draw.randrange(7, 19) for _ in range(draw.randrange(longest + 1))] for _ in range(count)]
