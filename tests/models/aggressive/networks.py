"""Small random networks with sharp outputs, for several tests."""

import copy
import dataclasses
import random

import torch

from fewstep.config.network import Sizes
from fewstep.families.aggressive.config import AggressiveConfig
from fewstep.families.stepwise.config import StepwiseConfig
from models.aggressive.model import AggressiveModel
from models.aggressive.on_verifier import DraftHead, MedusaHeads
from models.aggressive.search import DraftAndVerify
from models.common.buffers import Inputs, Size
from models.stepwise.model import StepwiseModel

SIZES = {"encoder_layers": 2, "width": 32, "feed_forward": 24, "heads": 2, "dropout": 0.0, "max_positions": 40}
VERIFIER = StepwiseConfig(decoder_layers=2, **SIZES)
DRAFTER = AggressiveConfig(decoder_layers=1, draft_width=4, **SIZES)


def sharpen(model, seed):
    """Return a network whose large embeddings give sharp distributions that vary with the prefix."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, values in model.named_parameters():
            if name.endswith((".bias", "norm.weight")):
                values.add_(torch.randn_like(values) * 0.1)
        model.target_embedding.weight.mul_(2.0)
        if not isinstance(model, StepwiseModel):
            model.words.counts.copy_(torch.randperm(len(model.words.counts)))
    return model.eval()


def verifier_of(joint=True, seed=1, **changes):
    torch.manual_seed(seed)
    config = dataclasses.replace(VERIFIER, **changes)
    return sharpen(StepwiseModel(config, Sizes(23, 23 if joint else 19, joint), config.generation()), seed)


def drafter_of(joint=True, seed=2, **changes):
    torch.manual_seed(seed)
    return sharpen(AggressiveModel(dataclasses.replace(DRAFTER, **changes), Sizes(23, 23 if joint else 19, joint)), seed)


def sharing(verifier, **changes):
    """Return a drafter that reads the encoder of `verifier`."""
    return _lent(drafter_of(joint=verifier.sizes.joint, encoder="shared", **changes), verifier)


def head_of(verifier, seed=2, **changes):
    """Return a drafter that writes token after token, on top of `verifier`."""
    torch.manual_seed(seed)
    options = {"decoder_layers": 2, "drafting": "autoregressive", "encoder": "shared", **changes}
    model = DraftHead(dataclasses.replace(DRAFTER, **options), verifier.sizes)
    torch.nn.init.xavier_uniform_(model.features.weight)
    return _lent(sharpen(model, seed), verifier)


def heads_of(verifier, seed=2, **changes):
    """Return heads on top of `verifier`, with random weights."""
    torch.manual_seed(seed)
    options = {"decoder_layers": 2, "drafting": "medusa", "encoder": "shared", **changes}
    model = MedusaHeads(dataclasses.replace(DRAFTER, **options), verifier.sizes)
    torch.nn.init.xavier_uniform_(model.medusa.weight, gain=3.0)
    return _lent(sharpen(model, seed), verifier)


def near(network, noise=0.1, seed=5):
    """Return a network with other weights that often, and not always, predicts the same."""
    other = copy.deepcopy(network)
    torch.manual_seed(seed)
    with torch.no_grad():
        for values in other.parameters():
            values.add_(torch.randn_like(values) * noise * values.std())
    return other


def _lent(model, verifier):
    taken = verifier.state_dict()
    model.load_state_dict({**model.state_dict(), **{name: taken[name] for name in model.shared_parameters()}})
    return model


def sources(count, longest=9, seed=0):
    draw = random.Random(seed)
    return [[draw.randrange(7, 19) for _ in range(draw.randrange(longest + 1))] for _ in range(count)]


def draft_and_verify(verifier, drafter, search, width, limits, inputs=None):
    """Decode to the end, and return the state. `limits` are maximum lengths, and `inputs` the batch if a part reads it."""
    size = Size(len(limits), 1 if inputs is None else inputs.source.size(1), int(limits.max()))
    made = DraftAndVerify(verifier, drafter, search, size, width, torch.device("cpu"))
    nothing = torch.zeros(len(limits), 1, dtype=torch.int64)
    made.start(Inputs(nothing, nothing[:, 0], limits) if inputs is None else inputs)
    while needed := int(made.needed.max()):
        made.passes[needed - 1]()
    return made.state
