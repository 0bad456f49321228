"""Networks of torch as arrays for `fewstep` networks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fewstep.system.networks import named_arrays
from models.common.layers.backbone import Backbone

if TYPE_CHECKING:
    from fewstep.system.networks import Arrays


@torch.no_grad()
def native_arrays(model: Backbone) -> Arrays:
    """Return the weights and the codes of a network on the CPU, as `fewstep.system.networks.read_network` reads them.

    They share the memory of the weights.
    """
    weights, codes = ({name: tensor.numpy() for name, tensor in part.items()} for part in (model.state_dict(), model.codes()))
    return named_arrays(weights, codes)
