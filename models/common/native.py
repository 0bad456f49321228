"""Conversion of networks to the arrays and options of `fewstep` networks, for all families."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

import fewstep.networks.arrays
from fewstep import TransformerShape
from fewstep.config.network import NetworkConfig
from fewstep.config.options import Precision, Shortlist
from models.common.layers.backbone import Backbone
from models.common.layers.blocks import Activation

if TYPE_CHECKING:
    from fewstep_native import F32


def arrays_of(model: Backbone, config: NetworkConfig) -> dict[str, F32]:
    """Return the stacks, the embeddings, and the position codes of sources, named as in `fewstep.Transformer`."""
    arrays = {name: values.numpy() for name, values in model.state_dict().items() if name.startswith(("encoder.", "decoder."))}
    arrays["target_embedding"] = model.target_embedding.weight.numpy()
    if model.source_embedding is not None:
        arrays["source_embedding"] = model.source_embedding.weight.numpy()
    arrays["source_positions"] = model.source_positions(torch.arange(config.max_positions)).numpy()
    return arrays


def native_precision(precision: Precision) -> fewstep.networks.arrays.Precision:
    """Return a precision that native code supports. Raises ValueError for float16."""
    if precision == "float16":
        raise ValueError(f"precision: expected float32, bfloat16 or int8 in native code, got {precision}")
    return precision


def shortlist_sizes(shortlist: Shortlist | None) -> dict[str, int]:
    """Return the options of `fewstep` rules for a shortlist, which are empty without a shortlist."""
    return {} if shortlist is None else {"shortlist_tokens": shortlist.tokens, "shortlist_links": shortlist.links}


def shape_of(config: NetworkConfig, activation: Activation) -> TransformerShape:
    """Return the sizes of a network in the form that `fewstep` expects."""
    return TransformerShape(
        encoder_layers=config.encoder_layers,
        decoder_layers=config.decoder_layers,
        width=config.width,
        feed_forward=config.feed_forward,
        heads=config.heads,
        norm=config.norm,
        activation=activation,
    )
