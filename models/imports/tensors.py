"""Weights of other toolkits: safe reading, shapes, and the names that fairseq and Hugging Face share.

D width, F inner width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from fewstep.config.network import NetworkConfig
from fewstep.system.format import BundleError
from fewstep.system.networks import check_header
from models.imports.files import ForeignModelError
from models.imports.pickles import check_checkpoint, check_tensors

NORMS = {"self_attn_layer_norm": "attention_residual.norm", "final_layer_norm": "feed_forward_residual.norm"}
MAPS = {"self_attn.out_proj": "attention.output", "fc1": "feed_forward.widen", "fc2": "feed_forward.narrow"}
CROSS_NORMS = {"encoder_attn_layer_norm": "cross_attention_residual.norm"}
CROSS_MAPS = {"encoder_attn.q_proj": "cross_attention.queries", "encoder_attn.out_proj": "cross_attention.output"}
"""Blocks of a layer by their foreign names."""
PARTS = ("weight", "bias")


class ForeignTensors:
    """Tensors by name, each of which has to be taken once."""

    def __init__(self, tensors: Mapping[str, Tensor], described_by: str) -> None:
        """`described_by` names the file that the shapes follow from."""
        self._tensors = dict(tensors)
        self._described_by = described_by

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Remove and return a tensor in float32. Raises ForeignModelError if it is missing or has another shape."""
        if name not in self._tensors:
            raise ForeignModelError(f"{name}: expected a tensor {list(shape)} by {self._described_by}, got none")
        tensor = self._tensors.pop(name)
        if tuple(tensor.shape) != shape:
            raise ForeignModelError(f"{name}: expected {list(shape)} by {self._described_by}, got {list(tensor.shape)}")
        if not torch.is_floating_point(tensor) or not bool(torch.isfinite(tensor).all()):
            found = "inf or NaN" if torch.is_floating_point(tensor) else tensor.dtype
            raise ForeignModelError(f"{name}: expected finite floating-point numbers, got {found}; copy the file again")
        return tensor.float()

    def take_rows(self, name: str, rows: int, width: int) -> Tensor:
        """Remove a table with at least a number of rows, and return these [rows,width]. Raises ForeignModelError as `take` does."""
        found = len(self._tensors[name]) if name in self._tensors else 0
        return self.take(name, (max(rows, found), width))[:rows]

    def check_alias(self, name: str, original: str, expected: Tensor, reason: str) -> None:
        """Remove a tensor, if it is there, that must equal another one."""
        if name not in self._tensors:
            return
        found = self.take(name, tuple(expected.shape))
        if different := int((found != expected).any(-1).sum()):
            raise ForeignModelError(f"{name}: expected equal to {original} ({reason}), {different} rows differ")

    def drop(self, *names: str) -> None:
        """Remove tensors that hold nothing."""
        for name in names:
            self._tensors.pop(name, None)

    def finish(self) -> None:
        """Raise ForeignModelError if a tensor is left, since its part of the computation would be missing."""
        if self._tensors:
            names = sorted(self._tensors)
            raise ForeignModelError(
                f"{', '.join(names[:5])}: expected no such tensor in this architecture, got {len(names)} in all"
            )


def layer_weights(tensors: ForeignTensors, prefix: str, config: NetworkConfig) -> dict[str, Tensor]:
    """Take the tensors of all layers, and return them by the names of fewstep.

    Queries, keys and values are rows of one projection, in this order; with cross-attention, keys and values are. Raises
    ForeignModelError.
    """
    found: dict[str, Tensor] = {}
    for stack, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for layer in range(layers):
            foreign = f"{prefix}{stack}.layers.{layer}."
            own = f"{stack}.layers.{layer}."
            found |= _blocks(tensors, foreign, own, config, decoder=stack == "decoder")
    return found


