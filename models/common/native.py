"""What the kernels' copies of the networks of all families have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch

from fewstep import TransformerShape
from models.common.backbone import Backbone
from models.common.layers import Activation
from models.common.network import NetworkConfig
from models.common.options import Precision, Shortlist

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


def kernel_precision(precision: Precision) -> Literal["fp32", "bf16", "int8"]:
    """Return the kernels' name of a precision. Raises ValueError for float16, which native code does not support."""
    match precision:
        case "float32":
            return "fp32"
        case "bfloat16":
            return "bf16"
        case "int8":
            return "int8"
    raise ValueError(f"precision: expected float32, bfloat16 or int8 in native code, got {precision}")


def shortlist_sizes(shortlist: Shortlist | None) -> dict[str, int]:
    """Return the kernels' options for a shortlist; none without one."""
    return {} if shortlist is None else {"shortlist_words": shortlist.tokens, "shortlist_links": shortlist.links}


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
