"""The nodes of a Ray cluster as the machines of a run. Importing this module loads Ray."""

from __future__ import annotations

import atexit
import logging
import os
from dataclasses import replace
from typing import Any

import ray

from fewstep.local_ray import check_answers
from fewstep.threads import max_threads
from pipeline.config.schema import Cluster
from pipeline.run.apart import resources_apart, run_apart, runs_apart, send_inputs, take_in
from pipeline.run.attempt import StepAttempt, run_attempt
from pipeline.run.lost_work import deaths_file
from pipeline.run.machines import Outcome
from pipeline.run.ray_cluster.head import Head, leave
from pipeline.run.ray_cluster.nodes import NodeWatch
from pipeline.run.ray_cluster.settings import cluster_variables
from pipeline.store.attempts import partial_directory
from stages.artifacts import CHECKPOINTS
from stages.errors import FewstepError, StageError, TransientError
from stages.workers.isa import ISA
from stages.workers.pulse import Watch, pulse
from stages.workers.ray_errors import explained, is_lost_node
from stages.workers.ray_workers import RayWorkers, options

log = logging.getLogger("fewstep")

STARTS = 5
"""Attempts to start a local cluster: Ray gives its node 30 seconds, which may be too little on a loaded machine."""
HEAD_START_SECONDS = 120
"""Time that Ray waits for the port of the head of a local cluster."""
INIT: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "namespace": "fewstep"}


def join(address: str) -> None:
    """Connect to a running cluster. Raises StageError if it does not answer."""
    try:
        check_answers(address)
        ray.init(address=address, runtime_env={"env_vars": cluster_variables()}, **INIT)
    except (OSError, RuntimeError, ValueError) as error:
        raise StageError(
            f"the Ray cluster at {address}: expected a cluster that answers, got: {error}; check cluster.address and RAY_ADDRESS, "
            "or give --in-process to run without Ray"
        ) from error


def start_local(cpus: int | None) -> None:
    """Start a cluster of this machine, which ends with this process. Raises StageError if Ray does not start."""
    os.environ.setdefault("RAY_gcs_server_port_wait_time_s", str(HEAD_START_SECONDS))
    for attempt in range(1, STARTS + 1):
        try:
            ray.init(address="local", num_cpus=cpus, include_dashboard=False, object_store_memory=200 * 2**20, **INIT)
            return
        except UnicodeEncodeError as error:
            raise StageError(
                f"Ray takes names and arguments in UTF-8 alone, got {error.object[:200]!a}; rename the files or folders of the "
                "command, or give --in-process to run without Ray"
            ) from error
        except Exception as error:  # Ray has no type for the error of processes that do not start in time
            if attempt == STARTS:
                raise StageError(
                    f"Ray did not start on this machine in {STARTS} attempts, the last with: {error}; check its load and memory, "
                    "or give --in-process to run without Ray"
                ) from error
            log.warning("Ray did not start and is started again: %s", error)


