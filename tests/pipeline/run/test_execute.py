"""The executor over toy stages, in one process."""

import json
import os
import shutil
import socket
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.config.schema import Cluster, RunConfig, StoreConfig, Tracking
from pipeline.plan.step import Builder, Plan
from pipeline.run import execute
from pipeline.run.execute import required
from pipeline.run.lease import Lease, step_lease
from pipeline.run.machines import InProcess
from pipeline.store.artifacts import Store
from stages.artifacts import Artifact
from stages.context import StepContext
from stages.errors import DataError, TransientError
from stages.stage import Stage

CALLS: list[str] = []
FAULTS: dict[str, list[Exception]] = {}


@dataclass(frozen=True)
class Toy(Artifact):
    pass


@dataclass(frozen=True)
class ToyInputs:
    before: tuple[Toy, ...] = ()


@dataclass(frozen=True)
class ToyConfig:
    text: str


def toy(inputs: ToyInputs, config: ToyConfig, context: StepContext) -> None:
    CALLS.append(config.text)
    if FAULTS.get(config.text):
        raise FAULTS[config.text].pop()
    before = "".join((artifact.path / "text").read_text() for artifact in inputs.before)
    context.write_text(context.directory / "text", before + config.text)


STAGE = Stage("toy", 1, toy, Toy)


@pytest.fixture(autouse=True)
def _clean() -> None:
    CALLS.clear()
    FAULTS.clear()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def config(store: Store) -> RunConfig:
    return RunConfig(store=StoreConfig(path=store.root), cluster=Cluster(retries=2), tracking=Tracking(enabled=False))


def diamond(store: Store, left: str = "b") -> Plan:
    builder = Builder(store.root)
    a = builder.add(STAGE, "a", ToyInputs(), ToyConfig("a"))
    b = builder.add(STAGE, "b", ToyInputs((a,)), ToyConfig(left))
    c = builder.add(STAGE, "c", ToyInputs((a,)), ToyConfig("c"))
    builder.add(STAGE, "d", ToyInputs((b, c)), ToyConfig("d"))
    return builder.plan()


def go(plan: Plan, store: Store) -> execute.RunReport:
    return execute.run(config(store), plan, store, config_file="toy.yaml", in_process=True)


def text(plan: Plan, name: str) -> str:
    return next(s.directory / "text" for s in plan.steps if s.name == name).read_text()


def test_steps_chain_by_their_artifacts_and_are_made_once(store: Store) -> None:
    plan = diamond(store)
    assert go(plan, store).failed == {}
    assert text(plan, "toy:d") == "abacd"
    report = go(plan, store)
    assert report.executed == ()
    assert CALLS == ["a", "b", "c", "d"]


def test_a_changed_parameter_makes_exactly_its_descendants(store: Store) -> None:
    go(diamond(store), store)
    CALLS.clear()
    report = go(diamond(store, left="B"), store)
    assert CALLS == ["B", "d"]
    assert set(report.executed) == {"toy:b", "toy:d"}


def test_a_step_is_not_made_for_finished_descendants(store: Store) -> None:
    plan = diamond(store)
    go(plan, store)
    first = plan.steps[0]
    for path in first.directory.iterdir():
        path.unlink()
    first.directory.rmdir()
    todo, found = required(plan, store)
    assert ([s.name for s in todo], [s.name for s in found]) == ([], ["toy:b", "toy:c", "toy:d"])


def test_a_missing_product_is_made_though_nothing_needs_it(store: Store) -> None:
    builder = Builder(store.root)
    a = builder.add(replace(STAGE, product=True), "a", ToyInputs(), ToyConfig("a"))
    builder.add(STAGE, "b", ToyInputs((a,)), ToyConfig("b"))
    plan = builder.plan()
    go(plan, store)
    shutil.rmtree(a.path)
    assert go(plan, store).executed == ("toy:a",)


def test_a_failed_step_stops_only_what_needs_it(store: Store) -> None:
    FAULTS["b"] = [ValueError("boom")]
    plan = diamond(store)
    report = go(plan, store)
    assert CALLS == ["a", "b", "c"]
    assert list(report.failed) == ["toy:b"]
    assert "ValueError: boom" in str(report.failed["toy:b"])
    state = report.run.state()
    assert [s.status for s in state.steps.values()] == ["done", "failed", "done", "skipped"]
    assert "ValueError: boom" in report.run.log("toy:b", state.steps["toy:b"].attempts[0]).read_text()
    assert go(plan, store).failed == {}
    assert CALLS == ["a", "b", "c", "b", "d"]


def test_passing_failures_are_repeated_and_recorded(store: Store) -> None:
    FAULTS["c"] = [TransientError("worker lost"), TransientError("worker lost")]
    report = go(diamond(store), store)
    assert report.failed == {}
    assert CALLS.count("c") == 3
    retried = [e for e in report.run.events() if e["event"] == "step_retried"]
    assert [e["error"] for e in retried] == ["worker lost", "worker lost"]
    assert len(set(report.run.state().steps["toy:c"].attempts)) == 3


