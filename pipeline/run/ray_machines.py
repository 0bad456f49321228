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
from stages.errors import StageError, TransientError
from stages.workers.isa import ISA
from stages.workers.pulse import Watch, pulse
from stages.workers.ray_workers import RayWorkers, explained, is_lost_node, options

log = logging.getLogger("fewstep")


class RayMachines:
    """A Ray cluster: an existing one (`address`, or RAY_ADDRESS), or a local one that ends with this process."""

    def __init__(self, cluster: Cluster) -> None:
        """Connect to the cluster. Raises StageError if it cannot be reached."""
        self._cluster = cluster
        self._address = cluster.address or os.environ.get("RAY_ADDRESS", "")
        self._local = not self._address and not ray.is_initialized()
        if not ray.is_initialized():
            self._connect()
        self._running: dict[Any, StepAttempt] = {}
        self._watches: dict[Any, Watch] = {}
        self._attempt = ray.remote(max_retries=0)(_attempt)

    @property
    def nodes(self) -> dict[str, dict[str, float]]:
        return {str(node["NodeID"]): dict(node["Resources"]) for node in ray.nodes() if node["Alive"]}

    def _connect(self) -> None:
        common: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "namespace": "fewstep"}
        address = self._address
        local = {"num_cpus": self._cluster.cpus, "include_dashboard": False, "object_store_memory": 200 * 2**20}
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
        self._running[reference], self._watches[reference] = attempt, Watch(attempt.silence_seconds)

    def finished(self, seconds: float) -> list[Outcome]:
        outcomes: list[Outcome] = []
        lost = not self._running and not self.nodes
        if self._running:
            done, _ = ray.wait(list(self._running), num_returns=1, timeout=seconds)
            for reference in done:
                name = self._forget(reference)
                try:
                    ray.get(reference)
                    outcomes.append((name, None))
                except Exception as error:
                    lost = lost or is_lost_node(error)
                    outcomes.append((name, explained(error)))
        if lost and self._local:
            return [*outcomes, *self._restart()]
        return [*outcomes, *self._end_hung_attempts()]

    def _restart(self) -> list[Outcome]:
        """Start a local cluster again, whose only node is lost, and with it all attempts. No other node can take its place."""
        log.warning("the local Ray cluster is lost, and is started again")
        error = TransientError("the local Ray cluster was lost")
        lost: list[Outcome] = [(self._forget(reference), error) for reference in list(self._running)]
        ray.shutdown()
        self._connect()
        return lost

    def _end_hung_attempts(self) -> list[Outcome]:
        """Kill the processes of attempts that give no sign of life. Ray ends their workers with them."""
        outcomes: list[Outcome] = []
        for reference, attempt in list(self._running.items()):
            if self._watches[reference].silent(attempt.pulse_file):
                ray.cancel(reference, force=True)
                seconds = attempt.silence_seconds
                outcomes.append(
                    (self._forget(reference), TransientError(f"no sign of life for {seconds:g} s; the process was killed"))
                )
        return outcomes

    def _forget(self, reference: Any) -> str:
        del self._watches[reference]
        return self._running.pop(reference).step.name

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
    workers = RayWorkers(
        attempt.resources,
        attempt.step.name,
        scratch,
        attempt.log,
        deaths,
        partial / ISA,
        attempt.excluded_nodes,
        attempt.silence_seconds,
    )
    with pulse(attempt.pulse_file, attempt.silence_seconds):
        run_attempt(attempt, workers)
