"""Attempts on machines that share no disk with the driver: the mirror brings their inputs and takes their results.

Each machine has a store of its own (`cluster.node_store`). A step runs in one process there. What it made is then fetched into the
driver's store, as if another machine had filled the mirror.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from pipeline.plan.fingerprint import artifacts, external_files
from pipeline.plan.freshness import contents
from pipeline.run.attempt import StepAttempt, run_attempt
from pipeline.run.machines import as_one_worker
from pipeline.run.run_directory import Run
from pipeline.run.transfers import Uploads
from pipeline.store.artifacts import Store
from pipeline.store.attempts import begin_attempt, discard_attempts
from pipeline.store.files import discard
from pipeline.store.lease import Lease, step_lease
from pipeline.store.marker import open_store
from pipeline.store.mirror import Mirror
from stages.artifacts import Artifact
from stages.errors import ArtifactError, FewstepError, StageError, TransientError
from stages.workers import LocalWorkers, Resources

LEASE_SECONDS = 60.0
"""Seconds after which a step may be taken from a process of the same machine that is gone unseen."""


@dataclass(frozen=True)
class Ending:
    """The end of an attempt on another machine."""

    error: FewstepError | None
    log: str


def runs_apart(attempt: StepAttempt) -> bool:
    """Return whether an attempt runs apart from the driver's disk. Steps that read files of the user run beside them."""
    return bool(attempt.node_store) and not list(external_files(attempt.step.inputs))


def send_inputs(attempt: StepAttempt) -> None:
    """Upload the inputs of an attempt unless the mirror has them. Raises as `Mirror.push` does."""
    mirror = Mirror(attempt.mirror, Store(attempt.store))
    for _, artifact in artifacts(attempt.step.inputs):
        mirror.push(artifact.path)


def resources_apart(attempt: StepAttempt, nodes: Mapping[str, Mapping[str, float]]) -> Resources:
    """Return the resources of the one process of an attempt: those of all its workers, as far as one machine has them."""
    whole = as_one_worker(attempt)
    return replace(whole, cpus=min(whole.cpus or 1.0, max(1.0, *(node.get("CPU", 0.0) for node in nodes.values()))))


def run_apart(attempt: StepAttempt) -> Ending:
    """Run an attempt on this machine, and upload its artifact and the checkpoints of a training."""
    root = Path(os.path.expandvars(attempt.node_store)).expanduser().absolute()
    try:
        store = open_store(root)
        here = _moved_attempt(attempt, store)
        try:
            _run(here, Mirror(attempt.mirror, store), store)
        except FewstepError as error:
            return Ending(error, _log(here))
        return Ending(None, _log(here))
    except FewstepError as error:
        return Ending(error, "")


def take_in(attempt: StepAttempt, ending: Ending) -> FewstepError | None:
    """Take the log and the artifact of an attempt into the driver's store. Return the error of the attempt, or of the transfer."""
    attempt.log.write_text(ending.log, encoding="utf-8")
    if ending.error is not None:
        return ending.error
    try:
        if Mirror(attempt.mirror, Store(attempt.store)).pull(attempt.step.directory, attempt.replaces):
            discard_attempts(attempt.step.directory, None)
            return None
    except FewstepError as error:
        return error
    return TransientError(f"{attempt.step.name}: its machine has finished it, but the mirror lacks the artifact")


def _run(attempt: StepAttempt, mirror: Mirror, store: Store) -> None:
    directory = attempt.step.directory
    for name, artifact in artifacts(attempt.step.inputs):
        if contents(attempt.step, store).get(name, "") != attempt.contents.get(name, "") and store.manifest(artifact.path):
            discard(artifact.path, store.host)  # of before it was recomputed
        if store.manifest(artifact.path) is None and not mirror.pull(artifact.path):
            raise ArtifactError(f"{attempt.step.name}: input {name}: expected {artifact.path.name} in the mirror, got nothing")
    lease = step_lease(directory, attempt.id, LEASE_SECONDS, store.host)
    if not lease.acquire():
        raise TransientError(f"{directory}: another attempt works on this step on the same machine")
    record = Run(store.runs / attempt.run_id)
    attempt.log.parent.mkdir(parents=True, exist_ok=True)
    try:
        with _renewed(lease):
            partial = begin_attempt(directory, lease, store.host)
            uploads = Uploads(mirror, record)
            try:
                uploads.training_started(attempt.step, partial, lease)
                if store.manifest(directory) is None:
                    run_attempt(attempt, LocalWorkers(attempt.resources.threads, "cuda:0" if attempt.resources.gpus else "cpu"))
                uploads.add([attempt.step])
            finally:
                uploads.close()
    finally:
        lease.release()
    for error in uploads.failed.values():
        raise StageError(f"{attempt.step.name}: could not be uploaded to the mirror: {error}") from error


@contextmanager
def _renewed(lease: Lease) -> Iterator[None]:
    over = threading.Event()

    def loop() -> None:
        while not over.wait(LEASE_SECONDS / 6):
            lease.renew()

    thread = threading.Thread(target=loop, name="lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _moved_attempt(attempt: StepAttempt, store: Store) -> StepAttempt:
    """Return the attempt with paths in the store of this machine."""
    step = attempt.step
    moved = replace(step, inputs=_moved(step.inputs, store), directory=store.directory(step.stage.name, step.fingerprint))
    return replace(attempt, step=moved, store=store.root, log=Run(store.runs / attempt.run_id).log(step.name, attempt.id))


def _moved(value: Any, store: Store) -> Any:
    """Return inputs whose artifacts are in a store, by the names of their stage and fingerprint, as in the mirror."""
    if isinstance(value, Artifact):
        return replace(value, path=store.directory(value.path.parent.name, value.path.name))
    if isinstance(value, Mapping):
        return {key: _moved(item, store) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(_moved(item, store) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: _moved(getattr(value, field.name), store) for field in fields(value) if field.init})
    return value


def _log(attempt: StepAttempt) -> str:
    try:
        return attempt.log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
