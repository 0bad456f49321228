"""Connections to Ray, which is imported when one is made."""

from __future__ import annotations

import os
from pathlib import Path

from fewstep.local_ray import stay_on_loopback
from pipeline.config.schema import Cluster
from pipeline.run.machines import Machines
from stages.errors import StageError

SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",  # time until the end of a training is detected
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",  # saves a process in each training; checkpoints do not depend on preemption notices
}
"""Defaults of Ray's environment variables. The user's environment takes precedence."""


def connect_ray(cluster: Cluster) -> Machines:
    """Return the machines of a Ray cluster. One of this machine is reachable from this machine only.

    Raises StageError if Ray is not installed or the cluster cannot be reached.
    """
    stay_on_loopback(cluster.address)
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
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
