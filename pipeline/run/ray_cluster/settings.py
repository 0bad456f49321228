"""Defaults of Ray's environment variables, which are read when Ray is loaded. The user's environment takes precedence."""

from __future__ import annotations

import os

from fewstep.threads import PASSIVE

KEEPALIVE = {"RAY_grpc_client_keepalive_time_ms": "15000", "RAY_grpc_client_keepalive_timeout_ms": "90000"}
"""A connection between machines without an answer is lost after 90 to 105 s. Ray by itself waits for seven minutes, but gives up a
lost node after 65 s, and says which one it is: so this takes longer."""
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",  # time until the end of a training is detected
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",  # saves a process in each training; checkpoints do not depend on preemption notices
}


def set_defaults(address: str) -> None:
    """Set the variables of this process that are not set. The processes of a local cluster (`address` is empty) inherit them."""
    for name, value in (SETTINGS | (KEEPALIVE if address else {})).items():
        os.environ.setdefault(name, value)


def cluster_variables() -> dict[str, str]:
    """Return the variables that the processes of a cluster need too, whose nodes were started without them."""
    waiting = {name: os.environ[name] for name in PASSIVE if name in os.environ}
    return {name: os.environ.get(name, value) for name, value in KEEPALIVE.items()} | waiting
