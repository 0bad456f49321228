"""What the kernels' copies of the networks of all families have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kernels import TransformerShape
from models.common.backbone import Backbone
from models.common.layers import Activation
from models.common.network import NetworkConfig

if TYPE_CHECKING:
    from fewstep_native import F32


def arrays_of(model: Backbone, config: NetworkConfig) -> dict[str, F32]:
    """The stacks, the tables of words, and the codes of a source's positions; the names are those of `kernels.Transformer`."""
    arrays = {name: values.numpy() for name, values in model.state_dict().items() if name.startswith(("encoder.", "decoder."))}
    arrays["target_embedding"] = model.target_embedding.weight.numpy()
    if model.source_embedding is not None:
        arrays["source_embedding"] = model.source_embedding.weight.numpy()
    arrays["source_positions"] = model.source_positions(torch.arange(config.max_positions)).numpy()
    return arrays


def shape_of(config: NetworkConfig, activation: Activation) -> TransformerShape:
    return TransformerShape(
        encoder_layers=config.encoder_layers,
        decoder_layers=config.decoder_layers,
        width=config.width,
        feed_forward=config.feed_forward,
        heads=config.heads,
        norm=config.norm,
        activation=activation,
    )
