"""Small untrained networks of all orders, sources for them, and searches."""

import dataclasses
import random

import torch

from fewstep.config.network import Sizes
from fewstep.config.options import OutputLimits
from fewstep.families.stepwise.config import StepwiseConfig, StepwiseSearch
from fewstep.families.stepwise.orders import ORDERS, GenerationOrder
from models.stepwise.model import StepwiseModel

SMALL = StepwiseConfig(encoder_layers=1, decoder_layers=2, width=16, feed_forward=24, heads=2, dropout=0.0, max_positions=40)
WIDER = dataclasses.replace(SMALL, encoder_layers=2, width=32)
GREEDY = StepwiseSearch()


def network(order=None, vocabulary=12, sharpness=3.0, seed=0, **changes):
    """Untrained, but with an opinion: large embeddings make sharp distributions that vary with the prefix."""
    torch.manual_seed(seed)
    names = [name for name, named in ORDERS.items() if named == order]
    config = dataclasses.replace(SMALL, **({"order": names[0]} if names else {}), **changes)
    model = StepwiseModel(config, Sizes(vocabulary, vocabulary, True), order or GenerationOrder()).eval()
    with torch.no_grad():
        model.target_embedding.weight.mul_(sharpness)
    return model


def biased_network(order="autoregressive", joint=True, **changes):
    """As `network`, wider and with biases, over 23 tokens, or with 19 of its own for the target."""
    torch.manual_seed(1)
    config = dataclasses.replace(WIDER, order=order, **changes)
    model = StepwiseModel(config, Sizes(23, 23 if joint else 19, joint), config.generation()).eval()
    with torch.no_grad():
        for name, values in model.named_parameters():
            if name.endswith((".bias", "norm.weight")):
                values.add_(torch.randn_like(values) * 0.1)
        model.target_embedding.weight.mul_(2.0)
    return model


def sources(count, vocabulary=12, shortest=1, longest=6, seed=0):
    draw = random.Random(seed)
    return [[draw.randrange(7, vocabulary) for _ in range(draw.randrange(shortest, longest + 1))] for _ in range(count)]


def beams(size, **options):
    return StepwiseSearch(strategy="beam", beam_size=size, **options)


def short(**options):
    """Return greedy search with short limits, or with other options."""
    return StepwiseSearch(**{"output_limits": OutputLimits(max_extra_tokens=6), **options})


def short_beams(size, **options):
    return short(strategy="beam", beam_size=size, **options)


def mixed_sources(count, longest=9, seed=0):
    """Return sources of 23 tokens, some of them empty."""
    return sources(count, 23, 0, longest, seed)
