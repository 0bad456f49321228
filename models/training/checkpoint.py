"""Checkpoints for resuming: `<update>/{model,optimizer}.safetensors` and `state.json`, written atomically."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

import durable
from models.bundle.weights import save_weights

SCHEMA = 1
KEPT = 2
"""Number of checkpoints kept: the newest, and one before it in case the newest is damaged."""

log = logging.getLogger("fewstep")


class Checkpoint(NamedTuple):
    """The state from which a training continues."""

    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    state: dict[str, Any]
    """JSON; holds `update`."""


def save(directory: Path, checkpoint: Checkpoint, attempt: str) -> None:
    """Write `<directory>/<update>` and delete all but the newest checkpoints.

    Raises OSError if the disk is full or fails; earlier checkpoints are then still complete.
    """
    final = directory / str(checkpoint.state["update"])
    temporary = final.with_name(f"{final.name}.{attempt}.tmp")
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        durable.make_directory(temporary)
        save_weights(temporary / "model.safetensors", checkpoint.model)
        save_weights(temporary / "optimizer.safetensors", checkpoint.optimizer)
        text = json.dumps({"schema": SCHEMA, **checkpoint.state}, indent=1, sort_keys=True)
        (temporary / "state.json").write_text(text + "\n", encoding="utf-8")
        shutil.rmtree(final, ignore_errors=True)
        durable.rename(temporary, final)
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    for old in _numbers(directory)[:-KEPT]:
        shutil.rmtree(directory / str(old), ignore_errors=True)


def newest(directory: Path) -> Checkpoint | None:
    """Return the newest complete checkpoint, or None. Incomplete ones are skipped with a warning."""
    for update in reversed(_numbers(directory)):
        try:
            return load(directory, update)
        except (OSError, ValueError, KeyError, SafetensorError) as error:
            log.warning("%s: this checkpoint is not whole and is left aside: %s", directory / str(update), error)
    return None


def load(directory: Path, update: int) -> Checkpoint:
    """Return the checkpoint of an update. Raises OSError, ValueError, KeyError or SafetensorError if it is incomplete."""
    place = directory / str(update)
    state = read_state(directory, update)
    return Checkpoint(load_file(place / "model.safetensors"), load_file(place / "optimizer.safetensors"), state)


def read_state(directory: Path, update: int) -> dict[str, Any]:
    """Return `state.json` of a checkpoint. Raises OSError, ValueError or KeyError."""
    state: dict[str, Any] = json.loads((directory / str(update) / "state.json").read_text(encoding="utf-8"))
    if state.pop("schema") != SCHEMA or state["update"] != update:
        raise ValueError(f"expected schema {SCHEMA} and update {update}")
    return state


def states(directory: Path) -> list[dict[str, Any]]:
    """Return `state.json` of each checkpoint that has a readable one, ascending."""
    found = []
    for update in _numbers(directory):
        try:
            found.append(read_state(directory, update))
        except (OSError, ValueError, KeyError):
            continue
    return found


def _numbers(directory: Path) -> list[int]:
    """Return the updates of the checkpoints in a directory, ascending."""
    if not directory.is_dir():
        return []
    return sorted(int(path.name) for path in directory.iterdir() if path.name.isdigit())
