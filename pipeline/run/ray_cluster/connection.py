"""Connections to Ray, which is imported when one is made."""

from __future__ import annotations

import os
from pathlib import Path

from fewstep.local_ray import stay_on_loopback, use_short_folder
from pipeline.config.schema import Cluster
from pipeline.run.machines import Machines
from pipeline.run.ray_cluster.settings import set_defaults
from stages.errors import StageError


def connect_ray(cluster: Cluster) -> Machines:
    """Return the machines of a Ray cluster. One of this machine is reachable from this machine only.

    Raises StageError if Ray is not installed or the cluster cannot be reached.
    """
    if stay_on_loopback(cluster.address) == "local":
        use_short_folder()
    set_defaults(cluster.address or os.environ.get("RAY_ADDRESS", ""))
    try:
        from pipeline.run.ray_cluster.machines import RayMachines
    except ImportError as error:
        raise StageError(
            "ray is not installed: pip install 'ray[default,train]', or give --in-process to run without it"
        ) from error
    return RayMachines(cluster)


def token_source() -> str:
    """Return the environment variable or file from which Ray reads its authentication token; empty if there is no token."""
    if os.environ.get("RAY_AUTH_TOKEN"):
        return "RAY_AUTH_TOKEN"
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    return str(path) if path.is_file() else ""
