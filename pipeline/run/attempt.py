"""One attempt at one step, wherever it runs: verify the inputs, run the stage, commit the artifact."""

from __future__ import annotations

import functools
import os
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from fewstep.access import access_problem
from pipeline.plan.code_digest import code_digest, git_revision
from pipeline.plan.fingerprint import artifacts, canonical, external_files, input_fingerprints
from pipeline.plan.freshness import contents, input_manifests
from pipeline.plan.step import Step
from pipeline.run.origins import origins
from pipeline.run.run_directory import Run
from pipeline.run.timeline import timeline
from pipeline.store.artifacts import Store
from pipeline.store.attempts import partial_directory
from pipeline.store.lease import step_lease
from pipeline.store.manifest import Manifest
from stages.artifacts import CHECKPOINTS, SHARDS
from stages.context import StepContext
from stages.errors import FULL, StageError, TransientError, unwritable
from stages.workers import Resources, Workers
from stages.workers.isa import ISA, record_isa_level, recorded_isa_levels
from stages.workers.logs import logged

PACKAGES = ("torch", "numpy", "pyarrow", "sentencepiece", "sacrebleu", "ray")


@dataclass(frozen=True)
class StepAttempt:
    """One attempt of a driver at a step, with everything that the machine which runs it needs. Picklable."""

    step: Step
    store: Path
    run_id: str
    id: str
    """Id of the attempt, which holds the lease of the step, and which its temporary files carry in their names."""
    resources: Resources
    log: Path
    checkpoint_seconds: float
    num_shares: int
    microbatch_tokens: int
    silence_seconds: float
    mirror: str = ""
    """URL of the mirror, for an attempt on a machine that does not share the store."""
    node_store: str = ""
    """Store of such a machine; environment variables are expanded there. Empty: the machines share the driver's store."""
    excluded_nodes: tuple[str, ...] = ()
    """Ids of the nodes on which it may not run."""

    again: bool = False
    """Whether the step was made before, so that caches are not read."""
    replaces: tuple[str, ...] = ()
    """Attempts whose artifacts it replaces."""
    contents: Mapping[str, str] = field(default_factory=dict)
    """Content of the inputs in the driver's store, for a machine with a store of its own."""

    @property
    def pulse_file(self) -> Path:
        """The file that the process of the attempt touches while it runs, if it is not the driver's."""
        return self.log.with_name(f"{self.log.name}.pulse")


def run_attempt(attempt: StepAttempt, workers: Workers) -> None:
    """Run the stage and commit its artifact.

    The driver has made the directory of the attempt. Raises whatever the stage raises, whose traceback is then in the log, and
    LeaseLostError if the driver lost the step's lease: the artifact is then not committed.
    """
    store = Store(attempt.store)
    partial = partial_directory(attempt.step.directory, attempt.id)
    lease = step_lease(attempt.step.directory, attempt.id, 0.0)
    started = time.time()
    with logged(attempt.log) as log:
        log.info("%s attempt %s in %s", attempt.step.name, attempt.id, partial)
        try:
            for _, artifact in artifacts(attempt.step.inputs):
                store.verify(artifact.path)
            # Compared after the stage has run: `run --force` may recompute an input meanwhile.
            read = contents(attempt.step, store)
            record_isa_level(partial / ISA)
            rebuilt = attempt.again or any(one.rebuilt for one in input_manifests(attempt.step, store).values())
            context = _context(attempt, store, partial, workers, rebuilt)
            attempt.step.stage.run(attempt.step.inputs, attempt.step.config, context)
            if contents(attempt.step, store) != read:
                raise TransientError(f"{attempt.step.name}: an input was recomputed (run --force) while it was read")
            # Fingerprints hold the digests of planning; a file that changed since would be filed under the wrong one.
            for _, file in external_files(attempt.step.inputs):
                store.check_unchanged(file)
            levels = recorded_isa_levels(partial / ISA)
            if len(levels) > 1:
                log.warning(
                    "computed on processors of different levels, %s; results are reproducible on one level", ", ".join(levels)
                )
            store.commit(attempt.step.directory, _manifest(attempt, partial, levels, time.time() - started, read, rebuilt), lease)
            log.info("done in %.1f s", time.time() - started)
        except BaseException as error:
            log.exception("%s", type(error).__name__)
            if isinstance(error, Exception):
                # Another attempt that has taken the directory away explains whatever else failed.
                lease.check()
            if isinstance(error, OSError) and error.errno in FULL:
                raise unwritable(Path(error.filename or partial), error) from error
            if isinstance(error, PermissionError) and error.filename:
                raise StageError(access_problem(error.filename, error)) from error
            raise


def _context(attempt: StepAttempt, store: Store, partial: Path, workers: Workers, rebuilt: bool) -> StepContext:
    return StepContext(
        directory=partial,
        attempt=attempt.id,
        workers=workers,
        resources=attempt.resources,
        shard_cache=partial / CHECKPOINTS / SHARDS if rebuilt else store.shard_cache,
        checkpoint_seconds=attempt.checkpoint_seconds,
        num_shares=attempt.num_shares,
        microbatch_tokens=attempt.microbatch_tokens,
        timeline=functools.partial(timeline, Run(store.runs / attempt.run_id)) if not attempt.node_store else tuple,
    )


def _manifest(attempt: StepAttempt, partial: Path, isa: list[str], seconds: float, read: dict[str, str], rebuilt: bool) -> Manifest:
    step = attempt.step
    return Manifest(
        stage=step.stage.name,
        version=step.stage.version,
        step=step.name,
        fingerprint=step.fingerprint,
        config=canonical(step.config, keep_defaults=True),
        inputs=input_fingerprints(step.inputs),
        environment=environment(attempt.resources) | {"isa": isa},
        code_digest=code_digest(step.stage.module),
        git_revision=git_revision(),
        run_id=attempt.run_id,
        attempt=attempt.id,
        seconds=round(seconds, 3),
        finished=time.time(),
        origin=origins(step, partial),
        contents=read,
        replaces=list(attempt.replaces),
        rebuilt=rebuilt,
    )


def environment(resources: Resources) -> dict[str, Any]:
    """Return the machine, resources and package versions with which a step runs."""
    return {
        "host": platform.node(), "processor": _processor(), "cpus_of_host": os.cpu_count(), "workers": resources.workers,
        "cpus": resources.cpus, "gpus": resources.gpus, "threads": resources.threads, "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
    }  # fmt: skip


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
