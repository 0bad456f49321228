"""The networks of a system directory as arrays.

A folder with a network holds `model.safetensors`, its weights by the names that training gives them, and `codes.safetensors`,
tensors that are computed from the config and the weights once, when the system is written: codes of positions and products of
weights with them. Both sides of the project read the same bytes, so that no result depends on the library that computed them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fewstep.config.network import NetworkConfig, Sizes
from fewstep.config.problems import refuse
from fewstep.config.values import config_of
from fewstep.networks.arrays import TransformerShape
from fewstep.system.format import CODES, WEIGHTS, BundleError, json_object, require_file
from fewstep.system.integrity import REMEDY

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = dict[str, NDArray[Any]]

MISFIT = "the parts do not belong together: copy or make the directory again"
"""The remedy for weights of another network than the described one."""

RENAMED = {f"{name}.weight": name for name in ("target_embedding", "source_embedding", "vertex_inputs")}
RENAMED |= {"length.weight": "lengths"}
"""Names of arrays in `fewstep.Transformer`, by those of the weights; all others are equal."""

LOGITS_BIAS = "logits_bias"
"""Name of the bias of the logits [V], in weights and in arrays."""

SIZE_TYPES = {"source": int, "target": int, "joint": bool}


def network_of(directory: Path, description: Mapping[str, Any], kind: type[NetworkConfig]) -> NetworkConfig:
    """Return the config of a system's network. Raises BundleError for one that is not valid or that this version does not know."""
    try:
        config = config_of(kind, description["network"])
        refuse(config.problems())
        return config
    except ValueError as error:
        raise BundleError(f"{directory}: this version cannot build the network that is described there: {error}") from error


def sizes_of(directory: Path, description: Mapping[str, Any]) -> Sizes:
    """Return the vocabulary sizes of a system. Raises BundleError if the description does not hold them."""
    values = description["sizes"]
    types = {name: type(value) for name, value in values.items()}
    if types != SIZE_TYPES or min(values["source"], values["target"]) < 1:
        raise BundleError(f"{directory}: expected sizes of two vocabularies and joint, got {values!r:.200}; {REMEDY}")
    return Sizes(**values)


def read_network(folder: Path, config: NetworkConfig, sizes: Sizes) -> Arrays:
    """Return the arrays of the network in `folder`, named as in `fewstep.Transformer`, with all others of the two files.

    Raises BundleError for files that are missing or damaged, and for weights of another network than `config` or of vocabularies
    of other sizes.
    """
    check_weights(folder / WEIGHTS, config, sizes)
    codes = read_header(folder / CODES).shapes.get("source_positions", ())
    if codes != (expected := (config.max_positions, config.width)):
        raise BundleError(f"{folder / CODES}: source_positions: expected {list(expected)}, got {list(codes)}; {REMEDY}")
    arrays = named_arrays(read_arrays(folder / WEIGHTS), read_arrays(folder / CODES))
    _check_rows(folder / WEIGHTS, arrays, sizes)
    _check_finite(folder / WEIGHTS, arrays)
    return arrays


MAX_HEADER_BYTES = 16 << 20
"""Bytes of the header of a safetensors file: a tensor takes about 100."""


class Header(NamedTuple):
    """The header of a safetensors file."""

    shapes: dict[str, tuple[int, ...]]
    """The shapes of its tensors by name."""
    trained: dict[str, Any] | None
    """The config of the network that the weights were trained as, if it is stored."""


def read_header(path: Path) -> Header:
    """Return the header of a safetensors file; no tensor is read. Raises BundleError for any other file."""
    from safetensors import SafetensorError, safe_open

    check_header(path)
    try:
        with safe_open(path, "np") as file:
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 it is no mapping
            network = (file.metadata() or {}).get("network")
        return Header(shapes, None if network is None else json_object(network))
    except (OSError, RecursionError, SafetensorError, TypeError, ValueError) as error:
        raise BundleError(f"{path}: expected weights in safetensors format, but: {error}; {REMEDY}") from error


