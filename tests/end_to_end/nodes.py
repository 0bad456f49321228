"""A Ray cluster of several nodes on this machine, whose nodes can be added and killed. Each node is a set of processes."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

from tests.processes import descendants, wait_for_end

ROOT = Path(__file__).resolve().parents[2]
FAST = {  # a process that is gone is noticed in seconds, a slow one has a minute to answer
    "health_check_initial_delay_ms": 5000,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 10000,
    "health_check_failure_threshold": 6,
}

START_SECONDS = 400.0
"""Time that the processes of a node may take to start, below the limit of a test that waits for its turn meanwhile."""


class Nodes:
    """A head without CPUs, where the drivers' steps wait for their workers, and nodes that can be killed."""

    def __init__(self, *, jobs: bool = False, **system: Any) -> None:
        """Start the head; with `jobs` it also accepts jobs, at `jobs_address`."""
        from ray.cluster_utils import Cluster

        ports = {"dashboard_port": 0, "dashboard_agent_listen_port": 0}  # any: a cluster before may not have left its own yet
        head = {"num_cpus": 0, "include_dashboard": jobs, **ports, "_system_config": {**FAST, **system}}
        with patience(), own_turn():
            self._cluster = Cluster(initialize_head=True, head_node_args=head)

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    @property
    def jobs_address(self) -> str:
        return f"http://{self._cluster.webui_url}"

    def add(self, cpus: int = 1, *, environment: dict[str, str] | None = None, **resources: float) -> Any:
        """Add a node with CPUs and custom resources, whose processes have these environment variables in addition."""
        with patience(), own_turn():
            return self._cluster.add_node(num_cpus=cpus, resources=resources, env_vars=environment)

    def kill(self, node: Any) -> None:
        """Kill a node as if its machine lost power: its workers too, which would otherwise write until they miss it."""
        own = [process.process.pid for processes in node.all_processes.values() for process in processes]
        workers = {pid for root in own for pid in descendants(root)} - {*own}
        self._cluster.remove_node(node, allow_graceful=False)
        for pid in workers:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_for_end(workers)

    def head_process(self) -> int:
        """Return the pid of the head's global control store."""
        (server,) = self._cluster.head_node.all_processes["gcs_server"]
        return int(server.process.pid)

    def close(self) -> None:
        self._cluster.shutdown()


@contextmanager
def patience() -> Iterator[None]:
    """Let Ray start nodes on a machine that is busy, and on which other clusters start and end.

    The processes of a node may need longer than the half minute that Ray gives them. The file with the address of the latest
    cluster may vanish while Ray rewrites it, and nobody reads it here.
    """
    from ray._private import services, utils

    ask = services.get_node

    def keep_asking(*arguments: Any) -> Any:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            with suppress(RuntimeError):  # it is not there yet
                return ask(*arguments)
            time.sleep(1.0)
        return ask(*arguments)

    with mock.patch.object(services, "get_node", keep_asking), mock.patch.object(utils, "write_ray_address"):
        yield


@contextmanager
def own_turn() -> Iterator[None]:
    """Wait until no other process starts a node: two that start at once may choose the same port. Only for the start itself."""
    with (Path(tempfile.gettempdir()) / "fewstep-tests-nodes.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def cluster(**settings: Any) -> Iterator[Nodes]:
    """Yield a cluster and remove it afterwards."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    nodes = Nodes(**settings)
    try:
        yield nodes
    finally:
        nodes.close()


@contextmanager
def cluster_apart(**environment: str) -> Iterator[str]:
    """Yield the address for jobs of a cluster with one CPU, started by a process of its own with this environment.

    At the end it is killed at once, like a machine that loses power.

    It has a folder of its own for Ray's files. Jobs connect to the cluster that the folder names as its latest, and without that to
    any cluster of this machine.
    """
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.end_to_end.nodes"], cwd=ROOT, env={**os.environ, "RAY_TMPDIR": folder, **environment},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            said = next(line for line in process.stdout if line.startswith("{"))
            yield str(json.loads(said)["jobs"])
        finally:
            process.kill()  # Ray's own processes end with the one that started them
            process.wait()


if __name__ == "__main__":
    from ray._private.utils import write_ray_address

    with cluster(jobs=True) as nodes:
        write_ray_address(nodes.address)
        nodes.add(1)
        print(json.dumps({"jobs": nodes.jobs_address}), flush=True)
        sys.stdin.read()
