"""A Ray cluster of several nodes on this machine, to have nodes added and killed. Each node is a set of processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

FAST = {  # a process that is gone is noticed in seconds, a slow one has a minute to answer
    "health_check_initial_delay_ms": 5000,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 10000,
    "health_check_failure_threshold": 6,
}


class Nodes:
    """A head without CPUs, where the drivers' steps wait for their workers, and nodes that can be killed."""

    def __init__(self, *, jobs: bool = False, **system: Any) -> None:
        """With `jobs` the head also takes jobs, at `jobs_address`."""
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 0, "include_dashboard": jobs, "dashboard_port": 0, "_system_config": {**FAST, **system}}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    @property
    def jobs_address(self) -> str:
        return f"http://{self._cluster.webui_url}"

    def add(self, cpus: int = 1, **resources: float) -> Any:
        """A node with CPUs and custom resources."""
        return self._cluster.add_node(num_cpus=cpus, resources=resources)

    def kill(self, node: Any) -> None:
        """As if its machine lost power."""
        self._cluster.remove_node(node, allow_graceful=False)

    def close(self) -> None:
        self._cluster.shutdown()


@contextmanager
def cluster(**settings: Any) -> Iterator[Nodes]:
    """A cluster that is gone afterwards."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    nodes = Nodes(**settings)
    try:
        yield nodes
    finally:
        nodes.close()