def check_header(path: Path) -> None:
    """Raise BundleError for a missing file, and for a header that names millions of tensors."""
    require_file(path)
    try:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
    except OSError as error:
        raise BundleError(f"{path}: expected weights in safetensors format, but: {error}; {REMEDY}") from error
    if size > MAX_HEADER_BYTES:
        raise BundleError(f"{path}: expected a header of at most {MAX_HEADER_BYTES:,} bytes, got {size:,}; {REMEDY}")


def read_arrays(path: Path) -> Arrays:
    """Return the tensors of a safetensors file by name. Raises BundleError for any other file."""
    from safetensors import SafetensorError, safe_open

    check_header(path)
    try:
        with safe_open(path, "np") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 it is no mapping
    except (OSError, SafetensorError, TypeError, ValueError) as error:
        raise BundleError(f"{path}: expected weights in safetensors format, but: {error}; {REMEDY}") from error


def check_weights(path: Path, config: NetworkConfig, sizes: Sizes) -> None:
    """Compare the header of a file of weights with the config of a network, before the network is built or a tensor is read.

    Raises BundleError for weights that were trained as another network, and for fewer weights than the network has.
    """
    header = read_header(path)
    if header.trained is not None:
        check_trained(path, network_of(path, {"network": header.trained}, type(config)), config)
    given = sum(map(math.prod, header.shapes.values()))
    needed = config.fewest_weights(sizes)
    if given < needed:
        raise BundleError(
            f"{path}: weights do not fit the described network: expected at least {needed} numbers, got {given}; {MISFIT}"
        )


def named_arrays(weights: Mapping[str, Any], codes: Mapping[str, Any]) -> Arrays:
    """Return weights and codes as arrays for a network of `fewstep`."""
    return {RENAMED.get(name, name): array for name, array in weights.items()} | dict(codes)


def check_trained(path: Path, trained: NetworkConfig, described: NetworkConfig) -> None:
    """Raise BundleError if weights were trained with another config: they may fit a network that interprets them in another way."""
    pairs = ((f.name, getattr(trained, f.name), getattr(described, f.name)) for f in fields(trained))
    if differences := [f"{name}: trained as {was!r}, described as {now!r}" for name, was, now in pairs if was != now]:
        raise BundleError(
            f"{path}: expected weights of the described network, got those of another: {'; '.join(differences)}; {MISFIT}"
        )


def shape_of(config: NetworkConfig) -> TransformerShape:
    """Return the sizes of a network in the form that native networks expect."""
    return TransformerShape(
        encoder_layers=config.encoder_layers,
        decoder_layers=config.decoder_layers,
        width=config.width,
        feed_forward=config.feed_forward,
        heads=config.heads,
        norm=config.norm,
        activation=config.activation,
        scale_embeddings=config.scale_embeddings,
        logits_bias=has_logits_bias(config),
    )


def has_logits_bias(config: NetworkConfig) -> bool:
    """Return whether a network has the array `logits_bias`. Not all families have the option."""
    return bool(getattr(config, LOGITS_BIAS, False))


def _check_finite(path: Path, arrays: Arrays) -> None:
    import numpy as np

    # A bias of minus infinity excludes a token.
    wrong = {
        name: np.isnan(array) | (array == np.inf) if name == LOGITS_BIAS else ~np.isfinite(array) for name, array in arrays.items()
    }
    if names := [name for name, found in wrong.items() if found.any()]:
        raise BundleError(f"{path}: expected finite weights, got inf or NaN in {', '.join(names[:3])}; train the network again")


def _check_rows(path: Path, arrays: Arrays, sizes: Sizes) -> None:
    wanted = {"target_embedding": sizes.target} | ({} if sizes.joint else {"source_embedding": sizes.source})
    problems = [
        f"{name}: expected {rows} rows, got {len(arrays[name]) if name in arrays else 'none'}"
        for name, rows in wanted.items()
        if name not in arrays or len(arrays[name]) != rows
    ]
    if LOGITS_BIAS in arrays and arrays[LOGITS_BIAS].shape != (sizes.target,):
        problems.append(f"{LOGITS_BIAS}: expected [{sizes.target}], got {list(arrays[LOGITS_BIAS].shape)}")
    if sizes.joint and "source_embedding" in arrays:
        problems.append("source_embedding: expected none with a joint vocabulary")
    if problems:
        raise BundleError(f"{path}: weights do not fit the described network: {'; '.join(problems)}; {MISFIT}")
