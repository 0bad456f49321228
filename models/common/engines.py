"""The engines of a decoder, which decode the same search in different ways, and the choice among them.

An engine has a method `search` with the parameters that its family prepares. It may have a method `unsupported`, which yields the
reasons why it cannot run a search that is valid for the network. The native engine is the decoder of the runtime, not wrapped; it
has the weights of the network of torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn

from fewstep.config.network import NetworkConfig
from fewstep.config.problems import Problem, refuse
from fewstep.system.networks import named_arrays
from models.common.layers.backbone import Backbone

if TYPE_CHECKING:
    from fewstep.system.networks import Arrays

AUTOMATIC = ("native", "torch")
"""The engines among which the option `engine: auto` chooses, in order of preference."""

E = TypeVar("E")
N = TypeVar("N")


def engines_of(
    torch_engine: E, network: nn.Module, config: NetworkConfig, make_native: Callable[[], N], *, frozen: bool, native: N | None
) -> dict[str, E | N]:
    """Return the engines of a network by name: torch, and the runtime's decoder if it can decode.

    `native` is that decoder if it was loaded; otherwise `make_native` copies the weights. These must be on the CPU and must not
    change any more (`frozen`), and native code must have all parts of `config`.
    """
    engines: dict[str, E | N] = {"torch": torch_engine}
    if frozen and not config.needs_torch and next(network.parameters()).device.type == "cpu":
        engines["native"] = native or make_native()
    return engines


def choose_engine(engines: Mapping[str, E], search: Any) -> E:
    """Return the engine that a search names or, for `auto`, the first of `AUTOMATIC` that can run it.

    Raises ValueError, with the reasons, if none of the decoder's `engines` can.
    """
    names = [name for name in AUTOMATIC if name in engines] if search.engine == "auto" else [search.engine]
    problems: list[Problem] = []
    for name in names:
        if name not in engines:
            refuse([Problem(("engine",), f"auto or one of {', '.join(engines)} for this network", name)])
        unsupported = getattr(engines[name], "unsupported", None)
        found = [] if unsupported is None else list(unsupported(search))
        if not found:
            return engines[name]
        problems += found
    refuse(problems)
    raise AssertionError("an engine without problems was not chosen")


@torch.no_grad()
def native_arrays(model: Backbone) -> Arrays:
    """Return the weights and the codes of a network on the CPU, as `fewstep.system.networks.read_network` reads them.

    They share the memory of the weights.
    """
    weights, codes = ({name: tensor.numpy() for name, tensor in part.items()} for part in (model.state_dict(), model.codes()))
    return named_arrays(weights, codes)