def test_repeated_too_often_it_fails(store: Store) -> None:
    FAULTS["c"] = [TransientError("worker lost")] * 3
    assert list(go(diamond(store), store).failed) == ["toy:c"]


def test_bad_data_is_not_repeated(store: Store) -> None:
    FAULTS["c"] = [DataError("line 3: expected UTF-8")]
    failed = go(diamond(store), store).failed
    assert [(step, type(error), str(error)) for step, error in failed.items()] == [("toy:c", DataError, "line 3: expected UTF-8")]
    assert CALLS.count("c") == 1


def test_an_altered_input_fails_the_step_that_reads_it(store: Store) -> None:
    plan = diamond(store)
    go(plan.until("toy:b"), store)
    (plan.steps[0].directory / "text").write_text("x")
    os.utime(plan.steps[0].directory / "text", ns=(1, 1))
    report = go(plan, store)
    assert list(report.failed) == ["toy:c"]
    assert "expected sha256" in str(report.failed["toy:c"])
    assert "was altered: remove" in str(report.failed["toy:c"])


def test_until_takes_a_step_and_what_it_needs(store: Store) -> None:
    plan = diamond(store)
    go(plan.until("toy:c"), store)
    assert CALLS == ["a", "c"]
    with pytest.raises(DataError, match="expected a step or a stage of the plan"):
        plan.until("toy:x")


def test_a_second_driver_waits_and_shares(store: Store) -> None:
    plan = diamond(store)
    step = plan.steps[1]
    lease = Lease(step.directory.with_name(step.directory.name + ".lease"), "another driver", 30)
    assert lease.acquire()
    other = Plan((plan.steps[0], step))

    def finish() -> None:
        time.sleep(1.0)
        context = _work(store, step.directory)
        toy(step.inputs, step.config, context)
        store.commit(step.directory, _manifest(step))
        lease.release()

    go(Plan(plan.steps[:1]), store)
    CALLS.clear()
    thread = threading.Thread(target=finish)
    thread.start()
    report = go(other, store)
    thread.join()
    assert CALLS == ["b"]
    assert report.executed == ()
    assert [e["event"] for e in report.run.events() if e.get("step") == step.name] == ["step_waiting", "step_hit"]


def test_a_step_of_a_driver_that_is_gone_is_taken_over(store: Store) -> None:
    plan = diamond(store)
    step = plan.steps[0]
    lease = Lease(step.directory.with_name(step.directory.name + ".lease"), "another driver", 30)
    lease.acquire()
    os.utime(lease.path, (0, 0))
    assert go(plan, store).failed == {}


def test_an_attempt_whose_step_was_taken_over_commits_nothing(store: Store) -> None:
    """Another driver takes over the lease during the step and dies; the first one runs the step again."""
    plan = diamond(store).until("toy:a")
    step = plan.steps[0]

    def taken_over(inputs: ToyInputs, given: ToyConfig, context: StepContext) -> None:
        toy(inputs, given, context)
        if len(CALLS) == 1:
            holder = {"owner": "another driver", "host": socket.gethostname(), "pid": 2**22 + 1, "started": 1}
            step_lease(step.directory, "another driver", 30).path.write_text(json.dumps(holder))

    stage = replace(STAGE, run=taken_over)
    report = go(Plan((replace(step, stage=stage),)), store)
    assert report.failed == {}
    assert CALLS == ["a", "a"]
    (retried,) = [e for e in report.run.events() if e["event"] == "step_retried"]
    assert "another has taken the step over" in retried["error"]


def test_a_run_that_finds_everything_says_so_once(store: Store) -> None:
    plan = diamond(store)
    first = go(plan, store).run
    part = plan.until("toy:b")
    run = go(part, store).run
    assert run.path != first.path
    state = run.state()
    assert state.status == "done"
    assert {step.step: (step.status, step.origin) for step in state.steps.values()} == {
        "toy:a": ("hit", first.path.name), "toy:b": ("hit", first.path.name),
    }  # fmt: skip
    events = len(run.events())
    assert len(go(part, store).run.events()) == events


def test_a_second_driver_beside_the_first_does_not_change_the_state_of_the_run(store: Store) -> None:
    run = go(diamond(store), store).run
    run.write_event("run_started", attempt="b", first=False)
    run.write_event("run_finished", status="stopped", attempt="b", first=False)
    assert (run.state().status, run.state().attempt) == ("done", 1)


def test_an_interrupted_step_does_not_hold_up_the_end(store: Store) -> None:
    def interrupted(inputs: ToyInputs, given: ToyConfig, context: StepContext) -> None:
        raise KeyboardInterrupt

    builder = Builder(store.root)
    builder.add(replace(STAGE, run=interrupted), "a", ToyInputs(), ToyConfig("a"))
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        go(builder.plan(), store)
    assert time.monotonic() - began < execute.STOP_SECONDS / 2


def test_two_steps_of_one_name_are_no_plan(store: Store) -> None:
    builder = Builder(store.root)
    builder.add(STAGE, "a", ToyInputs(), ToyConfig("a"))
    with pytest.raises(AssertionError, match="two different steps are called toy:a"):
        builder.add(STAGE, "a", ToyInputs(), ToyConfig("b"))


