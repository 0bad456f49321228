"""Checkpoints of fairseq: tensors and options, read without fairseq and without running code.

A checkpoint is a pickled dictionary with `model`, the tensors by name, and the options as `cfg` (a dictionary) or `args` (a
Namespace); both may hold objects of fairseq's classes, of which nothing is read.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from models.imports.files import ForeignModelError, shown
from models.imports.pickles import check_tensors
from models.imports.tensors import load_pickle

METERS = ("AverageMeter", "TimeMeter", "StopwatchMeter", "MetersDict", "SumMeter")
OLD_NORMS = {
    "encoder": ("self_attn_layer_norm", "final_layer_norm"),
    "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
}
"""Names of the norms that versions before 0.6 numbered."""
STACKED = ".in_proj_"
"""Part of the names of projections to queries, keys and values in one tensor, as in versions before 0.7."""


class Opaque:
    """A stand-in for an object of a class of fairseq."""


ALLOWED = (
    Namespace,
    *((Opaque, f"{module}.{name}") for module in ("fairseq.meters", "fairseq.logging.meters") for name in METERS),
)
"""Classes that a checkpoint may name."""


@dataclass(frozen=True)
class Checkpoint:
    """The part of a checkpoint that describes a network."""

    options: dict[str, Any]
    """Options of the architecture, by name."""
    tensors: dict[str, Tensor]
    """Tensors by the names of fairseq's last release."""


def read_checkpoint(path: Path, settings: Callable[[Mapping[str, Tensor]], dict[str, Any] | None] | None = None) -> Checkpoint:
    """Return the options and tensors of a checkpoint; `settings` returns those of a file that holds tensors alone, or None if it
    does not know such tensors. Raises ForeignModelError for other files and for pickles that name code."""
    loaded = load_pickle(path, ALLOWED, "tensors and settings")
    if settings is not None and isinstance(loaded, Mapping) and all(isinstance(value, Tensor) for value in loaded.values()):
        check_tensors(path, loaded)
        if (options := settings(loaded)) is not None:
            return Checkpoint(options, {shown(name): value for name, value in loaded.items()})
    if not isinstance(loaded, Mapping) or not isinstance(loaded.get("model"), Mapping):
        raise ForeignModelError(f"{path.name}: expected a checkpoint of fairseq, with a key 'model', got {_described(loaded)}")
    if "shard_metadata" in loaded:
        raise ForeignModelError(f"{path.name}: expected a whole checkpoint, got a shard (fully_sharded); consolidate the shards")
    model = loaded["model"]
    if not all(isinstance(value, Tensor) for value in model.values()):
        raise ForeignModelError(f"{path.name}: model: expected tensors by name, got other values; copy the file again")
    check_tensors(path, model)
    return Checkpoint(_options(path.name, loaded), renamed({shown(name): value for name, value in model.items()}))


def _described(loaded: object) -> str:
    if isinstance(loaded, Mapping):
        return f"the keys {', '.join(sorted(map(shown, loaded))[:8]) or 'none'}"
    return type(loaded).__name__


def _options(name: str, loaded: Mapping[str, Any]) -> dict[str, Any]:
    settings = loaded.get("cfg")
    found = settings.get("model") if isinstance(settings, Mapping) else None
    found = loaded.get("args") if found is None else found
    options = vars(found) if isinstance(found, Namespace) else found
    if not isinstance(options, Mapping):
        raise ForeignModelError(f"{name}: expected options as 'args' or 'cfg', got {type(options).__name__}")
    values = {key: value for key, value in options.items() if isinstance(key, str)}
    for side in ("encoder", "decoder"):  # configs of dataclasses nest the options of each side
        nested = values.get(side)
        nested = vars(nested) if isinstance(nested, Namespace) else nested
        if isinstance(nested, Mapping):
            values |= {f"{side}_{key}": value for key, value in nested.items() if isinstance(key, str)}
    return values


def renamed(model: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors of old checkpoints by today's names: numbered norms, and queries, keys and values in one tensor."""
    tensors: dict[str, Tensor] = {}
    for name, tensor in model.items():
        new = _norm_name(name)
        if STACKED not in new:
            tensors[new] = tensor
            continue
        block, part = new.split(STACKED)
        if tensor.size(0) % 3:
            raise ForeignModelError(f"{name}: expected rows of queries, keys and values, got {list(tensor.shape)}")
        tensors |= {f"{block}.{letter}_proj.{part}": rows for letter, rows in zip("qkv", tensor.chunk(3), strict=True)}
    return tensors


def _norm_name(name: str) -> str:
    before, found, after = name.partition(".layer_norms.")
    names = OLD_NORMS.get(before.partition(".")[0], ())
    number, _, part = after.partition(".")
    if not found or not number.isdigit() or int(number) >= len(names):
        return name
    return f"{before}.{names[int(number)]}.{part}"
