"""Execution of a plan: finished steps are reused, and the others run on the machines, independent ones at once."""

from __future__ import annotations

import secrets
import signal
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from pipeline.config.load import resolved
from pipeline.config.schema import RunConfig
from pipeline.plan.fingerprint import canonical, digest
from pipeline.plan.freshness import survey
from pipeline.plan.step import Plan, Step
from pipeline.run.display import LiveDisplay
from pipeline.run.driver import Driver, process_facts, record_hit
from pipeline.run.machines import InProcess
from pipeline.run.ray_cluster.connection import connect_ray
from pipeline.run.run_directory import Run
from pipeline.run.transfers import Uploads, fetch
from pipeline.store.artifacts import Store
from pipeline.store.garbage import in_use
from pipeline.store.mirror import Mirror
from pipeline.tracking.publisher import Tracker
from stages.errors import FewstepError


@dataclass(frozen=True)
class RunReport:
    """The outcome of a run."""

    run: Run
    failed: dict[str, FewstepError]
    """Errors of failed steps, by step."""
    executed: tuple[str, ...]
    """Names of the steps that were executed now; empty if the store had everything."""
    fetched: tuple[str, ...] = ()
    """Names of the steps whose artifacts were downloaded from the mirror."""
    unmirrored: Mapping[str, FewstepError] = field(default_factory=dict)
    """Errors of artifacts that could not be uploaded to the mirror, by step."""


def required(plan: Plan, store: Store, refused: Container[str] = (), forced: Collection[str] = ()) -> tuple[list[Step], list[Step]]:
    """Return the steps to execute and the steps found in the store.

    A missing step is executed if it is a product or a step to execute needs it, a forced step in any case. Steps that depend on
    steps that are rerun are among them: the driver decides about these by the new content. The inputs of `refused` steps,
    which will fail, are not made for them. Raises ArtifactError for an altered artifact.
    """
    hits = {name for name, state in survey(plan, store, forced).items() if state == "hit"}
    needed = plan.needed(lambda step: step.name in hits or step.name in refused, forced)
    return [s for s in needed if s.name not in hits], [s for s in plan.steps if s.name in hits]


def run(
    config: RunConfig, plan: Plan, store: Store, *, config_file: str, in_process: bool = False, force: Sequence[str] = ()
) -> RunReport:
    """Execute the missing steps of a plan, and the steps or stages `force` again. Without any, neither Ray nor MLflow is loaded.

    Raises DataError if the plan does not have one of `force`.
    """
    forced = {step for name in force for step in plan.named(name, "--force")}
    with in_use(store):  # held until run.json refers to the artifacts that are found
        required(plan, store)  # reports altered artifacts before anything is fetched
        record = open_run(config, plan, store, config_file)
    mirror = Mirror(config.store.mirror, store) if config.store.mirror else None
    fetched, damaged = fetch(plan, store, mirror, record) if mirror else ([], {})
    todo, found = required(plan, store, damaged, forced)
    uploads = Uploads(mirror, record) if mirror else None
    if not todo:
        _record_complete(record, found, store, plan.last)
        if uploads:
            uploads.add(found)
            uploads.close()
        return RunReport(record, {}, (), tuple(fetched), uploads.failed if uploads else {})
    # Left in reverse: leases are renewed until the machines are closed and the last results are published and uploaded.
    with ExitStack() as stack:
        driver = Driver(config, store, record, todo, secrets.token_hex(4), uploads, damaged, forced)
        driver.record_start(plan.last)
        for step in found:
            record_hit(record, store, step)
        stack.enter_context(driver.heartbeat())
        if uploads:
            stack.callback(uploads.close)
            uploads.add(found)
        if driver.owns_run:
            stack.enter_context(Tracker(record.path, config.tracking))
        else:
            stack.callback(_track_taken_over, driver, config)
        stack.enter_context(LiveDisplay(record.path))
        machines = InProcess(config.cluster) if in_process else connect_ray(config.cluster)
        stack.callback(machines.close)
        stack.enter_context(_interrupted_by_signals())
        driver.execute(machines)
    return RunReport(record, driver.failed, tuple(driver.done), tuple(fetched), uploads.failed if uploads else {})


def open_run(config: RunConfig, plan: Plan, store: Store, config_file: str) -> Run:
    """Create or continue the run directory of a config and plan."""
    whole = plan.whole or plan.steps
    key = digest([[s.name, s.fingerprint] for s in whole])[:8]
    record = Run(store.runs / f"{config.name}-{key}")
    steps = [
        {
            "step": s.name, "stage": s.stage.name, "version": s.stage.version, "fingerprint": s.fingerprint,
            "config": canonical(s.config, keep_defaults=True), "inputs": list(s.needs),
        }
        for s in whole
    ]  # fmt: skip
    record.create(
        {
            "run_id": record.path.name, "name": config.name, "config": resolved(config), "config_file": config_file,
            "store": str(store.root), "plan": steps,
        }
    )  # fmt: skip
    return record


def _record_complete(record: Run, found: list[Step], store: Store, until: str | None) -> None:
    """Record a run whose steps are all in the store, unless an earlier command has done so."""
    state = record.state()
    if state.status == "done" and all(state.steps[step.name].status in ("hit", "done") for step in found):
        return
    record.write_event("run_started", attempt=secrets.token_hex(4), first=True, until=until, **process_facts())
    for step in found:
        record_hit(record, store, step)
    record.write_event("run_finished", status="done", first=True)


def _track_taken_over(driver: Driver, config: RunConfig) -> None:
    """Publish a run whose first driver ended before this one, which has taken the run over."""
    if driver.owns_run:
        with Tracker(driver.record.path, config.tracking):
            pass


@contextmanager
def _interrupted_by_signals() -> Iterator[None]:
    """Let SIGTERM, and SIGHUP of a closed terminal, end the run as Ctrl-C does: running steps save their state first.

    A command under `nohup` ignores SIGHUP, and goes on doing so.
    """

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    caught = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) != signal.SIG_IGN]
    previous = {number: signal.signal(number, interrupt) for number in caught}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
