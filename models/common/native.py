"""Networks of torch as arrays for `fewstep` networks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fewstep.system.networks import named_arrays
from models.common.layers.backbone import Backbone

if TYPE_CHECKING:
    from fewstep_native import F32

    from fewstep.config.network import NetworkConfig
    from fewstep.system.networks import Arrays


@torch.no_grad()
def native_arrays(model: Backbone) -> Arrays:
    """Return the weights and the codes of a network on the CPU, as `fewstep.system.networks.read_network` reads them.

    They share the memory of the weights.
    """
    weights, codes = ({name: tensor.numpy() for name, tensor in part.items()} for part in (model.state_dict(), model.codes()))
    return named_arrays(weights, codes)


def arrays_of(model: Backbone, config: NetworkConfig) -> dict[str, F32]:
    """Return the stacks, the embeddings, and the position codes of sources, named as in `fewstep.Transformer`."""
    return native_arrays(model)
