"""Transfers between a store and its mirror: artifacts are fetched before a run, and uploaded while it goes on."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pipeline.plan.step import Plan, Step
from pipeline.run.run_directory import Run
from pipeline.store.artifacts import Store
from pipeline.store.lease import Lease
from pipeline.store.mirror import Mirror
from stages.errors import ArtifactError, FewstepError, StageError

CHECKPOINT_SECONDS = 5.0
"""Interval at which running trainings are searched for new checkpoints."""


def fetchable(plan: Plan, store: Store, mirror: Mirror) -> list[Step]:
    """Return the steps whose artifacts a run needs and the mirror has, but the store does not."""
    in_mirror: set[str] = set()

    def present(step: Step) -> bool:
        if store.manifest(step.directory) is not None:
            return True
        if mirror.holds(step.directory):
            in_mirror.add(step.name)
        return step.name in in_mirror

    return [step for step in plan.needed(present) if step.name in in_mirror]


def mirrored(url: str, plan: Plan, store: Store) -> set[str]:
    """Return the names of the steps that a run would fetch from the mirror at `url`. Raises StageError as `Mirror` does."""
    return {step.name for step in fetchable(plan, store, Mirror(url, store))} if url else set()


def fetch(plan: Plan, store: Store, mirror: Mirror, record: Run) -> tuple[list[str], dict[str, FewstepError]]:
    """Download the artifacts of all `fetchable` steps. Return the names of the steps, and the errors of damaged copies by step.

    Raises StageError as `Mirror.pull` does.
    """
    fetched = list[str]()
    damaged = dict[str, FewstepError]()
    for step in fetchable(plan, store, mirror):
        try:
            found = mirror.pull(step.directory)
        except ArtifactError as error:
            damaged[step.name] = error
            continue
        if found:
            record.write_event("step_fetched", step=step.name, source=mirror.url.partition("?")[0])
            fetched.append(step.name)
    return fetched, damaged


class Uploads:
    """A thread that uploads finished artifacts and new checkpoints of running trainings. Its failures do not end a run."""

    def __init__(self, mirror: Mirror, record: Run) -> None:
        self.failed: dict[str, FewstepError] = {}
        """The errors of artifacts that were not uploaded, by step."""
        self._mirror = mirror
        self._record = record
        self._finished: queue.SimpleQueue[Step | None] = queue.SimpleQueue()
        self._trainings: dict[str, tuple[Step, Path, Lease]] = {}
        """The directory and the lease of each running attempt at a training, by step."""
        self._sent: dict[Path, object] = {}
        self._thread = threading.Thread(target=self._loop, name="mirror", daemon=True)
        self._thread.start()

    def add(self, steps: Iterable[Step]) -> None:
        """Upload these finished artifacts unless the mirror has them."""
        for step in steps:
            self._trainings.pop(step.name, None)
            self._finished.put(step)

    def training_started(self, step: Step, partial: Path, lease: Lease) -> None:
        """Upload new checkpoints of an attempt at a training until another attempt has its lease.

        First download the checkpoint in the mirror if the store has none. Steps that do not train are ignored. Raises as
        `Mirror.pull` does.
        """
        if step.stage.trains:
            if self._mirror.pull_checkpoints(step.directory, partial):
                self._record.write_event("checkpoint_fetched", step=step.name)
            self._trainings[step.name] = (step, partial, lease)

    def close(self) -> None:
        """Wait for the remaining uploads."""
        self._finished.put(None)
        self._thread.join()

    def _loop(self) -> None:
        while True:
            try:
                step = self._finished.get(timeout=CHECKPOINT_SECONDS)
            except queue.Empty:
                self._upload_checkpoints()
                continue
            if step is None:
                self._upload_checkpoints()
                return
            self._upload(step)

    def _upload(self, step: Step) -> None:
        try:
            if self._mirror.push(step.directory):
                self._record.write_event("step_mirrored", step=step.name)
                if step.stage.trains:
                    self._mirror.drop_checkpoints(step.directory)
        except Exception as error:
            self.failed[step.name] = _explained(error)
            self._record.write_event("mirror_failed", step=step.name, error=str(self.failed[step.name]))

    def _upload_checkpoints(self) -> None:
        for name, (step, partial, lease) in list(self._trainings.items()):
            latest = _latest_checkpoint(partial)
            if latest is None or self._sent.get(partial) == latest:
                continue
            try:
                if self._mirror.push_checkpoints(step.directory, partial, lease):
                    self._sent[partial] = latest
                    self._record.write_event("checkpoint_mirrored", step=name)
            except Exception as error:  # a later checkpoint may be uploaded
                self._record.write_event("mirror_failed", step=name, error=str(_explained(error)))


def _explained(error: Exception) -> FewstepError:
    return error if isinstance(error, FewstepError) else StageError(f"{type(error).__name__}: {error}")


def _latest_checkpoint(partial: Path) -> Any:
    """Return the update and time of the newest checkpoint, or None."""
    found = [(int(path.name), path.stat().st_mtime_ns) for path in partial.glob("checkpoints/*") if path.name.isdigit()]
    return max(found, default=None)
