"""Load the system of an artifact."""

from __future__ import annotations

import torch

import fewstep
from fewstep.system.format import BundleError
from models.bundle.directory import load_system
from stages.artifacts import System
from stages.context import Context
from stages.errors import ArtifactError


def load(system: System, device: str) -> fewstep.System:
    """Load a system. Raises ArtifactError for an incomplete or damaged directory."""
    try:
        return load_system(system.path, device)
    except BundleError as error:
        raise ArtifactError(f"{error}; remove the artifact and run again") from error


def load_for_worker(system: System, context: Context) -> fewstep.System:
    """Load a system with the threads and on the device of a worker. Raises ArtifactError as `load` does."""
    torch.set_num_threads(context.resources.threads)
    return load(system, "cuda" if context.resources.gpus else "cpu")
