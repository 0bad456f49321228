"""The machines that steps run on: the nodes of a Ray cluster, or this process, which runs one step after another."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from typing import Protocol

from fewstep.threads import max_threads
from pipeline.config.schema import Cluster
from pipeline.run.attempt import StepAttempt, run_attempt
from stages.errors import FULL, FewstepError, StageError, TransientError, unwritable
from stages.workers import LocalWorkers, Resources

Outcome = tuple[str, FewstepError | None]
"""The name of a step and the error of its attempt, or None for success."""


class Machines(Protocol):
    """Machines that run attempts at steps and report the ended ones."""

    @property
    def nodes(self) -> dict[str, dict[str, float]]:
        """The resources of each live node by node id: CPU, GPU, memory (bytes) and custom resources."""
        ...

    @property
    def max_threads(self) -> int | None:
        """The limit of threads that the user's environment sets on these machines, or None."""
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

    @property
    def max_threads(self) -> int | None:
        return max_threads()

    def start(self, attempt: StepAttempt) -> None:
        attempt = replace(attempt, resources=as_one_worker(attempt))
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


def as_one_worker(attempt: StepAttempt) -> Resources:
    """Return the resources of a single worker: a map's worker gets the CPUs of all, a training's worker its own."""
    granted = attempt.resources
    workers = 1 if attempt.step.stage.trains else granted.workers or 1
    return replace(granted, workers=1, cpus=(granted.cpus or 1.0) * workers)


def _visible_gpus() -> int:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([part for part in visible.split(",") if part.strip() not in ("", "-1")])
    return len([name for name in os.listdir("/dev") if name.startswith("nvidia") and name[6:].isdigit()])