def _blocks(tensors: ForeignTensors, foreign: str, own: str, config: NetworkConfig, *, decoder: bool) -> dict[str, Tensor]:
    width, inner = config.width, config.feed_forward
    shapes = {"fc1": (inner, width), "fc2": (width, inner)}
    norms, maps = (NORMS | CROSS_NORMS, MAPS | CROSS_MAPS) if decoder else (NORMS, MAPS)
    found = {f"{own}{to}.{part}": tensors.take(f"{foreign}{name}.{part}", (width,)) for name, to in norms.items() for part in PARTS}
    for name, to in maps.items():
        outputs, inputs = shapes.get(name, (width, width))
        found[f"{own}{to}.weight"] = tensors.take(f"{foreign}{name}.weight", (outputs, inputs))
        found[f"{own}{to}.bias"] = tensors.take(f"{foreign}{name}.bias", (outputs,))
    projections = {"attention": ("self_attn", "qkv"), "cross_attention": ("encoder_attn", "kv")}
    for to, (block, letters) in projections.items() if decoder else [("attention", projections["attention"])]:
        for part, shape in (("weight", (width, width)), ("bias", (width,))):
            rows = [tensors.take(f"{foreign}{block}.{letter}_proj.{part}", shape) for letter in letters]
            found[f"{own}{to}.projection.{part}"] = torch.cat(rows)
    return found


def foreign_layers(state: Mapping[str, Tensor], prefix: str, config: NetworkConfig) -> dict[str, Tensor]:
    """Return the tensors of all layers by their foreign names: the inverse of `layer_weights`."""
    found: dict[str, Tensor] = {}
    for stack, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        blocks = NORMS | MAPS | (CROSS_NORMS | CROSS_MAPS if stack == "decoder" else {})
        projections = {"self_attn": ("attention", "qkv")} | (
            {"encoder_attn": ("cross_attention", "kv")} if stack == "decoder" else {}
        )
        for own, foreign in ((f"{stack}.layers.{layer}.", f"{prefix}{stack}.layers.{layer}.") for layer in range(layers)):
            for part in PARTS:
                found |= {f"{foreign}{name}.{part}": state[f"{own}{to}.{part}"] for name, to in blocks.items()}
                for block, (to, letters) in projections.items():
                    rows = state[f"{own}{to}.projection.{part}"].chunk(len(letters))
                    found |= {f"{foreign}{block}.{letter}_proj.{part}": row for letter, row in zip(letters, rows, strict=True)}
    return found


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file or of a pickle of tensors, from which no code runs. Raises ForeignModelError."""
    try:
        if path.suffix == ".safetensors":
            check_header(path)
        loaded = dict(load_file(path)) if path.suffix == ".safetensors" else load_pickle(path)
    except BundleError as error:
        raise ForeignModelError(str(error)) from error
    except (OSError, SafetensorError, ValueError) as error:
        if isinstance(error, ForeignModelError):
            raise
        raise ForeignModelError(f"{path.name}: expected weights as safetensors, got: {error}; copy the file again") from error
    if not isinstance(loaded, dict) or not all(isinstance(value, Tensor) for value in loaded.values()):
        raise ForeignModelError(f"{path.name}: expected tensors by name, got {type(loaded).__name__}")
    check_tensors(path, loaded)
    return {str(name): value for name, value in loaded.items()}


def load_pickle(path: Path, allowed: Sequence[Any] = (), kinds: str = "tensors") -> Any:
    """Return the content of a file of `torch.save` without running code.

    `allowed` are the classes that it may name besides tensors and plain values, or pairs of a class and the full name that it
    stands for; `kinds` describes the content for errors. Raises ForeignModelError for any other class or function, for values
    without end and storages that the file does not hold, before anything of them is built, and for other files.
    """
    names = [one[1] if isinstance(one, tuple) else f"{one.__module__}.{one.__qualname__}" for one in allowed]
    try:
        check_checkpoint(path, names, kinds)
        with torch.serialization.safe_globals(list(allowed)):
            return torch.load(path, map_location="cpu", weights_only=True)
    except ForeignModelError:
        raise
    except (OSError, RuntimeError, ValueError, EOFError, KeyError) as error:
        raise ForeignModelError(f"{path.name}: expected a file of torch.save, got: {error!s:.200}; copy the file again") from error
    except Exception as error:  # the error for refused globals belongs to a module that this project does not import
        raise ForeignModelError(f"{path.name}: {refused(error)}; only {kinds} are read") from error


def refused(error: Exception) -> str:
    """Return which global of a pickle was refused, from PyTorch's message."""
    for line in str(error).splitlines():
        for before in ("Unsupported global: GLOBAL ", "Trying to load unsupported GLOBAL "):
            if before in line:
                return f"refused global {line.split(before)[1].split()[0]}"
    cause = str(error).partition("WeightsUnpickler error:")[2] or str(error)  # without the advice to trust the file
    return f"expected a pickle of tensors, got: {cause.strip().partition(chr(10))[0]:.200}"
