"""The programs of simulated processes: drivers with the pipeline's own store, leases and executor, attempts at steps, and `gc`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import durable
from pipeline.config.schema import Cluster, RunConfig, StoreConfig
from pipeline.plan.step import Builder, Plan
from pipeline.run.attempt import StepAttempt
from pipeline.run.driver import Driver
from pipeline.run.execute import required
from pipeline.run.machines import Outcome
from pipeline.store import garbage
from pipeline.store.artifacts import Store
from pipeline.store.attempts import partial_directory
from pipeline.store.files import write_atomically
from pipeline.store.lease import step_lease
from pipeline.store.manifest import Manifest
from pipeline.store.marker import is_marked, open_store
from pipeline.store.mirror import Mirror
from stages.artifacts import Artifact
from stages.errors import FewstepError, StageError
from stages.stage import Stage
from tests.pipeline.run_specs import manifest, plan_entry, run_spec
from tests.simulation.machine import Machine
from tests.simulation.scheduler import Violation
from tests.simulation.world import WORDS, piece

LEASE_SECONDS = 5.0
CONFIG = RunConfig(store=StoreConfig(lease_seconds=LEASE_SECONDS), cluster=Cluster(retries=2))
PIECES = 2


@dataclass(frozen=True)
class Inputs:
    before: tuple[Artifact, ...] = ()


def _never(inputs: object, config: object, context: object) -> None:
    raise AssertionError("the simulation executes steps by itself")


CORPUS = Stage("corpus", 1, _never, Artifact)
TRAIN = Stage("train", 1, _never, Artifact, trains=True)


def make_plan(store: Store) -> Plan:
    """Return two steps, of which the second needs the first."""
    builder = Builder(store.root)
    text = builder.add(CORPUS, "text", Inputs(), "config")
    builder.add(TRAIN, "model", Inputs((text,)), "config")
    return builder.plan()


class Record:
    """The directory of a run, without its events."""

    def __init__(self, path: Path) -> None:
        self.path, self.heartbeat = path, path / "heartbeat"

    def create(self, plan: Plan, machine: Machine) -> None:
        entries = [plan_entry(s.name, fingerprint=s.fingerprint) for s in plan.steps]
        write_atomically(self.path / "run.json", json.dumps({"schema": 1, **run_spec(*entries, run_id="run")}), machine)

    def write_event(self, event: str, **values: Any) -> None:
        pass

    def log(self, step: str, attempt: str) -> Path:
        return self.path / f"{attempt}.log"


class Machines:
    """One node, which runs each attempt as a task of the driver's process."""

    def __init__(self, machine: Machine, store: Store) -> None:
        self._machine, self._store, self._outcomes = machine, store, list[Outcome]()
        self.nodes = {"node": {"CPU": 4.0, "GPU": 0.0, "memory": math.inf}}
        self.max_threads = None

    def start(self, attempt: StepAttempt) -> None:
        self._machine.world.check_start(str(attempt.step.directory), attempt.id)
        self._machine.scheduler.spawn(self._machine.runner, lambda: self._run(attempt), attempt.id)

    def _run(self, attempt: StepAttempt) -> None:
        try:
            make(attempt, self._store, self._machine)
            self._outcomes.append((attempt.step.name, None))
        except FewstepError as error:
            self._outcomes.append((attempt.step.name, error))

    def finished(self, seconds: float) -> list[Outcome]:
        if not self._outcomes:
            self._machine.sleep(min(seconds, 0.5))
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def close(self) -> None:
        pass


def make(attempt: StepAttempt, store: Store, machine: Machine) -> None:
    """Do what `pipeline.run.attempt.run_attempt` does, with a stage that makes two pieces and a result."""
    directory = attempt.step.directory
    lease = step_lease(directory, attempt.id, 0.0, machine)
    try:
        for artifact in attempt.step.inputs.before:
            store.verify(artifact.path)
        _work(partial_directory(directory, attempt.id), attempt, machine)
        store.commit(directory, _manifest(attempt), lease)
    except (OSError, FewstepError) as error:
        lease.check()
        if isinstance(error, OSError):
            raise StageError(str(error)) from error
        raise
    machine.world.committed.add(str(directory))