class RayMachines:
    """A Ray cluster: an existing one (`address`, or RAY_ADDRESS), or a local one that ends with this process."""

    def __init__(self, cluster: Cluster) -> None:
        """Connect to the cluster. Raises StageError if it cannot be reached."""
        self._cluster = cluster
        self._address = cluster.address or os.environ.get("RAY_ADDRESS", "")
        self._local = not self._address and not ray.is_initialized()
        self._connect()
        self._node_watch = None if self._local else NodeWatch(self._managers)  # the node of a local cluster is started again
        self._last_nodes: dict[str, dict[str, float]] = {}
        self._running: dict[Any, StepAttempt] = {}
        self._watches: dict[Any, Watch] = {}
        self._attempt = ray.remote(max_retries=0)(_attempt)
        self._apart = ray.remote(max_retries=0)(run_apart)
        self._unsent: list[Outcome] = []
        """Outcomes of attempts whose inputs could not be uploaded."""

    @property
    def nodes(self) -> dict[str, dict[str, float]]:
        if self._head.answers():  # else Ray would wait for it, and end this process after a minute
            self._last_nodes = {str(node["NodeID"]): dict(node["Resources"]) for node in ray.nodes() if node["Alive"]}
        ended = self._node_watch.ended() if self._node_watch else ()
        return {node: resources for node, resources in self._last_nodes.items() if node not in ended}

    @property
    def max_threads(self) -> int | None:
        # Elsewhere it is not the user's: Ray sets OMP_NUM_THREADS=1 for jobs, and its autoscaler for nodes.
        return max_threads() if self._local else None

    def _managers(self) -> dict[str, str] | None:
        """Return host:port of the manager of each live node by its id, or None if the head does not answer."""
        if not self._head.answers():
            return None
        return {n["NodeID"]: f"{n['NodeManagerAddress']}:{n['NodeManagerPort']}" for n in ray.nodes() if n["Alive"]}

    def _connect(self) -> None:
        if ray.is_initialized():
            self._head = Head(str(ray.get_runtime_context().gcs_address), self._address)
            return
        if self._address:
            join(self._address)
        else:
            start_local(self._cluster.cpus)
        self._head = Head(str(ray.get_runtime_context().gcs_address), self._address)

    def start(self, attempt: StepAttempt) -> None:
        if attempt.node_store:
            self._start_without_shared_disk(attempt)
            return
        stage = attempt.step.stage
        granted = attempt.resources
        workers_hold_resources = stage.distributes and not granted.alone
        resources = {"num_cpus": 0} if workers_hold_resources else options(granted, attempt.excluded_nodes)
        reference = self._attempt.options(name=attempt.step.name, **resources).remote(attempt)
        self._running[reference] = attempt
        self._watches[reference] = Watch(attempt.silence_seconds)

    def _start_without_shared_disk(self, attempt: StepAttempt) -> None:
        """Start an attempt on a machine with a store of its own; one that reads files of the user, on the driver's machine."""
        attempt = replace(attempt, resources=resources_apart(attempt, self.nodes))
        if runs_apart(attempt):
            try:
                send_inputs(attempt)
            except FewstepError as error:
                self._unsent.append((attempt.step.name, error))
                return
            held = options(attempt.resources, attempt.excluded_nodes)
            reference = self._apart.options(name=attempt.step.name, **held).remote(attempt)
        else:
            node = str(ray.get_runtime_context().get_node_id())
            beside = {"num_cpus": 0, "label_selector": {"ray.io/node-id": node}}
            reference = self._attempt.options(name=attempt.step.name, **beside).remote(replace(attempt, node_store=""))
        self._running[reference] = attempt
        self._watches[reference] = Watch(attempt.silence_seconds)

    def finished(self, seconds: float) -> list[Outcome]:
        outcomes, self._unsent = self._unsent, []
        if not self._head.answers():
            if not self._local:
                self._head.check()
            elif self._head.is_lost():
                return [*outcomes, *self._restart()]
        lost = not self._running and not self.nodes
        if self._running:
            done, _ = ray.wait(list(self._running), num_returns=1, timeout=seconds)
            for reference in done:
                attempt = self._running[reference]
                name = self._forget(reference)
                try:
                    ending = ray.get(reference)
                    outcomes.append((name, take_in(attempt, ending) if ending else None))
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
        self._disconnect()
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
        if self._node_watch:
            self._node_watch.close(wait=self._head.answers())
        self._disconnect()

    def _disconnect(self) -> None:
        """Leave the cluster. Ray would wait without end for a head that does not answer, here and at the end of the process."""
        self._head.close()
        if self._head.answers():
            ray.shutdown()
            return
        atexit.unregister(ray.shutdown)
        leave(ray.shutdown)


def _attempt(attempt: StepAttempt) -> None:
    """Run one attempt as a Ray task."""
    partial = partial_directory(attempt.step.directory, attempt.id)
    scratch = partial / CHECKPOINTS / f"ray-{attempt.id}"
    deaths = partial / deaths_file(attempt.id)
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
