"""One attempt at one step, wherever it runs: verify the inputs, run the stage, commit the artifact."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from kernels import durable
from pipeline.plan.code_digest import code_digest, git_revision
from pipeline.plan.fingerprint import artifacts, canonical, external_files
from pipeline.plan.step import Step
from pipeline.run.lease import step_lease
from pipeline.store.artifacts import Manifest, Store
from stages.artifacts import STOP
from stages.context import StepContext
from stages.errors import FULL, TransientError, unwritable
from stages.workers import Resources, Workers
from stages.workers.logs import logged

PACKAGES = ("torch", "numpy", "pyarrow", "sentencepiece", "sacrebleu", "ray")


@dataclass(frozen=True)
class Order:
    """What a machine needs to know to attempt a step. Picklable."""

    step: Step
    store: Path
    run_id: str
    driver: str
    """Id of the driver, which holds the lease of the step."""
    attempt: str
    resources: Resources
    log: Path
    checkpoint_seconds: float
    microbatch_tokens: int
    avoid: tuple[str, ...] = ()
    """Nodes that its workers are kept off."""


def perform(order: Order, workers: Workers) -> None:
    """Attempt the step. Raises FewstepError (explained) or whatever the stage raised; its traceback is in the log.

    An attempt that outlived its driver commits nothing: it ends with a TransientError.
    """
    store = Store(order.store)
    partial = store.partial(order.step.directory)
    started = time.time()
    with logged(order.log) as log:
        log.info("%s attempt %s in %s", order.step.name, order.attempt, partial)
        try:
            for _, artifact in artifacts(order.step.inputs):
                store.verify(artifact.path)
            durable.make_directory(partial)
            (partial / STOP).unlink(missing_ok=True)
            order.step.stage.run(order.step.inputs, order.step.config, _work(order, store, partial, workers))
            for _, file in external_files(order.step.inputs):
                store.check_unchanged(file)
            _check_lease(order)
            store.commit(order.step.directory, _manifest(order, time.time() - started))
            log.info("done in %.1f s", time.time() - started)
        except BaseException as error:
            log.exception("%s", type(error).__name__)
            if isinstance(error, Exception):
                _check_lease(order)
            if isinstance(error, OSError) and error.errno in FULL:
                raise unwritable(Path(error.filename or partial), error) from error
            raise


def _check_lease(order: Order) -> None:
    if not step_lease(order.step.directory, order.driver, 0.0).held():
        raise TransientError("its driver was silent for so long that another has taken the step over")


def _work(order: Order, store: Store, partial: Path, workers: Workers) -> StepContext:
    return StepContext(
        directory=partial,
        attempt=order.attempt,
        workers=workers,
        resources=order.resources,
        shard_cache=store.shard_cache,
        checkpoint_seconds=order.checkpoint_seconds,
        microbatch_tokens=order.microbatch_tokens,
    )


def _manifest(order: Order, seconds: float) -> Manifest:
    step = order.step
    return Manifest(
        stage=step.stage.name,
        version=step.stage.version,
        step=step.name,
        fingerprint=step.fingerprint,
        config=canonical(step.config, keep_defaults=True),
        inputs=input_fingerprints(step.inputs),
        environment=environment(order.resources),
        code_digest=code_digest(step.stage.module),
        git_revision=git_revision(),
        run_id=order.run_id,
        attempt=order.attempt,
        seconds=round(seconds, 3),
        finished=time.time(),
    )


def input_fingerprints(inputs: object) -> dict[str, str]:
    """Dotted name of every leaf of the inputs -> fingerprint or digest."""
    flat: dict[str, str] = {}

    def walk(value: Any, name: str) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                walk(item, f"{name}.{key}" if name else str(key))
        elif isinstance(value, list):
            for index, item in enumerate(value):
                walk(item, f"{name}.{index}")
        else:
            flat[name] = str(value)

    walk(canonical(inputs), "")
    return flat


def environment(resources: Resources) -> dict[str, Any]:
    """Where and with what a step ran: host, processor, workers and their threads, versions."""
    return {
        "host": platform.node(),
        "processor": _processor(),
        "cpus_of_host": os.cpu_count(),
        "workers": resources.workers,
        "cpus": resources.cpus,
        "gpus": resources.gpus,
        "threads": resources.threads,
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
    }


@cache
def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
