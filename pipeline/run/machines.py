"""The machines that steps run on: a Ray cluster, or this process, which runs one step after another."""

from __future__ import annotations

import logging
import math
import os
import socket
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pipeline.run.attempt import StepAttempt, run_attempt
from pipeline.run.lost_work import deaths_file
from pipeline.store.artifacts import Store
from stages.artifacts import CHECKPOINTS
from stages.errors import FULL, FewstepError, StageError, TransientError, unwritable
from stages.workers import LocalWorkers, Resources

if TYPE_CHECKING:
    from pipeline.config.schema import Cluster

SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "300",  # the first import of torch on a loaded machine takes long
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",  # time until the end of a training is detected
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",  # saves a process in each training; checkpoints do not depend on preemption notices
}
"""Defaults of Ray's environment variables. The user's environment takes precedence."""

Outcome = tuple[str, FewstepError | None]
"""The name of a step and the error of its attempt, or None for success."""


class Machines(Protocol):
    """Machines that run attempts at steps and report the ended ones."""

    @property
    def nodes(self) -> dict[str, dict[str, float]]:
        """The resources of each live node by node id: CPU, GPU, memory (bytes) and custom resources."""
        ...

    def start(self, attempt: StepAttempt) -> None:
        """Start an attempt."""
        ...

    def finished(self, seconds: float) -> list[Outcome]:
        """Return the attempts that ended since the last call. Waits up to `seconds` for the first one."""
        ...

    def close(self) -> None:
        """Release the machines."""
        ...


class InProcess:
    """This process as the only machine. Starting an attempt runs it to its end. Memory and custom resources are unlimited."""

    def __init__(self, cluster: Cluster) -> None:
        unlimited = {"memory", *(name for asked in cluster.resources.values() for name in asked.custom)}
        cpus = cluster.cpus or len(os.sched_getaffinity(0))
        self._node = {"CPU": float(cpus), "GPU": float(_visible_gpus()), **dict.fromkeys(unlimited, math.inf)}
        self._outcomes: list[Outcome] = []

    @property
    def nodes(self) -> dict[str, dict[str, float]]:
        return {"local": self._node}

    def start(self, attempt: StepAttempt) -> None:
        attempt = replace(attempt, resources=_as_one_worker(attempt))
        device = "cuda:0" if attempt.resources.gpus else "cpu"
        try:
            run_attempt(attempt, LocalWorkers(threads=attempt.resources.threads, device=device))
            self._outcomes.append((attempt.step.name, None))
        except FewstepError as error:
            self._outcomes.append((attempt.step.name, error))
        except Exception as error:
            explained = StageError(f"{type(error).__name__}: {error}")
            if isinstance(error, OSError) and error.errno in FULL:  # raised before the stage began, or after it ended
                explained = unwritable(attempt.log, error)
            self._outcomes.append((attempt.step.name, explained))
        except BaseException:
            self._outcomes.append((attempt.step.name, TransientError("interrupted")))
            raise

    def finished(self, seconds: float) -> list[Outcome]:
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def close(self) -> None:
        pass


class RayMachines:
    """A Ray cluster: an existing one (`address`, or RAY_ADDRESS), or a local one that ends with this process."""

    def __init__(self, cluster: Cluster) -> None:
        """Connect to the cluster. Raises StageError if Ray is not installed or cannot be reached."""
        for name, value in SETTINGS.items():
            os.environ.setdefault(name, value)
        try:
            import ray
        except ImportError as error:
            raise StageError(
                "ray is not installed: pip install 'ray[default,train]', or give --in-process to run without it"
            ) from error
        self._ray = ray
        if not ray.is_initialized():
            self._connect(cluster)
        self._running: dict[Any, str] = {}
        self._attempt = ray.remote(max_retries=0)(_attempt)

    @property
    def nodes(self) -> dict[str, dict[str, float]]:
        return {str(node["NodeID"]): dict(node["Resources"]) for node in self._ray.nodes() if node["Alive"]}

    def _connect(self, cluster: Cluster) -> None:
        common: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "namespace": "fewstep"}
        address = cluster.address or os.environ.get("RAY_ADDRESS")
        local = {"num_cpus": cluster.cpus, "include_dashboard": False, "object_store_memory": 200 * 2**20}
        try:
            if address:
                _check_listening(address)
                self._ray.init(address=address, **common)
            else:
                self._ray.init(address="local", **local, **common)
        except (OSError, RuntimeError, ValueError) as error:
            where = f"the Ray cluster at {address}" if address else "a Ray cluster on this machine"
            raise StageError(
                f"{where}: expected a cluster that answers, got: {error}; check cluster.address and RAY_ADDRESS, "
                "or give --in-process to run without Ray"
            ) from error

    def start(self, attempt: StepAttempt) -> None:
        from stages.workers.ray_workers import options

        stage, granted = attempt.step.stage, attempt.resources
        workers_hold_resources = stage.distributes and not granted.alone
        resources = {"num_cpus": 0} if workers_hold_resources else options(granted, attempt.excluded_nodes)
        reference = self._attempt.options(name=attempt.step.name, **resources).remote(attempt)
        self._running[reference] = attempt.step.name

    def finished(self, seconds: float) -> list[Outcome]:
        from stages.workers.ray_workers import explained

        if not self._running:
            return []
        done, _ = self._ray.wait(list(self._running), num_returns=1, timeout=seconds)
        outcomes: list[Outcome] = []
        for reference in done:
            name = self._running.pop(reference)
            try:
                self._ray.get(reference)
                outcomes.append((name, None))
            except Exception as error:
                outcomes.append((name, explained(error)))
        return outcomes

    def close(self) -> None:
        self._ray.shutdown()


def token_source() -> str:
    """Return the environment variable or file from which Ray reads its authentication token; empty if there is no token."""
    if os.environ.get("RAY_AUTH_TOKEN"):
        return "RAY_AUTH_TOKEN"
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    return str(path) if path.is_file() else ""


def _as_one_worker(attempt: StepAttempt) -> Resources:
    """Return the resources of a single worker: a map's worker gets the CPUs of all, a training's worker its own."""
    granted = attempt.resources
    workers = 1 if attempt.step.stage.trains else granted.workers or 1
    return replace(granted, workers=1, cpus=(granted.cpus or 1.0) * workers)


def _check_listening(address: str) -> None:
    """Raise OSError if no process listens at `[ray://]host:port`, which Ray would try to reach for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=10.0).close()


def _attempt(attempt: StepAttempt) -> None:
    """Run one attempt as a Ray task."""
    from stages.workers.ray_workers import RayWorkers

    partial = Store.partial(attempt.step.directory)
    scratch, deaths = partial / CHECKPOINTS / f"ray-{attempt.id}", partial / deaths_file(attempt.id)
    run_attempt(attempt, RayWorkers(attempt.resources, attempt.step.name, scratch, attempt.log, deaths, attempt.excluded_nodes))


def _visible_gpus() -> int:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([part for part in visible.split(",") if part.strip() not in ("", "-1")])
    return len([name for name in os.listdir("/dev") if name.startswith("nvidia") and name[6:].isdigit()])
