"""The nodes of a Ray cluster as the machines of a run. Importing this module loads Ray."""

from __future__ import annotations

import logging
import os
import socket
from typing import Any

import ray

from pipeline.config.schema import Cluster
from pipeline.run.attempt import StepAttempt, run_attempt
from pipeline.run.lost_work import deaths_file
from pipeline.run.machines import Outcome
from pipeline.store.attempts import partial_directory
from stages.artifacts import CHECKPOINTS
from stages.errors import StageError
from stages.workers.ray_workers import RayWorkers, explained, options


class RayMachines:
    """A Ray cluster: an existing one (`address`, or RAY_ADDRESS), or a local one that ends with this process."""

    def __init__(self, cluster: Cluster) -> None:
        """Connect to the cluster. Raises StageError if it cannot be reached."""
        if not ray.is_initialized():
            self._connect(cluster)
        self._running: dict[Any, str] = {}
        self._attempt = ray.remote(max_retries=0)(_attempt)

    @property
    def nodes(self) -> dict[str, dict[str, float]]:
        return {str(node["NodeID"]): dict(node["Resources"]) for node in ray.nodes() if node["Alive"]}

    def _connect(self, cluster: Cluster) -> None:
        common: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "namespace": "fewstep"}
        address = cluster.address or os.environ.get("RAY_ADDRESS")
        local = {"num_cpus": cluster.cpus, "include_dashboard": False, "object_store_memory": 200 * 2**20}
        try:
            if address:
                _check_listening(address)
                ray.init(address=address, **common)
            else:
                ray.init(address="local", **local, **common)
        except (OSError, RuntimeError, ValueError) as error:
            where = f"the Ray cluster at {address}" if address else "a Ray cluster on this machine"
            raise StageError(
                f"{where}: expected a cluster that answers, got: {error}; check cluster.address and RAY_ADDRESS, "
                "or give --in-process to run without Ray"
            ) from error

    def start(self, attempt: StepAttempt) -> None:
        stage, granted = attempt.step.stage, attempt.resources
        workers_hold_resources = stage.distributes and not granted.alone
        resources = {"num_cpus": 0} if workers_hold_resources else options(granted, attempt.excluded_nodes)
        reference = self._attempt.options(name=attempt.step.name, **resources).remote(attempt)
        self._running[reference] = attempt.step.name

    def finished(self, seconds: float) -> list[Outcome]:
        if not self._running:
            return []
        done, _ = ray.wait(list(self._running), num_returns=1, timeout=seconds)
        outcomes: list[Outcome] = []
        for reference in done:
            name = self._running.pop(reference)
            try:
                ray.get(reference)
                outcomes.append((name, None))
            except Exception as error:
                outcomes.append((name, explained(error)))
        return outcomes

    def close(self) -> None:
        ray.shutdown()


def _check_listening(address: str) -> None:
    """Raise OSError if no process listens at `[ray://]host:port`, which Ray would try to reach for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=10.0).close()


def _attempt(attempt: StepAttempt) -> None:
    """Run one attempt as a Ray task."""
    partial = partial_directory(attempt.step.directory, attempt.id)
    scratch, deaths = partial / CHECKPOINTS / f"ray-{attempt.id}", partial / deaths_file(attempt.id)
    run_attempt(attempt, RayWorkers(attempt.resources, attempt.step.name, scratch, attempt.log, deaths, attempt.excluded_nodes))
