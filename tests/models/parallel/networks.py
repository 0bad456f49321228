"""Small networks and pairs that several tests share."""

import dataclasses

import torch

from fewstep.config.network import Sizes
from fewstep.families.parallel.config import ParallelConfig
from models.parallel.model import ParallelModel
from models.training.batch import collate

SMALL = ParallelConfig(
    width=16, feed_forward=24, heads=2, encoder_layers=1, decoder_layers=2, dropout=0.0, max_positions=40, objective="nat"
)
SIZES = Sizes(16, 16, True)
OBJECTIVES = ("nat", "glat", "ctc", "ctc-glat", "cmlm")
PAIRS = [([8, 9, 10], [7, 11]), ([7], [12]), ([12, 13], [9, 9, 8]), ([11, 14, 15, 7, 8], [10, 3, 12, 9])]


def network(sizes=SIZES, **changes):
    """Return an untrained network with an opinion, in evaluation mode."""
    torch.manual_seed(0)
    model = ParallelModel(dataclasses.replace(SMALL, **changes), sizes).eval()
    with torch.no_grad():
        for name, values in model.named_parameters():
            if name.endswith((".bias", "norm.weight")):
                values.add_(torch.randn_like(values) * 0.1)
        model.target_embedding.weight.mul_(2.0)
        for layer in model.decoder.layers:  # outputs depend on the source and on the slot
            layer.cross_attention.output.weight.mul_(3.0)
            layer.cross_attention.queries.weight.mul_(6.0)
            layer.feed_forward.narrow.weight.mul_(4.0)
        if model.length is not None:  # outputs are about as long as sources
            near = torch.zeros(len(model.length.weight), 1)
            near[125:134] = 3.0
            model.length.weight.mul_(near)
    return model


def batch_of(pairs, ids=None):
    """Return a batch of pairs of source and target ids."""
    return collate(ids or range(len(pairs)), [source for source, _ in pairs], [target for _, target in pairs])
