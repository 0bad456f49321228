"""Workers on Ray: a pool of actors for shards, and Ray Train."""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import ray
from ray.exceptions import RayTaskError

from models.training.worker import TrainingWorker
from stages.errors import StageError
from stages.workers import LocalWorkers, Resources
from stages.workers.isa import record_isa_level
from stages.workers.logs import logged
from stages.workers.pulse import Watch, pulse
from stages.workers.ray_errors import LOST, explained, reason_of_death

A = TypeVar("A")
T = TypeVar("T")
R = TypeVar("R")

log = logging.getLogger("fewstep")

POLL_SECONDS = 1.0
"""Time between two looks whether workers hang."""

MIN_WAIT_SECONDS = 60
"""Shortest time that a training worker waits for another one: on a loaded machine, one may start half a minute after another."""

MAX_DEATHS = 3
"""Number of workers that die on one shard before the shard is considered the cause."""


@dataclass(frozen=True)
class RayWorkers:
    """Workers of one step on a Ray cluster. Each of them holds `resources`."""

    resources: Resources
    name: str
    """Name of the step in Ray's displays."""
    scratch: Path
    """Directory for the files of Ray Train, which is deleted with the checkpoints of the step."""
    log: Path
    """Log file of this attempt."""
    deaths: Path
    """File of dead workers, a JSON object a line: {time, shard, seconds (lost work), error}."""
    isa: Path
    """Folder in which each worker leaves its instruction-set level."""
    avoid: tuple[str, ...] = ()
    """Nodes on which no worker is started."""
    silence_seconds: float = 300.0
    """Seconds without a sign of life after which a worker is considered hung, and is killed."""

    def map(self, make: Callable[[A], Callable[[T], R]], argument: A, shards: Sequence[T]) -> Iterator[tuple[int, R]]:
        """See `stages.workers.Workers.map`. An actor that dies or hangs is replaced, and its shard is given to another actor.

        A single worker is this process, so that no actor is started. If it dies, the attempt ends.
        """
        if self.resources.alone:
            log.info("worker ready on node %s", _node())
            yield from self._here.map(make, argument, shards)
            return
        pool = _Pool(self, make, argument)
        waiting = deque(range(len(shards)))
        deaths = dict.fromkeys(waiting, 0)
        busy: dict[Any, tuple[Any, int, float]] = {}
        try:
            while waiting or busy:
                pool.fill(len(waiting) + len(busy))
                while waiting and pool.idle:
                    actor = pool.idle.pop()
                    index = waiting.popleft()
                    busy[actor.apply.remote(shards[index])] = (actor, index, time.time())
                done = self._next(busy, pool)
                if done in pool.starting:
                    pool.started(done)
                    continue
                actor, index, begun = busy.pop(done)
                try:
                    result = ray.get(done)
                except LOST as error:
                    deaths[index] += 1
                    reason = reason_of_death(error)
                    self._record_death(index, time.time() - begun, reason)
                    if deaths[index] == MAX_DEATHS:
                        raise StageError(
                            f"{self.name}: shard {index}: {MAX_DEATHS} workers died on it, the last with: {reason}; "
                            "check the logs of the step and its memory"
                        ) from error
                    log.warning("%s: a worker died on shard %d, which is given to another worker: %s", self.name, index, reason)
                    pool.drop(actor)
                    waiting.appendleft(index)
                except RayTaskError as error:
                    raise explained(error) from error
                else:
                    pool.idle.append(actor)
                    yield index, result
        finally:
            pool.close()

    def _next(self, busy: dict[Any, tuple[Any, int, float]], pool: _Pool) -> Any:
        """Wait for the first call that ends and return its reference. The calls of actors that hang end, for they are killed."""
        while True:
            done, _ = ray.wait([*busy, *pool.starting], num_returns=1, timeout=POLL_SECONDS)
            if done:
                return done[0]
            for actor, index, _ in busy.values():
                if pool.hangs(actor):
                    log.warning(
                        "%s: shard %d: no sign of life for %g s: a worker is killed", self.name, index, self.silence_seconds
                    )
                    ray.kill(actor)

    @property
    def _here(self) -> LocalWorkers:
        return LocalWorkers(self.resources.threads)

    def _record_death(self, shard: int, seconds: float, reason: str) -> None:
        self.deaths.parent.mkdir(parents=True, exist_ok=True)
        line = {"time": time.time(), "shard": shard, "seconds": round(seconds, 3), "error": reason}
        with self.deaths.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def train(self, loop: Callable[[A, TrainingWorker], None], argument: A) -> None:
        """See `stages.workers.Workers.train`. When a worker dies, the attempt ends with a TransientError and the next one resumes.

        A single worker is this process. (Ray Train would start three further processes, each of which imports torch.)
        """
        if self.resources.alone:
            log.info("training worker 1 of 1 on node %s", _node())
            return self._here.train(loop, argument)
        os.environ.setdefault("RAY_TRAIN_WORKER_HEALTH_CHECK_TIMEOUT_S", str(self.silence_seconds))
        from ray.train import FailureConfig, RunConfig, ScalingConfig, TrainingFailedError  # imported here, since it takes seconds
        from ray.train.torch import TorchTrainer

        from stages.workers.ray_training import StoppableConfig

        trainer = TorchTrainer(
            _train_worker,
            train_loop_config={
                "loop": loop, "argument": argument, "threads": self.resources.threads, "log": self.log, "isa": self.isa,
            },
            # Ray notices neither a broken network between two workers nor one that waits for the other.
            torch_config=StoppableConfig(timeout_s=max(MIN_WAIT_SECONDS, math.ceil(self.silence_seconds))),
            scaling_config=ScalingConfig(
                num_workers=self.resources.workers or 1,
                use_gpu=self.resources.gpus > 0,
                resources_per_worker=_bundle(self.resources),
                label_selector=_labels(self.avoid) or None,
            ),
            run_config=RunConfig(
                name="train",
                storage_path=str(self.scratch.absolute()),
                # The driver repeats the attempt, perhaps with fewer workers; Ray would wait for a lost node without end.
                failure_config=FailureConfig(controller_failure_limit=0),
            ),
        )  # fmt: skip
        try:
            trainer.fit()
        except Exception as error:
            raise explained(error, (RayTaskError, TrainingFailedError)) from error


