"""Workers on Ray: an actor pool over shards, and Ray Train. Nothing else in stages knows Ray."""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import ray
from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    LocalRayletDiedError,
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayActorError,
    RayTaskError,
    WorkerCrashedError,
)

from models.training.worker import TrainingWorker
from stages.errors import FULL, FewstepError, StageError, TransientError, unwritable
from stages.workers import LocalWorkers, Resources
from stages.workers.logs import logged

A = TypeVar("A")
T = TypeVar("T")
R = TypeVar("R")

log = logging.getLogger("fewstep")

LOST = (
    ActorDiedError,
    ActorUnavailableError,
    LocalRayletDiedError,
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayActorError,
    WorkerCrashedError,
)
"""What Ray raises when a process or a node went away under the work: worth another attempt."""

MAX_DEATHS = 3
"""How often the workers of one shard may die before the shard is held to be the cause."""


@dataclass(frozen=True)
class RayWorkers:
    """Machines for one step, each worker holding `resources`."""

    resources: Resources
    name: str
    """Name of the step, for Ray's displays."""
    scratch: Path
    """Where Ray Train may keep its own files; dropped with the step's checkpoints."""
    log: Path
    """Log file of this attempt."""
    deaths: Path
    """Where the deaths of workers are told, a JSON object a line: {time, shard, seconds (of work that went with it), error}."""
    avoid: tuple[str, ...] = ()
    """Nodes that the workers are kept off."""

    def map(self, make: Callable[[A], Callable[[T], R]], argument: A, shards: Sequence[T]) -> Iterator[tuple[int, R]]:
        """See `stages.workers.Workers.map`. A dead actor is replaced and its shard given to another.

        A worker that is alone is this process, which need not be started: with it dies the attempt.
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
                    actor, index = pool.idle.pop(), waiting.popleft()
                    busy[actor.apply.remote(shards[index])] = (actor, index, time.time())
                (done,), _ = ray.wait([*busy, *pool.starting], num_returns=1)
                if done in pool.starting:
                    pool.started(done)
                    continue
                actor, index, begun = busy.pop(done)
                try:
                    result = ray.get(done)
                except LOST as error:
                    deaths[index] += 1
                    self._tell_death(index, time.time() - begun, error)
                    if deaths[index] == MAX_DEATHS:
                        raise StageError(
                            f"{self.name}: shard {index}: {MAX_DEATHS} workers died over it, the last so: {error}"
                        ) from error
                    log.warning("%s: a worker died on shard %d, another takes it: %s", self.name, index, error)
                    pool.drop(actor)
                    waiting.appendleft(index)
                except RayTaskError as error:
                    raise explained(error) from error
                else:
                    pool.idle.append(actor)
                    yield index, result
        finally:
            pool.close()

    @property
    def _here(self) -> LocalWorkers:
        return LocalWorkers(self.resources.threads)

    def _tell_death(self, shard: int, seconds: float, error: Exception) -> None:
        self.deaths.parent.mkdir(parents=True, exist_ok=True)
        line = {"time": time.time(), "shard": shard, "seconds": round(seconds, 3), "error": _first_line(error)}
        with self.deaths.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def train(self, loop: Callable[[A, TrainingWorker], None], argument: A) -> None:
        """See `stages.workers.Workers.train`. A dead worker ends the attempt with a TransientError; the next one resumes.

        One that is alone is this process: Ray Train would start three more, each of which imports torch.
        """
        if self.resources.alone:
            log.info("training worker 1 of 1 on node %s", _node())
            return self._here.train(loop, argument)
        from ray.train import RunConfig, ScalingConfig, TrainingFailedError  # here: takes seconds, which others are spared
        from ray.train.torch import TorchTrainer

        trainer = TorchTrainer(
            _train_worker,
            train_loop_config={"loop": loop, "argument": argument, "threads": self.resources.threads, "log": self.log},
            scaling_config=ScalingConfig(
                num_workers=self.resources.workers or 1,
                use_gpu=self.resources.gpus > 0,
                resources_per_worker=_bundle(self.resources),
                label_selector=_labels(self.avoid) or None,
            ),
            run_config=RunConfig(name="train", storage_path=str(self.scratch.absolute())),
        )
        try:
            trainer.fit()
        except Exception as error:
            raise explained(error, (RayTaskError, TrainingFailedError)) from error


class _Pool:
    """Up to `workers` actors. Work is given to those that have started alone: one that finds no room, since its node is gone, holds
    up nothing while there are others."""

    def __init__(self, workers: RayWorkers, make: Callable[..., Any], argument: Any) -> None:
        actor: Any = _Mapper
        held = options(workers.resources, workers.avoid)
        self._new: Callable[[], Any] = lambda: actor.options(**held).remote(make, argument, workers.log)
        self._limit = workers.resources.workers or 1
        self._all: list[Any] = []
        self._stillborn = 0
        self.idle: list[Any] = []
        self.starting: dict[Any, Any] = {}
        """What tells that an actor has started -> the actor."""

    def fill(self, needed: int) -> None:
        """Start actors, `needed` of them in all if so many may be."""
        while len(self._all) < min(self._limit, needed):
            actor = self._new()
            self._all.append(actor)
            self.starting[actor.ready.remote()] = actor

    def started(self, told: Any) -> None:
        """Take in an actor that has started, or did not live so long. Raises StageError when too many died at the start."""
        actor = self.starting.pop(told)
        try:
            ray.get(told)
            self.idle.append(actor)
        except LOST as error:
            self.drop(actor)
            self._stillborn += 1
            if self._stillborn > MAX_DEATHS * self._limit:
                raise StageError(f"{self._stillborn} workers died before they had started, the last so: {error}") from error
        except RayTaskError as error:
            raise explained(error) from error

    def drop(self, actor: Any) -> None:
        self._all.remove(actor)
        ray.kill(actor)

    def close(self) -> None:
        for actor in self._all:
            ray.kill(actor)


@ray.remote(max_restarts=0, max_task_retries=0)
class _Mapper:
    """One worker of a map: makes its function once, applies it to many shards."""

    def __init__(self, make: Callable[[Any], Callable[[Any], Any]], argument: Any, log_file: Path) -> None:
        self._log_file = log_file
        self._make, self._argument = make, argument
        self._function: Callable[[Any], Any] | None = None

    def ready(self) -> None:
        """Answered once the actor has started."""

    def apply(self, shard: Any) -> Any:
        with logged(self._log_file) as logger:
            if self._function is None:  # made here: what `make` raises in a constructor would pass for the actor's death
                self._function = self._make(self._argument)
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
        settings["loop"](settings["argument"], worker)


def options(resources: Resources, avoid: tuple[str, ...] = ()) -> dict[str, Any]:
    """Ray's options for one worker that holds `resources`, on none of the nodes to `avoid`."""
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