def _work(partial: Path, attempt: StepAttempt, machine: Machine) -> None:
    world, artifact = machine.world, str(attempt.step.directory)
    for number in range(PIECES):
        final = partial / "checkpoints" / str(number)
        if (final / "state").is_file():
            if (final / "state").read_bytes() != piece(number):
                raise Violation(f"{final} is not whole")
            continue
        world.computed[artifact, number] += 1
        temporary = final.with_name(f"{number}.{attempt.id}.tmp")
        durable.make_directory(temporary, machine)
        (temporary / "state").write_bytes(piece(number))
        durable.rename(temporary, final, machine)
        world.saved.add((artifact, number))
    with (partial / "result").open("wb") as file:
        for _ in range(WORDS):
            file.write(f"{attempt.id} ".encode())
            file.flush()


def _manifest(attempt: StepAttempt) -> Manifest:
    return manifest(attempt.step.name, attempt.step.fingerprint, stage=attempt.step.stage.name, attempt=attempt.id)


class Uploads:
    """The transfers to a mirror, as tasks of the driver's process. It does what `pipeline.run.transfers.Uploads` does."""

    def __init__(self, machine: Machine, mirror: Mirror) -> None:
        self._machine, self._mirror, self._done = machine, mirror, set[str]()

    def add(self, steps: Any) -> None:
        for step in steps:
            self._done.add(step.name)
            self._machine.scheduler.spawn(self._machine.runner, lambda step=step: self._explained(lambda: self._push(step)))

    def training_started(self, step: Any, partial: Path, lease: Any) -> None:
        if step.stage.trains:
            self._mirror.pull_checkpoints(step.directory, partial)
            self._machine.scheduler.spawn(self._machine.runner, lambda: self._watch(step, partial, lease))

    def _push(self, step: Any) -> None:
        if self._mirror.push(step.directory) and step.stage.trains:
            self._mirror.drop_checkpoints(step.directory)

    def _watch(self, step: Any, partial: Path, lease: Any) -> None:
        while step.name not in self._done:
            self._explained(lambda: self._mirror.push_checkpoints(step.directory, partial, lease))
            self._machine.sleep(2.0)

    def _explained(self, function: Callable[[], object]) -> None:
        try:
            function()
        except (OSError, FewstepError) as error:
            self._machine.world.counts["failed uploads"] += 1
            self._machine.world.failures.append(str(error))


def drive(machine: Machine, place: str, mirror: Callable[[Store], Mirror] | None = None) -> None:
    """Do what the command `run` does."""
    try:
        _drive(machine, place, mirror)
    except (OSError, FewstepError) as error:  # the command line explains both
        machine.world.failures.append(f"{type(error).__name__}: {error}")
    finally:
        machine.runner.alive = False


def _drive(machine: Machine, place: str, mirror: Callable[[Store], Mirror] | None) -> None:
    store = open_store(machine.path(place), machine)  # type: ignore[arg-type]
    plan = make_plan(store)
    record: Any = Record(store.runs / "run")
    with garbage.in_use(store):
        record.create(plan, machine)
        required(plan, store)
    uploads: Any = None
    if mirror:
        copies = mirror(store)
        for step in plan.steps:
            if store.manifest(step.directory) is None and copies.pull(step.directory):
                machine.world.counts["pulled artifacts"] += 1
        uploads = Uploads(machine, copies)
    todo, _ = required(plan, store)
    driver = Driver(CONFIG, store, record, todo, machine.token(), uploads)
    machine.scheduler.spawn(machine.runner, lambda: _heartbeat(driver, machine))
    driver.execute(Machines(machine, store))
    machine.world.failures += [f"{type(error).__name__}: {error}" for error in driver.failed.values()]


def _heartbeat(driver: Driver, machine: Machine) -> None:
    while True:
        machine.sleep(LEASE_SECONDS / 5)
        driver.renew_leases()


def collect(machine: Machine, place: str) -> None:
    """Do what the command `gc --delete` does, twice."""
    store = Store(machine.path(place), machine)  # type: ignore[arg-type]
    for _ in range(60):  # no driver may live for long enough to mark the store
        if not is_marked(store):
            machine.sleep(1.0)
    for _ in range(2 if is_marked(store) else 0):
        try:
            garbage.remove(store)
        except (OSError, FewstepError) as error:
            machine.world.failures.append(f"gc: {type(error).__name__}: {error}")
        machine.sleep(3.0)
    machine.runner.alive = False


def problems(machine: Machine, place: str) -> Iterator[str]:
    """Yield the problems that `verify_all` finds."""
    for _, problem in Store(machine.path(place), machine).verify_all():  # type: ignore[arg-type]
        if problem:
            yield problem
