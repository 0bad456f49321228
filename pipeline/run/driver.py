"""The driver of a run: it owns steps by leases, starts attempts on the machines and takes in their outcomes."""

from __future__ import annotations

import getpass
import os
import socket
import sys
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from pipeline.config.schema import RunConfig
from pipeline.plan.code_digest import git_revision
from pipeline.plan.freshness import changed_inputs, contents
from pipeline.plan.step import Step
from pipeline.run import admission
from pipeline.run.attempt import StepAttempt
from pipeline.run.lost_work import interrupted, lost_seconds, worker_deaths
from pipeline.run.machines import Machines
from pipeline.run.run_directory import HEARTBEAT_SECONDS, Run
from pipeline.run.transfers import Uploads
from pipeline.store.artifacts import Store
from pipeline.store.attempts import begin_attempt, partial_directory
from pipeline.store.lease import Lease, step_lease
from pipeline.store.manifest import Manifest
from stages.artifacts import STOP
from stages.errors import FewstepError, LeaseLostError, TransientError
from stages.workers import LimitedResources, Resources

STOP_SECONDS = 20.0
"""Time in which interrupted steps may save their state."""


class Driver:
    """One process that executes the steps of a run. Several drivers can share a run; one of them owns it."""

    def __init__(
        self,
        config: RunConfig,
        store: Store,
        record: Run,
        todo: list[Step],
        id: str,
        uploads: Uploads | None = None,
        refused: Mapping[str, FewstepError] | None = None,
        forced: Collection[str] = (),
    ) -> None:
        """`todo`: the steps to execute, in order. `id` identifies the driver in leases and attempts. `refused`: steps that fail
        because their copies in the mirror are damaged, with the errors. `forced`: steps to rerun."""
        self.id = id
        self.record = record
        self.failed: dict[str, FewstepError] = {}
        self.done: list[str] = []
        self._config = config
        self._store = store
        self._record = record
        self._uploads = uploads
        self._host = store.host
        self._requests: dict[str, Resources] = {str(name): request for name, request in config.cluster.resources.items()}
        self._pending = {step.name: step for step in todo}
        self._refused = dict(refused or {})
        earlier = {step.name: found for step in todo if (found := store.manifest(step.directory)) is not None}
        self._forced = {name: earlier[name].attempt if name in earlier else None for name in forced}
        """The attempts whose artifacts are to be recomputed, by step."""
        self._doubtful = set(earlier)
        """Steps with an artifact of which it is not known yet whether it is kept: a step before them is rerun, or they are
        forced."""
        self._running: dict[str, StepAttempt] = {}
        self._started: dict[str, float] = {}
        self._tries: dict[str, int] = {}
        """Attempts at each step that did not lose their lease. Only they count against `cluster.retries`."""
        self._attempts = 0
        self._leases: dict[str, Lease] = {}
        """The leases of running attempts, and those that are watched because another driver holds them."""
        self._waiting_for_driver: set[str] = set()
        self._waiting_for_nodes: dict[str, float] = {}
        """Time since which no node could run a step."""
        self._reduced: dict[str, Resources] = {}
        """The requests of trainings that go on with fewer workers, by step."""
        self._until: str | None = None
        self._run_lease = Lease(record.path / "driver.lease", id, config.store.lease_seconds, store.host)
        self.owns_run = self._run_lease.acquire_or_meet()
        """Whether no other driver works on the run. Only its owner publishes it and changes its status."""

    def record_start(self, until: str | None = None) -> None:
        """Record the start of the driver, the step or stage with which it ends, and the work that was lost with an earlier one."""
        self._until = until
        lost, ended = interrupted(self._record, list(self._pending.values())) if self.owns_run else ({}, 0.0)
        self._record.write_event(
            "run_started",
            attempt=self.id,
            first=self.owns_run,
            **process_facts(),
            command=" ".join(sys.argv),
            until=until,
            **({"lost": lost, "lost_seconds": sum(lost.values()), "ended": ended} if lost else {}),
        )

    def execute(self, machines: Machines) -> None:
        """Execute all steps whose inputs do not fail. Failed steps are in `failed` afterwards.

        KeyboardInterrupt is raised again after the running steps had time to save their state.
        """
        status = "stopped"
        try:
            for refused, reason in self._refused.items():
                self._fail(self._pending[refused], reason)
            self._fail_oversized_steps(machines)
            while self._pending or self._running:
                self._skip_blocked_steps()
                self._start_steps(machines)
                ended = machines.finished(1.0 if self._running else 0.0)
                for name, error in ended:
                    self._take_outcome(name, error)
                if self._pending and not (self._running or ended):  # the pending steps wait for another driver
                    self._host.sleep(0.2)
            status = "failed" if self.failed else "done"
        except KeyboardInterrupt:
            self._stop_running_steps(machines)
            raise
        finally:
            # Other drivers take over at once instead of waiting until the leases expire.
            for lease in self._leases.values():
                lease.release()
            try:
                owns_run = self._run_lease.acquire()  # unless the driver lost it, or the other driver has ended
                self._record.write_event("run_finished", status=status, attempt=self.id, first=owns_run)
            finally:
                self._run_lease.release()

    @contextmanager
    def heartbeat(self) -> Iterator[None]:
        """Renew the driver's leases and the run's heartbeat from a thread."""
        over = threading.Event()

        def loop() -> None:
            while not over.wait(min(HEARTBEAT_SECONDS, self._config.store.lease_seconds / 5)):
                self.renew_leases()
                self._take_over()

        self._record.heartbeat.touch()
        thread = threading.Thread(target=loop, name="heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def renew_leases(self) -> None:
        """Renew the leases that the driver holds, and the run's heartbeat."""
        with suppress(OSError):  # a transient failure of the file system does not end the heartbeat
            self._record.heartbeat.touch()
        for lease in [self._run_lease, *list(self._leases.values())]:
            with suppress(OSError, TransientError):
                lease.renew()

    def _take_over(self) -> None:
        """Own the run if the driver that owned it has ended: with `--until`, its part of the run was smaller."""
        with suppress(OSError, FewstepError):
            if not self.owns_run and self._run_lease.acquire():
                self.owns_run = True
                self._record.write_event("run_taken_over", attempt=self.id, until=self._until)

    def _requested(self, step: Step) -> Resources:
        return self._requests.get(step.stage.name, Resources())

    def _demand(self, step: Step) -> admission.Demand:
        return step.stage, self._reduced.get(step.name, self._requested(step))

    def _fail_oversized_steps(self, machines: Machines) -> None:
        """Fail steps that the nodes could never run, and start no other: hours would be spent before the user hears of it.

        Undecided steps, whose artifacts may be kept, are left to their turn.
        """
        certain = [step for step in self._pending.values() if step.name in self._forced or step.name not in self._doubtful]
        for step in certain:
            try:
                admission.admit(self._demand(step), machines.nodes, (), ())
            except FewstepError as error:
                if admission.reduced(self._demand(step), machines.nodes) is None:
                    self._fail(step, error)
        if oversized := [step.name for step in certain if step.name in self.failed and step.name not in self._refused]:
            for name in list(self._pending):
                del self._pending[name]
                self._record.write_event("step_skipped", step=name, error=f"not started: no machine can run {', '.join(oversized)}")

    def _skip_blocked_steps(self) -> None:
        """Skip steps whose inputs failed."""
        blocked = set(self.failed)
        for step in list(self._pending.values()):
            cause = next((need for need in step.needs if need in blocked), None)
            if cause is not None:
                blocked.add(step.name)
                del self._pending[step.name]
                self._record.write_event("step_skipped", step=step.name, error=f"needs {cause}, which failed")

    def _start_steps(self, machines: Machines) -> None:
        for step in list(self._pending.values()):
            if any(need in self._pending or need in self._running or need in self.failed for need in step.needs):
                continue
            if step.name in self._doubtful:
                self._doubtful.discard(step.name)
                if self._finished(step) is not None:
                    del self._pending[step.name]
                    record_hit(self._record, self._store, step)
                    continue
            # A step that measures time is alone on the machines.
            if any(attempt.step.stage.exclusive for attempt in self._running.values()):
                return
            running = [(attempt.step.stage, attempt.resources) for attempt in self._running.values()]
            pending = [self._demand(other) for other in self._pending.values()]
            try:
                admitted = admission.admit(self._demand(step), machines.nodes, running, pending)
            except FewstepError as error:
                self._wait_for_nodes(step, error, machines)
                continue
            # The machines are there again; if they are lost once more, the whole time to wait begins again.
            self._waiting_for_nodes.pop(step.name, None)
            if admitted is not None and self._lease(step):
                self._start(step, admitted, machines)

    def _wait_for_nodes(self, step: Step, error: FewstepError, machines: Machines) -> None:
        """Wait for new nodes, because those that could run the step are lost.

        After the configured time, a training goes on with fewer workers if it may, and any other step fails.
        """
        now = self._host.monotonic()
        limit = self._config.cluster.node_wait_seconds
        if step.name not in self._waiting_for_nodes:
            self._waiting_for_nodes[step.name] = now
            reason = f"machines are gone, up to {limit:g} s for others (cluster.node_wait_seconds): {error}"
            self._record.write_event("step_waiting", step=step.name, error=reason)
        if now - self._waiting_for_nodes[step.name] < limit:
            return
        requested = self._requested(step)
        if (fewer := admission.reduced((step.stage, requested), machines.nodes)) is None:
            self._fail(step, error)
            return
        self._reduced[step.name] = fewer
        reason = f"no other machines came within {limit:g} s: it goes on with {fewer.workers} of {requested.workers} workers"
        self._record.write_event("step_waiting", step=step.name, error=reason)

    def _finished(self, step: Step) -> Manifest | None:
        """Return the manifest of a step's artifact unless the step has to be run, or rerun. Raises ArtifactError."""
        found = self._store.manifest(step.directory)
        if found is None or found.attempt == self._forced.get(step.name) or changed_inputs(step, found, self._store):
            return None
        return found

    def _lease(self, step: Step) -> bool:
        """Take the step's lease for a new attempt. Return False if another driver works on the step or has just finished it."""
        lease = self._leases.get(step.name)
        if lease is None:
            self._attempts += 1
            id = f"{self.id}-{self._attempts}"
            lease = self._leases[step.name] = step_lease(step.directory, id, self._config.store.lease_seconds, self._host)
        try:
            taken = lease.acquire()
        except FewstepError as error:
            del self._leases[step.name]
            self._count_failure(step, error)
            return False
        if not taken:
            if step.name not in self._waiting_for_driver:
                self._waiting_for_driver.add(step.name)
                self._record.write_event("step_waiting", step=step.name, error=f"another driver works on it: {_described(lease)}")
            return False
        return True

    def _start(self, step: Step, admitted: admission.Admission, machines: Machines) -> None:
        lease = self._leases[step.name]
        try:
            partial = begin_attempt(step.directory, lease, self._host)
            found = self._finished(step)  # no other attempt can commit from now on
            if found is None and self._uploads and not self._config.cluster.node_store:
                self._uploads.training_started(step, partial, lease)
                found = self._finished(step)  # drivers fetch artifacts from the mirror without a lease
                if found is not None:
                    self._uploads.add([step])
        except FewstepError as error:
            lost = isinstance(error, LeaseLostError) or (not isinstance(error, TransientError) and not lease.held())
            self._leases.pop(step.name).release()
            if not lost:  # else it is pending as before
                self._count_failure(step, error)
            return
        if found is not None:  # another driver has just finished it
            self._host.disk.remove_tree(partial)
            self._leases.pop(step.name).release()
            del self._pending[step.name]
            record_hit(self._record, self._store, step)
            return
        attempt = self._new_attempt(step, admitted, lease.owner, machines.max_threads)
        del self._pending[step.name]
        self._reduced.pop(step.name, None)  # the next attempt asks for all workers again
        self._running[step.name] = attempt
        self._started[step.name] = self._host.time()
        self._record.write_event(
            "step_started",
            step=step.name,
            step_attempt=attempt.id,
            directory=self._store.relative(partial),
            resources=admission.describe(attempt.resources),
            workers=attempt.resources.workers,
        )
        machines.start(attempt)

    def _new_attempt(self, step: Step, admitted: admission.Admission, id: str, max_threads: int | None) -> StepAttempt:
        cluster = self._config.cluster
        earlier = self._store.manifest(step.directory)
        return StepAttempt(
            step=step,
            store=self._store.root,
            run_id=self._record.path.name,
            id=id,
            resources=LimitedResources.of(admitted.granted, max_threads),
            log=self._record.log(step.name, id),
            checkpoint_seconds=cluster.checkpoint_seconds,
            num_shares=self._requested(step).workers or 1,
            microbatch_tokens=cluster.microbatch_tokens,
            silence_seconds=cluster.silence_seconds,
            mirror=self._config.store.mirror,
            node_store=self._config.cluster.node_store,
            excluded_nodes=admitted.excluded_nodes,
            again=earlier is not None or step.name in self._forced,
            replaces=() if earlier is None else (*earlier.replaces, earlier.attempt),
            contents=contents(step, self._store) if cluster.node_store else {},
        )

    def _take_outcome(self, name: str, error: FewstepError | None) -> None:
        attempt = self._running.pop(name)
        self._tries[name] = self._tries.get(name, 0) + (not isinstance(error, LeaseLostError))
        if error is None:
            self._record_done(attempt)
        elif isinstance(error, LeaseLostError) or (
            isinstance(error, TransientError) and self._tries[name] <= self._config.cluster.retries
        ):
            lost = lost_seconds(attempt.step, self._started[name], self._host.time())
            self._record.write_event("step_retried", step=name, step_attempt=attempt.id, error=str(error), lost_seconds=lost)
            self._pending[name] = attempt.step
        else:
            self._fail(attempt.step, error)
        self._leases.pop(name).release()

    def _record_done(self, attempt: StepAttempt) -> None:
        step = attempt.step
        if self._uploads:
            self._uploads.add([step])
        self.done.append(step.name)
        manifest = self._store.manifest(step.directory)
        self._record.write_event(
            "step_done",
            step=step.name,
            step_attempt=attempt.id,
            directory=self._store.relative(step.directory),
            seconds=manifest.seconds if manifest else None,
            **worker_deaths(step.directory, attempt.id),
        )

    def _count_failure(self, step: Step, error: FewstepError) -> None:
        """Count an attempt that could not begin, and fail the step if it may not be repeated."""
        self._tries[step.name] = self._tries.get(step.name, 0) + 1
        if not isinstance(error, TransientError) or self._tries[step.name] > self._config.cluster.retries:
            self._fail(step, error)
        else:
            self._record.write_event("step_waiting", step=step.name, error=str(error))

    def _fail(self, step: Step, error: FewstepError) -> None:
        self._pending.pop(step.name, None)
        self.failed[step.name] = error
        self._record.write_event("step_failed", step=step.name, error=str(error), kind=type(error).__name__)

    def _stop_running_steps(self, machines: Machines) -> None:
        """Ask the running steps to save their state and end, and wait for them for a while."""
        for attempt in self._running.values():
            with suppress(FileNotFoundError):  # it has not begun, or it has just ended
                (partial_directory(attempt.step.directory, attempt.id) / STOP).touch()
        deadline = self._host.monotonic() + STOP_SECONDS
        while self._running and self._host.monotonic() < deadline:
            for name, _ in machines.finished(0.5):
                self._running.pop(name)


def _described(lease: Lease) -> str:
    holder = lease.holder() or {}
    return f"attempt {holder.get('owner')}, process {holder.get('pid')} of {holder.get('host')}"


def process_facts() -> dict[str, Any]:
    """Return what a run records about the process that starts it: its id, host, user and code."""
    try:
        user = getpass.getuser()
    except (ImportError, KeyError, OSError):  # a container whose user has no name
        user = str(os.getuid())
    return {"pid": os.getpid(), "host": socket.gethostname(), "user": user, "revision": git_revision()}


def record_hit(record: Run, store: Store, step: Step) -> None:
    """Record that a step was found in the store, with the run that made it."""
    manifest = store.manifest(step.directory)
    record.write_event(
        "step_hit", step=step.name, directory=store.relative(step.directory), origin=manifest.run_id if manifest else None
    )