def explained(error: BaseException, shells: tuple[type[BaseException], ...] = (RayTaskError,)) -> FewstepError:
    """Ray's account of a failure as one of ours: what the stage raised, or a TransientError when a process was lost. `shells` only
    wrap what went wrong."""
    for cause in _causes(error):
        if isinstance(cause, FewstepError) and not isinstance(cause, RayTaskError):  # Ray's copy has a traceback for a message
            return cause
    for cause in _causes(error):
        if isinstance(cause, LOST):
            return TransientError(f"a worker or its node was lost: {_first_line(cause)}")
    roots = [cause for cause in _causes(error) if not isinstance(cause, shells)]
    root = roots[-1] if roots else error
    if isinstance(root, OSError) and root.errno in FULL:
        return unwritable(Path(root.filename or "a file of the store"), root)
    return StageError(f"{type(root).__name__}: {_first_line(root)}")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error and all that it wraps: causes, Ray's `cause`, and the failures of the workers of a training."""
    if error is None:
        return
    yield error
    for inner in (getattr(error, "cause", None), getattr(error, "health_check_failure", None), error.__cause__):
        if isinstance(inner, BaseException) and inner is not error:
            yield from _causes(inner)
    for inner in getattr(error, "worker_failures", {}).values():
        yield from _causes(inner)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