class _Pool:
    """A pool of up to `workers` actors.

    Shards are given only to actors that have started, so that an actor that cannot start, as its node is lost, delays no shard.
    """

    def __init__(self, workers: RayWorkers, make: Callable[..., Any], argument: Any) -> None:
        actor: Any = _Mapper
        held = options(workers.resources, workers.avoid)
        self._new: Callable[[Path], Any] = lambda path: actor.options(**held).remote(
            make, argument, workers.log, workers.isa, path, workers.silence_seconds
        )
        self._log = workers.log
        self._watch = Watch(workers.silence_seconds)
        self._pulses: dict[Any, Path] = {}
        """The files that actors touch."""
        self._limit = workers.resources.workers or 1
        self._all: list[Any] = []
        self._failed_starts = 0
        """Number of actors that have died at the start since the last one that has started."""
        self.idle: list[Any] = []
        self.starting: dict[Any, Any] = {}
        """Actors that are starting, by the reference of their call of `ready`."""

    def fill(self, needed: int) -> None:
        """Start actors until there are `needed` of them or the limit is reached."""
        while len(self._all) < min(self._limit, needed):
            path = self._log.with_name(f"{self._log.name}.{len(self._pulses)}.pulse")
            actor = self._new(path)
            self._all.append(actor)
            self._pulses[actor] = path
            self.starting[actor.ready.remote()] = actor

    def started(self, ready: Any) -> None:
        """Add an actor that has started, or drop one that died at the start. Raises StageError after too many such deaths."""
        actor = self.starting.pop(ready)
        try:
            ray.get(ready)
            self.idle.append(actor)
            self._failed_starts = 0
        except LOST as error:
            self.drop(actor)
            self._failed_starts += 1
            if self._failed_starts > MAX_DEATHS * self._limit:
                raise StageError(
                    f"{self._failed_starts} workers died before they had started, the last with: {reason_of_death(error)}; "
                    "check the nodes of the cluster"
                ) from error
        except RayTaskError as error:
            raise explained(error) from error

    def hangs(self, actor: Any) -> bool:
        """Return whether an actor gives no sign of life."""
        return self._watch.silent(self._pulses[actor])

    def drop(self, actor: Any) -> None:
        """Remove and kill an actor."""
        self._all.remove(actor)
        ray.kill(actor)
        self._pulses[actor].unlink(missing_ok=True)

    def close(self) -> None:
        """Kill all actors."""
        for actor in list(self._all):
            self.drop(actor)


@ray.remote(max_restarts=0, max_task_retries=0)
class _Mapper:
    """A worker of a map: creates its function once and applies it to shards."""

    def __init__(
        self,
        make: Callable[[Any], Callable[[Any], Any]],
        argument: Any,
        log_file: Path,
        isa: Path,
        pulse_file: Path,
        silence_seconds: float,
    ) -> None:
        self._log_file = log_file
        self._isa = isa
        self._pulse_file = pulse_file
        self._silence_seconds = silence_seconds
        self._make = make
        self._argument = argument
        self._function: Callable[[Any], Any] | None = None
        self._life = ExitStack()
        """The log and the pulse, which end with the actor: opened for each shard, they would cost more than a small shard."""

    def ready(self) -> None:
        """Return once the actor has started."""

    def apply(self, shard: Any) -> Any:
        """Return the result for a shard."""
        if self._function is None:  # not in the constructor: there an error of `make` would look like the actor's death
            logger = self._life.enter_context(logged(self._log_file))
            self._life.enter_context(pulse(self._pulse_file, self._silence_seconds))
            self._function = self._make(self._argument)
            record_isa_level(self._isa)
            logger.info("worker ready on node %s", _node())
        return self._function(shard)


def _node() -> str:
    return str(ray.get_runtime_context().get_node_id())


def _train_worker(settings: dict[str, Any]) -> None:
    from ray.train import get_context
    from ray.train.torch import get_device

    context = get_context()
    device = get_device()
    worker = TrainingWorker(
        rank=context.get_world_rank(),
        world_size=context.get_world_size(),
        device=str(device),
        threads=settings["threads"],
    )
    with logged(settings["log"]) as logger:
        logger.info("training worker %d of %d on node %s", worker.rank + 1, worker.world_size, _node())
        record_isa_level(settings["isa"])
        settings["loop"](settings["argument"], worker)


def options(resources: Resources, avoid: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return Ray's options for a worker that holds `resources`, on a node that is not in `avoid`."""
    return {
        "label_selector": _labels(avoid),
        "num_cpus": resources.cpus or 0,
        "num_gpus": resources.gpus,
        "memory": int(resources.memory_gib * 2**30) or None,
        "resources": dict(resources.custom),
    }


def _labels(avoid: tuple[str, ...]) -> dict[str, str]:
    return {"ray.io/node-id": f"!in({','.join(avoid)})"} if avoid else {}


def _bundle(resources: Resources) -> dict[str, float]:
    bundle = {"CPU": resources.cpus or 1.0, **resources.custom}
    if resources.gpus:
        bundle["GPU"] = resources.gpus
    if resources.memory_gib:
        bundle["memory"] = resources.memory_gib * 2**30
    return bundle
