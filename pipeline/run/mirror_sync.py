"""A run and its store's mirror: what the store lacks is fetched first; what is made is uploaded beside the work."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pipeline.plan.step import Plan, Step
from pipeline.run.history import Run
from pipeline.store.artifacts import Store
from pipeline.store.mirror import Mirror
from stages.errors import FewstepError, StageError

CHECKPOINT_SECONDS = 5.0
"""Between two looks for a new checkpoint."""


def reached(plan: Plan, has: Callable[[Step], bool]) -> list[Step]:
    """Steps that a run looks at: those that it is for, and what those need that `has` denies. In the order of the plan."""
    needed = {need for step in plan.steps for need in step.needs}
    wanted = {step.name for step in plan.steps if step.stage.product or step.name not in needed}
    for step in reversed(plan.steps):
        if step.name in wanted and not has(step):
            wanted.update(step.needs)
    return [step for step in plan.steps if step.name in wanted]


def fetchable(plan: Plan, store: Store, mirror: Mirror) -> list[Step]:
    """Steps whose artifacts the run needs, and the mirror holds while the store does not."""
    elsewhere: set[str] = set()

    def has(step: Step) -> bool:
        if store.manifest(step.directory) is not None:
            return True
        if mirror.holds(step.directory):
            elsewhere.add(step.name)
        return step.name in elsewhere

    return [step for step in reached(plan, has) if step.name in elsewhere]


def mirrored(url: str, plan: Plan, store: Store) -> set[str]:
    """Names of the steps that a run would fetch from the mirror at `url`, if there is one. Raises StageError as `Mirror` does."""
    return {step.name for step in fetchable(plan, store, Mirror(url, store))} if url else set()


def fetch(plan: Plan, store: Store, mirror: Mirror, record: Run) -> list[str]:
    """Bring what the run needs and the mirror holds; names of the steps. Raises as `Mirror.pull` does."""
    brought = []
    for step in fetchable(plan, store, mirror):
        if mirror.pull(step.directory):
            record.write_event("step_fetched", step=step.name, source=mirror.url.partition("?")[0])
            brought.append(step.name)
    return brought


class Uploads:
    """Sends finished artifacts, and new checkpoints of running trainings, from a thread of its own. Nothing it meets ends a run."""

    def __init__(self, mirror: Mirror, record: Run) -> None:
        self.failed: dict[str, FewstepError] = {}
        """Step -> why its artifact is not in the mirror."""
        self._mirror, self._record = mirror, record
        self._waiting: queue.SimpleQueue[Step | None] = queue.SimpleQueue()
        self._training: dict[str, Path] = {}
        self._sent: dict[Path, object] = {}
        self._thread = threading.Thread(target=self._work, name="mirror", daemon=True)
        self._thread.start()

    def add(self, steps: Iterable[Step]) -> None:
        """Send these finished artifacts, if the mirror lacks them."""
        for step in steps:
            self._training.pop(step.name, None)
            self._waiting.put(step)

    def began(self, step: Step, partial: Path) -> None:
        """A training runs: bring its checkpoint if there is none here, and send each new one. Raises as `Mirror.pull` does."""
        if step.stage.trains:
            if self._mirror.pull_checkpoints(partial):
                self._record.write_event("checkpoint_fetched", step=step.name)
            self._training[step.name] = partial

    def close(self) -> None:
        """Send what is left, and say so in the record of the run."""
        self._waiting.put(None)
        self._thread.join()
        for step, error in self.failed.items():
            self._record.write_event("mirror_failed", step=step, error=str(error))

    def _work(self) -> None:
        while True:
            try:
                step = self._waiting.get(timeout=CHECKPOINT_SECONDS)
            except queue.Empty:
                self._send_checkpoints()
                continue
            if step is None:
                self._send_checkpoints()
                return
            self._send(step)

    def _send(self, step: Step) -> None:
        try:
            if self._mirror.push(step.directory):
                self._record.write_event("step_mirrored", step=step.name)
                if step.stage.trains:
                    self._mirror.drop_checkpoints(self._mirror.store.partial(step.directory))
        except Exception as error:
            self.failed[step.name] = _explained(error)

    def _send_checkpoints(self) -> None:
        for name, partial in list(self._training.items()):
            latest = _latest(partial)
            if latest is None or self._sent.get(partial) == latest:
                continue
            try:
                if self._mirror.push_checkpoints(partial):
                    self._sent[partial] = latest
                    self._record.write_event("checkpoint_mirrored", step=name)
            except Exception as error:  # the next one may get there
                self._record.write_event("mirror_failed", step=name, error=str(_explained(error)))


def _explained(error: Exception) -> FewstepError:
    return error if isinstance(error, FewstepError) else StageError(f"{type(error).__name__}: {error}")


def _latest(partial: Path) -> Any:
    """Update and time of the newest checkpoint."""
    found = [(int(path.name), path.stat().st_mtime_ns) for path in partial.glob("checkpoints/*") if path.name.isdigit()]
    return max(found, default=None)
