"""Files of networks: a JSON description (family, config, vocabulary sizes) and safetensors with the weights."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from fewstep.access import utf8_name
from fewstep.config.network import NetworkConfig, Sizes
from fewstep.system.format import WEIGHTS, BundleError, require_file
from fewstep.system.networks import MISFIT, check_weights, network_of, sizes_of
from models.common.layers.backbone import Backbone
from models.family import family_named
from models.training.finite import not_finite


def describe(family: str, network: Any, sizes: Sizes) -> dict[str, Any]:
    """Return the description from which `make_model` builds a network. `network` is the family's config dataclass or an equal
    mapping."""
    config = asdict(network) if isinstance(network, NetworkConfig) else dict(network)
    return {"family": family, "network": config, "sizes": sizes._asdict()}


def make_model(directory: Path, description: Mapping[str, Any], device: str, weights: str = WEIGHTS) -> nn.Module:
    """Build the network of a description with the weights in `directory`, in evaluation mode. Raises BundleError."""
    where = directory / weights
    try:
        family = family_named(description["family"])
    except ValueError as error:
        raise BundleError(f"{directory}: {error}") from error
    config = network_of(directory, description, family.network)
    sizes = sizes_of(directory, description)
    check_weights(where, config, sizes)
    try:
        model = family.functions.build(config, sizes)
    except ValueError as error:
        raise BundleError(f"{directory}: this version cannot build the network that is described there: {error}") from error
    load_weights(where, model)
    return model.to(device).eval()


def save_weights(path: Path, state: Mapping[str, Tensor], network: Mapping[str, Any] | None = None) -> None:
    """Write tensors by name together with the network's config, and sync them to the disk. Equal tensors give equal bytes.

    Raises OSError.
    """
    metadata = None if network is None else {"network": json.dumps(network, sort_keys=True)}
    path.touch()
    mode = path.stat().st_mode
    try:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}, path, metadata)
    except SafetensorError as error:
        raise _as_os_error(error, path) from error
    path.chmod(stat.S_IMODE(mode))  # safetensors writes a file for its user alone


def _as_os_error(error: SafetensorError, path: Path) -> OSError:
    """Convert an error of safetensors, which contains the system's error number only in its text: `... (os error 28)`."""
    number = str(error).rpartition("os error ")[2].rstrip(" )}\"'")
    code = int(number) if number.isdigit() else errno.EIO
    return OSError(code, os.strerror(code), str(path))


def load_weights(path: Path, model: nn.Module) -> None:
    """Load weights into `model`. Raises BundleError that names all tensors that are missing, unexpected or of another shape."""
    state = _read_weights(path)
    if problems := _misfits(model.state_dict(), state):
        raise BundleError(f"{path}: weights do not fit the described network: {'; '.join(problems)}; {MISFIT}")
    model.load_state_dict(state)


def _read_weights(path: Path) -> dict[str, Tensor]:
    require_file(path)
    try:
        with utf8_name(path) as name:
            state = cast(dict[str, Tensor], load_file(name))
    except (OSError, SafetensorError, TypeError, ValueError) as error:
        raise BundleError(f"{path}: expected weights in safetensors format, but: {error}; the file is damaged") from error
    if names := not_finite(state):
        raise BundleError(f"{path}: expected finite weights, got inf or NaN in {', '.join(names[:3])}; train the network again")
    return state


def load_matching_weights(path: Path, model: nn.Module) -> int:
    """Load the tensors of a file whose name (or alias, `Backbone.init_aliases`) and shape match a tensor of `model`.

    Returns the number of weights that were loaded. Raises ValueError if no tensor matches, BundleError for a missing or damaged
    file.
    """
    state = model.state_dict()
    given = _read_weights(path)
    init_aliases = model.init_aliases() if isinstance(model, Backbone) else {}
    named = {name: given[other] for name in state if (other := init_aliases.get(name, name)) in given}
    found = {name: tensor for name, tensor in named.items() if tensor.shape == state[name].shape}
    if not found:
        raise ValueError(f"{path}: expected weights of the names and shapes of this network's, got none; start from random weights")
    model.load_state_dict({**state, **found})
    return sum(tensor.numel() for tensor in found.values())


def _misfits(expected: Mapping[str, Tensor], got: Mapping[str, Tensor]) -> list[str]:
    problems = []
    if missing := sorted(expected.keys() - got.keys()):
        problems.append(f"missing {', '.join(missing)}")
    if unexpected := sorted(got.keys() - expected.keys()):
        problems.append(f"unexpected {', '.join(unexpected)}")
    for name in sorted(expected.keys() & got.keys()):
        if expected[name].shape != got[name].shape:
            problems.append(f"{name}: expected shape {list(expected[name].shape)}, got {list(got[name].shape)}")
    return problems