def test_in_process_neither_memory_nor_custom_resources_are_counted(store: Store) -> None:
    from stages.workers import Resources

    asking = {"corpus": Resources(workers=2, memory_gib=1e6, custom={"fast_disk": 1})}
    builder = Builder(store.root)
    seen: list[Resources] = []

    def look(inputs: ToyInputs, given: ToyConfig, context: StepContext) -> None:
        seen.append(context.resources)

    builder.add(replace(STAGE, name="corpus", run=look), "a", ToyInputs(), ToyConfig("a"))
    generous = replace(config(store), cluster=Cluster(resources=asking))
    assert execute.run(generous, builder.plan(), store, config_file="toy.yaml", in_process=True).failed == {}
    assert [(resources.workers, dict(resources.custom)) for resources in seen] == [(1, {"fast_disk": 1})]


def test_asking_for_what_is_not_there_fails_at_once(store: Store) -> None:
    from stages.workers import Resources

    greedy = replace(config(store), cluster=Cluster(resources={"corpus": Resources(gpus=3)}))
    builder = Builder(store.root)
    builder.add(replace(STAGE, name="corpus"), "a", ToyInputs(), ToyConfig("a"))
    report = execute.run(greedy, builder.plan(), store, config_file="toy.yaml", in_process=True)
    assert "cluster.resources.corpus: asks for 1 x 1 CPU + 3 GPU" in str(report.failed["corpus:a"])
    assert CALLS == []


def test_what_cannot_run_fails_before_what_it_needs_is_made(store: Store) -> None:
    from stages.workers import Resources

    builder = Builder(store.root)
    a = builder.add(STAGE, "a", ToyInputs(), ToyConfig("a"))
    b = builder.add(replace(STAGE, name="train"), "b", ToyInputs((a,)), ToyConfig("b"))
    builder.add(STAGE, "c", ToyInputs((b,)), ToyConfig("c"))
    greedy = replace(config(store), cluster=Cluster(resources={"train": Resources(gpus=3)}))
    report = execute.run(greedy, builder.plan(), store, config_file="toy.yaml", in_process=True)
    assert list(report.failed) == ["train:b"]
    events = [(e["event"], e["step"]) for e in report.run.events() if "step" in e]
    assert events[:2] == [("step_failed", "train:b"), ("step_skipped", "toy:c")]
    assert report.run.state().steps["toy:c"].status == "skipped"


def _work(store: Store, directory: Path) -> StepContext:
    from stages.workers import LocalWorkers, Resources

    partial = store.partial(directory)
    partial.mkdir(parents=True)
    return StepContext(directory=partial, attempt="x", workers=LocalWorkers(), resources=Resources(), shard_cache=store.shard_cache)


def _manifest(step: Any) -> Any:
    from pipeline.store.artifacts import Manifest

    return Manifest(
        stage="toy", version=1, step=step.name, fingerprint=step.fingerprint, config={}, inputs={}, environment={},
        code_digest="", git_revision="", run_id="other", attempt="x", seconds=0.0, finished=0.0,
    )  # fmt: skip


def fading(monkeypatch: pytest.MonkeyPatch, there: list[bool]) -> None:
    """Return machines that are present or absent at each look; the last state stays."""

    class Fading(InProcess):
        @property
        def nodes(self) -> dict[str, dict[str, float]]:
            return super().nodes if (there.pop(0) if len(there) > 1 else there[0]) else {}

    monkeypatch.setattr(execute, "InProcess", Fading)


def test_a_step_waits_for_machines_that_went(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    fading(monkeypatch, [True, False, False, True])
    report = go(diamond(store).until("toy:a"), store)
    assert report.failed == {}
    (waited,) = [e for e in report.run.events() if e["event"] == "step_waiting"]
    assert waited["error"].startswith("machines are gone: cluster.resources.toy: asks for 1 x 1 CPU")


def test_and_fails_when_they_do_not_come_back(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    fading(monkeypatch, [True, False])
    impatient = replace(config(store), cluster=Cluster(node_wait_seconds=0.3))
    report = execute.run(impatient, diamond(store).until("toy:a"), store, config_file="toy.yaml", in_process=True)
    assert list(report.failed) == ["toy:a"]
    assert CALLS == []


def test_what_a_killed_driver_lost_is_told_by_the_next(store: Store) -> None:
    plan = diamond(store).until("toy:a")
    report = go(plan, store)
    shutil.rmtree(plan.steps[0].directory)
    began = time.time() - 90
    report.run.write_event("run_started", attempt="killed", first=True)
    path = report.run.path / "events.jsonl"
    path.write_text(
        path.read_text() + json.dumps({"time": began, "event": "step_started", "step": "toy:a", "step_attempt": "k-1"}) + "\n"
    )
    os.utime(report.run.heartbeat, (began + 60, began + 60))
    state = go(plan, store).run.state()
    assert (state.status, state.retried, state.lost_seconds) == ("done", 1, pytest.approx(60, abs=0.2))
