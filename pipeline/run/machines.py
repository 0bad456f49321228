"""Where steps run: on Ray, or one after the other in this process."""

from __future__ import annotations

import logging
import math
import os
import socket
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pipeline.run.attempt import Order, perform
from pipeline.run.lost_time import deaths_file
from pipeline.store.artifacts import Store
from stages.artifacts import CHECKPOINTS
from stages.errors import FULL, FewstepError, StageError, TransientError, unwritable
from stages.workers import LocalWorkers, Resources

if TYPE_CHECKING:
    from pipeline.config.schema import Cluster

SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "300",  # the first import of torch on a loaded machine takes long
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",  # how soon the end of a training is noticed
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",  # one process less for each training; our own checkpoints need no notice
}
"""Ray's own settings, where the user's environment does not say otherwise."""

Outcome = tuple[str, FewstepError | None]
"""A step's name, and why its attempt failed."""


class Machines(Protocol):
    """Starts attempts and tells which have ended."""

    @property
    def nodes(self) -> dict[str, dict[str, float]]:
        """What each living node has: CPU, GPU, memory (bytes) and custom resources; by the machines' own name of the node."""
        ...

    def start(self, order: Order) -> None: ...

    def finished(self, seconds: float) -> list[Outcome]:
        """Attempts that ended; waits for one, `seconds` at most."""
        ...

    def close(self) -> None: ...


class InProcess:
    """The plain loop: a step is attempted when it is started, by one worker. Memory and custom resources are not counted."""

    def __init__(self, cluster: Cluster) -> None:
        uncounted = {"memory", *(name for asked in cluster.resources.values() for name in asked.custom)}
        cpus = cluster.cpus or len(os.sched_getaffinity(0))
        self._node = {"CPU": float(cpus), "GPU": float(_visible_gpus()), **dict.fromkeys(uncounted, math.inf)}
        self._outcomes: list[Outcome] = []

    @property
    def nodes(self) -> dict[str, dict[str, float]]:
        return {"here": self._node}

    def start(self, order: Order) -> None:
        order = replace(order, resources=_as_one_worker(order))
        device = "cuda:0" if order.resources.gpus else "cpu"
        try:
            perform(order, LocalWorkers(threads=order.resources.threads, device=device))
            self._outcomes.append((order.step.name, None))
        except FewstepError as error:
            self._outcomes.append((order.step.name, error))
        except Exception as error:
            told = StageError(f"{type(error).__name__}: {error}")
            if isinstance(error, OSError) and error.errno in FULL:  # before the step itself began, or after it ended
                told = unwritable(order.log, error)
            self._outcomes.append((order.step.name, told))
        except BaseException:
            self._outcomes.append((order.step.name, TransientError("interrupted")))
            raise

    def finished(self, seconds: float) -> list[Outcome]:
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def close(self) -> None:
        pass


class RayMachines:
    """A Ray cluster: one that is there (`address`, or RAY_ADDRESS), or one on this machine that ends with us."""

    def __init__(self, cluster: Cluster) -> None:
        """Raises StageError when Ray is not installed or cannot be reached."""
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
                _knock(address)
                self._ray.init(address=address, **common)
            else:
                self._ray.init(address="local", **local, **common)
        except (OSError, RuntimeError, ValueError) as error:
            where = f"the Ray cluster at {address}" if address else "a Ray cluster on this machine"
            raise StageError(
                f"{where}: expected to be connected, got: {error}; check cluster.address and RAY_ADDRESS, "
                "or give --in-process to run without Ray"
            ) from error

    def start(self, order: Order) -> None:
        from stages.workers.ray_workers import options

        stage, granted = order.step.stage, order.resources
        hands_out = stage.distributes and not granted.alone
        held = {"num_cpus": 0} if hands_out else options(granted, order.avoid)
        reference = self._attempt.options(name=order.step.name, **held).remote(order)
        self._running[reference] = order.step.name

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
    """Where Ray finds the token that its clusters ask for (a variable or a file); empty when there is none."""
    if os.environ.get("RAY_AUTH_TOKEN"):
        return "RAY_AUTH_TOKEN"
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    return str(path) if path.is_file() else ""


def _as_one_worker(order: Order) -> Resources:
    """A map's workers as one with the threads of all; a training's as the one that it is without Ray."""
    granted = order.resources
    workers = 1 if order.step.stage.trains else granted.workers or 1
    return replace(granted, workers=1, cpus=(granted.cpus or 1.0) * workers)


def _knock(address: str) -> None:
    """Raises OSError when nobody listens at `[ray://]host:port`: Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=10.0).close()


def _attempt(order: Order) -> None:
    """The Ray task of one attempt."""
    from stages.workers.ray_workers import RayWorkers

    partial = Store.partial(order.step.directory)
    scratch, deaths = partial / CHECKPOINTS / f"ray-{order.attempt}", partial / deaths_file(order.attempt)
    perform(order, RayWorkers(order.resources, order.step.name, scratch, order.log, deaths, order.avoid))


def _visible_gpus() -> int:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([part for part in visible.split(",") if part.strip() not in ("", "-1")])
    return len([name for name in os.listdir("/dev") if name.startswith("nvidia") and name[6:].isdigit()])
