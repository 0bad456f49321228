"""Runs a plan: finished steps are not made again, independent ones run at once, a failed one stops only what needs it."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from pipeline.config.load import resolved
from pipeline.config.schema import RunConfig
from pipeline.plan.fingerprint import canonical, digest
from pipeline.plan.step import Plan, Step
from pipeline.run import admission
from pipeline.run.attempt import Order
from pipeline.run.history import Run
from pipeline.run.lease import Lease, step_lease
from pipeline.run.lost_time import interrupted, lost_seconds, told_deaths
from pipeline.run.machines import InProcess, Machines, RayMachines
from pipeline.run.mirror_sync import Uploads, fetch, reached
from pipeline.store.artifacts import Store
from pipeline.store.garbage import in_use
from pipeline.store.mirror import Mirror
from stages.artifacts import STOP
from stages.errors import FewstepError, TransientError
from stages.workers import Resources

STOP_SECONDS = 20.0
"""Grace in which interrupted steps save their state."""


@dataclass(frozen=True)
class RunReport:
    """How a run ended."""

    run: Run
    failed: dict[str, FewstepError]
    """Step -> why it failed."""
    executed: tuple[str, ...]
    """Steps that were made now; empty when everything was in the store."""
    fetched: tuple[str, ...] = ()
    """Steps whose artifacts were brought from the mirror."""
    unmirrored: Mapping[str, FewstepError] = field(default_factory=dict)
    """Step -> why its artifact is not in the mirror."""


def required(plan: Plan, store: Store) -> tuple[list[Step], list[Step]]:
    """(steps to make, steps found in the store). A missing step is made when it is a product or when one to make needs it.

    Raises ArtifactError when a finished artifact was altered.
    """
    hits = {step.name for step in plan.steps if store.manifest(step.directory) is not None}
    wanted = reached(plan, lambda step: step.name in hits)
    return [s for s in wanted if s.name not in hits], [s for s in plan.steps if s.name in hits]


def run(config: RunConfig, plan: Plan, store: Store, *, config_file: str, in_process: bool = False) -> RunReport:
    """Make what is missing. Nothing is started, and neither Ray nor MLflow is loaded, when nothing is."""
    with in_use(store):  # until run.json names what is found
        required(plan, store)  # what was altered is told before anything is fetched
        record = open_run(config, plan, store, config_file)
    mirror = Mirror(config.store.mirror, store) if config.store.mirror else None
    fetched = fetch(plan, store, mirror, record) if mirror else []
    todo, found = required(plan, store)
    uploads = Uploads(mirror, record) if mirror else None
    if not todo:
        _record_hits(record, found, store)
        if uploads:
            uploads.add(found)
            uploads.close()
        return RunReport(record, {}, (), tuple(fetched), uploads.failed if uploads else {})
    from pipeline.run.progress import LiveDisplay
    from pipeline.tracking.mlflow_server import Tracker

    with ExitStack() as stack:
        execution = Execution(config, store, record, todo, attempt=secrets.token_hex(4), uploads=uploads)
        execution.announce()
        for step in found:
            write_hit(record, store, step)
        stack.enter_context(execution.beating())
        if uploads:
            stack.callback(uploads.close)
            uploads.add(found)
        if execution.first_driver:
            stack.enter_context(Tracker(record.path, config.tracking))
        stack.enter_context(LiveDisplay(record.path))
        machines: Machines = InProcess(config.cluster) if in_process else RayMachines(config.cluster)
        stack.callback(machines.close)
        stack.enter_context(_terminable())
        execution.complete(machines)
    return RunReport(record, execution.failed, tuple(execution.done), tuple(fetched), uploads.failed if uploads else {})


def open_run(config: RunConfig, plan: Plan, store: Store, config_file: str) -> Run:
    """The run directory of this config and plan: made now, or that of an earlier attempt at the same."""
    key = digest([[s.name, s.fingerprint] for s in plan.steps])[:8]
    record = Run(store.runs / f"{config.name}-{key}")
    steps = [
        {
            "step": s.name,
            "stage": s.stage.name,
            "version": s.stage.version,
            "fingerprint": s.fingerprint,
            "config": canonical(s.config, keep_defaults=True),
            "inputs": list(s.needs),
        }
        for s in plan.steps
    ]
    record.create(
        {
            "run_id": record.path.name,
            "name": config.name,
            "config": resolved(config),
            "config_file": config_file,
            "store": str(store.root),
            "plan": steps,
        }
    )
    return record


def _record_hits(record: Run, found: list[Step], store: Store) -> None:
    """A run that finds everything in the store is done at once; said once, however often the command is repeated."""
    if record.state().status == "done":
        return
    record.write_event("run_started", attempt=secrets.token_hex(4), first=True, pid=os.getpid(), host=socket.gethostname())
    for step in found:
        write_hit(record, store, step)
    record.write_event("run_finished", status="done", first=True)


def write_hit(record: Run, store: Store, step: Step) -> None:
    """Write that a step was found in the store."""
    manifest = store.manifest(step.directory)
    record.write_event(
        "step_hit", step=step.name, directory=store.relative(step.directory), origin=manifest.run_id if manifest else None
    )


@dataclass
class Execution:
    """The state of one driver at work on one run."""

    config: RunConfig
    store: Store
    record: Run
    todo: list[Step]
    attempt: str
    """Id of this driver; leases and the attempts at steps carry it."""
    uploads: Uploads | None = None
    """To the store's mirror, where it has one."""
    pending: dict[str, Step] = field(default_factory=dict)
    running: dict[str, Order] = field(default_factory=dict)
    leases: dict[str, Lease] = field(default_factory=dict)
    tries: dict[str, int] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)
    failed: dict[str, FewstepError] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)
    first_driver: bool = False
    """Is no other driver at work on this run? Only one publishes."""

    def __post_init__(self) -> None:
        self.pending = {step.name: step for step in self.todo}
        self._lacking: dict[str, float] = {}
        self._begun: dict[str, float] = {}
        self._asked: dict[str, Resources] = {str(name): asked for name, asked in self.config.cluster.resources.items()}
        self._driver = Lease(self.record.path / "driver.lease", self.attempt, self.config.store.lease_seconds)
        self.first_driver = self._driver.acquire()

    def announce(self) -> None:
        """Write the start of this attempt, and what was lost with the one before."""
        lost = interrupted(self.record, self.todo) if self.first_driver else {}
        self.record.write_event(
            "run_started",
            attempt=self.attempt,
            first=self.first_driver,
            pid=os.getpid(),
            host=socket.gethostname(),
            command=" ".join(sys.argv),
            **({"lost": lost, "lost_seconds": sum(lost.values())} if lost else {}),
        )

    def complete(self, machines: Machines) -> None:
        """Start what may start, wait, take in what ended, until nothing is left."""
        status = "stopped"
        try:
            self._refuse_what_cannot_run(machines)
            while self.pending or self.running:
                self._skip_blocked()
                self._admit(machines)
                ended = machines.finished(1.0 if self.running else 0.0)
                for name, error in ended:
                    self._take_in(name, error)
                if self.pending and not (self.running or ended):  # what is left waits for another driver
                    time.sleep(0.2)
            status = "failed" if self.failed else "done"
        except KeyboardInterrupt:
            self._save_state(machines)
            raise
        finally:
            for lease in self.leases.values():
                lease.release()
            try:
                self.record.write_event("run_finished", status=status, attempt=self.attempt, first=self.first_driver)
            finally:
                self._driver.release()

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Renew the leases and the run's heartbeat while the driver lives."""
        over = threading.Event()

        def beat() -> None:
            while not over.wait(min(5.0, self.config.store.lease_seconds / 5)):
                with suppress(OSError):  # a file system that stutters does not end the heartbeat
                    self.record.heartbeat.touch()
                    for lease in [self._driver, *list(self.leases.values())]:
                        lease.renew()

        self.record.heartbeat.touch()
        thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _refuse_what_cannot_run(self, machines: Machines) -> None:
        """Fail at once what asks for more than the machines have, before hours are spent on what it needs."""
        for step in list(self.pending.values()):
            try:
                admission.admit((step.stage, self._asked_by(step)), machines.nodes, (), ())
            except FewstepError as error:
                self._fail(step, error)

    def _asked_by(self, step: Step) -> Resources:
        return self._asked.get(step.stage.name, Resources())

    def _admit(self, machines: Machines) -> None:
        for step in list(self.pending.values()):
            if any(need in self.pending or need in self.running or need in self.failed for need in step.needs):
                continue
            if any(order.step.stage.exclusive for order in self.running.values()):
                return
            running = [(order.step.stage, order.resources) for order in self.running.values()]
            coming = [(other.stage, self._asked_by(other)) for other in self.pending.values()]
            try:
                admitted = admission.admit((step.stage, self._asked_by(step)), machines.nodes, running, coming)
            except FewstepError as error:
                self._lack(step, error)
                continue
            self._lacking.pop(step.name, None)
            if admitted is not None and self._lease(step):
                self._start(step, *admitted, machines)

    def _lack(self, step: Step, error: FewstepError) -> None:
        """Machines went, for at the start they could hold the step: wait for them or others to come."""
        now = time.monotonic()
        if step.name not in self._lacking:
            self._lacking[step.name] = now
            self.record.write_event("step_waiting", step=step.name, error=f"machines are gone: {error}")
        if now - self._lacking[step.name] >= self.config.cluster.node_wait_seconds:
            self._fail(step, error)

    def _lease(self, step: Step) -> bool:
        """Take the step's lease. False when another driver works on it, or has just finished it."""
        lease = step_lease(step.directory, self.attempt, self.config.store.lease_seconds)
        if not lease.acquire():
            if step.name not in self.waiting:
                self.waiting.add(step.name)
                self.record.write_event("step_waiting", step=step.name, error=f"another driver works on it: {lease.holder()}")
            return False
        if self.store.manifest(step.directory) is not None:
            lease.release()
            del self.pending[step.name]
            write_hit(self.record, self.store, step)
            return False
        self.leases[step.name] = lease
        return True

    def _start(self, step: Step, granted: Resources, avoid: tuple[str, ...], machines: Machines) -> None:
        self.tries[step.name] = self.tries.get(step.name, 0) + 1
        attempt = f"{self.attempt}-{self.tries[step.name]}"
        cluster = self.config.cluster
        order = Order(
            step=step,
            store=self.store.root,
            run_id=self.record.path.name,
            driver=self.attempt,
            attempt=attempt,
            resources=granted,
            log=self.record.log(step.name, attempt),
            checkpoint_seconds=cluster.checkpoint_seconds,
            microbatch_tokens=cluster.microbatch_tokens,
            avoid=avoid,
        )
        if self.uploads:
            try:
                self.uploads.began(step, self.store.partial(step.directory))
            except FewstepError as error:
                self._fail(step, error)
                self.leases.pop(step.name).release()
                return
        del self.pending[step.name]
        self.running[step.name] = order
        self._begun[step.name] = time.time()
        self.record.write_event(
            "step_started",
            step=step.name,
            step_attempt=attempt,
            directory=self.store.relative(self.store.partial(step.directory)),
            resources=admission.describe(granted),
            workers=granted.workers,
        )
        machines.start(order)

    def _take_in(self, name: str, error: FewstepError | None) -> None:
        order = self.running.pop(name)
        if error is None:
            if self.uploads:
                self.uploads.add([order.step])
            self.done.append(name)
            manifest = self.store.manifest(order.step.directory)
            self.record.write_event(
                "step_done",
                step=name,
                step_attempt=order.attempt,
                directory=self.store.relative(order.step.directory),
                seconds=manifest.seconds if manifest else None,
                **told_deaths(order.step.directory, order.attempt),
            )
        elif isinstance(error, TransientError) and self.tries[name] <= self.config.cluster.retries:
            lost = lost_seconds(order.step, self._begun[name])
            self.record.write_event("step_retried", step=name, step_attempt=order.attempt, error=str(error), lost_seconds=lost)
            self.pending[name] = order.step
        else:
            self._fail(order.step, error)
        self.leases.pop(name).release()

    def _fail(self, step: Step, error: FewstepError) -> None:
        self.pending.pop(step.name, None)
        self.failed[step.name] = error
        self.record.write_event("step_failed", step=step.name, error=str(error), kind=type(error).__name__)

    def _skip_blocked(self) -> None:
        """A step whose input failed is not started; the others go on."""
        blocked = set(self.failed)
        for step in list(self.pending.values()):
            culprit = next((need for need in step.needs if need in blocked), None)
            if culprit is not None:
                blocked.add(step.name)
                del self.pending[step.name]
                self.record.write_event("step_skipped", step=step.name, error=f"needs {culprit}, which failed")

    def _save_state(self, machines: Machines) -> None:
        """Ask the running steps to save their state, and give them a while to do so."""
        for order in self.running.values():
            with suppress(FileNotFoundError):  # it has not begun, or has just ended
                (self.store.partial(order.step.directory) / STOP).touch()
        deadline = time.time() + STOP_SECONDS
        while self.running and time.time() < deadline:
            for name, _ in machines.finished(0.5):
                self.running.pop(name)


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends the run as Ctrl-C does: state is saved first."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
