"""Tests of drivers: retries, leases, lost nodes and interruptions."""

import json
import os
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.config.schema import Cluster
from pipeline.plan.step import Builder, Plan
from pipeline.run import driver, execute
from pipeline.run.driver import Driver
from pipeline.run.machines import InProcess
from pipeline.run.run_directory import all_runs
from pipeline.store.artifacts import Store
from pipeline.store.attempts import begin_attempt, partial_directories, partial_directory
from pipeline.store.lease import step_lease
from stages.context import StepContext
from stages.errors import DataError, TransientError
from stages.stage import Stage
from stages.workers import Resources
from tests.pipeline.run.toys import CALLS, FAULTS, STAGE, Toy, ToyConfig, ToyInputs, config, diamond, go, text, toy
from tests.pipeline.run_specs import manifest
from tests.processes import FAST_SECONDS, until


def test_transient_failures_are_retried_and_recorded(store: Store) -> None:
    FAULTS["c"] = [TransientError("worker lost"), TransientError("worker lost")]
    report = go(diamond(store), store)
    assert report.failed == {}
    assert CALLS.count("c") == 3
    retried = [e for e in report.run.events() if e["event"] == "step_retried"]
    assert [e["error"] for e in retried] == ["worker lost", "worker lost"]
    assert len(set(report.run.state().steps["toy:c"].attempts)) == 3


def test_a_step_fails_after_the_last_retry(store: Store) -> None:
    FAULTS["c"] = [TransientError("worker lost")] * 3
    assert list(go(diamond(store), store).failed) == ["toy:c"]


def test_data_errors_are_not_retried(store: Store) -> None:
    FAULTS["c"] = [DataError("line 3: expected UTF-8")]
    failed = go(diamond(store), store).failed
    assert [(step, type(error), str(error)) for step, error in failed.items()] == [("toy:c", DataError, "line 3: expected UTF-8")]
    assert CALLS.count("c") == 1


def waits(store: Store, step: str) -> bool:
    """Return whether a driver waits for another one that works on a step."""
    return any(e["event"] == "step_waiting" and e["step"] == step for run in all_runs(store.root) for e in run.events())


def test_a_second_driver_waits_for_the_first_ones_artifact(store: Store) -> None:
    plan = diamond(store)
    step = plan.steps[1]
    lease = step_lease(step.directory, "another driver", 30)
    assert lease.acquire()
    other = Plan((plan.steps[0], step))

    def finish() -> None:
        until(lambda: waits(store, step.name))
        context = _work(store, step.directory)
        toy(step.inputs, step.config, context)
        store.commit(step.directory, manifest(step.name, step.fingerprint, attempt="x"))
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


def test_a_step_with_an_expired_lease_is_taken_over(store: Store) -> None:
    plan = diamond(store)
    step = plan.steps[0]
    lease = step_lease(step.directory, "another driver", 0.3)
    lease.acquire()
    assert go(plan, store).failed == {}
    assert not lease.renew()


def test_an_attempt_without_the_lease_commits_nothing(store: Store) -> None:
    """Another driver takes the lease during the step and dies. The first driver executes the step again."""
    plan = diamond(store).until("toy:a")
    step = plan.steps[0]

    def taken_over(inputs: ToyInputs, given: ToyConfig, context: StepContext) -> None:
        toy(inputs, given, context)
        if len(CALLS) == 1:
            lease = step_lease(step.directory, "another driver", 0.3)
            state = {"owner": "another driver", "seconds": 0.3, "renewals": "0"}
            lease.path.with_name(f"{lease.path.name}-2").write_text(json.dumps(state))

    stage = replace(STAGE, run=taken_over)
    report = go(Plan((replace(step, stage=stage),)), store)
    assert report.failed == {}
    assert CALLS == ["a", "a"]
    (retried,) = [e for e in report.run.events() if e["event"] == "step_retried"]
    assert "another driver holds it: the driver's lease expired and another driver owns this step" in retried["error"]


def test_a_driver_that_slept_past_its_lease_leaves_the_step_to_its_successor(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """It wakes up in the middle of its step, which another driver has begun meanwhile, and waits for that one's artifact."""
    plan = diamond(store).until("toy:a")
    step = plan.steps[0]
    other = step_lease(step.directory, "other-1", 30)

    def slept(inputs: ToyInputs, given: ToyConfig, context: StepContext) -> None:
        context.write_text(context.directory / "piece", "of the sleeper")
        until(other.acquire)
        begin_attempt(step.directory, other)
        thread.start()
        assert context.stop_requested()
        toy(inputs, given, context)

    def finish() -> None:
        until(lambda: waits(store, step.name))
        partial = partial_directory(step.directory, "other-1")
        assert (partial / "piece").read_text() == "of the sleeper"
        (partial / "text").write_text("of the successor")
        store.commit(step.directory, manifest(step.name, step.fingerprint, attempt="other-1"), other)
        other.release()

    thread = threading.Thread(target=finish)
    monkeypatch.setattr(Driver, "renew_leases", lambda self: None)
    impatient = replace(config(store), store=replace(config(store).store, lease_seconds=0.3), cluster=Cluster(retries=0))
    slow = Plan((replace(step, stage=replace(STAGE, run=slept)),))
    report = execute.run(impatient, slow, store, config_file="toy.yaml", in_process=True)
    thread.join()
    assert report.failed == {}
    assert (step.directory / "text").read_text() == "of the successor"
    kinds = [e["event"] for e in report.run.events() if e.get("step") == step.name]
    assert kinds == ["step_started", "step_retried", "step_waiting", "step_hit"]
    assert list(partial_directories(step.directory)) == []


def test_a_second_driver_does_not_change_the_state_of_the_run(store: Store) -> None:
    run = go(diamond(store), store).run
    run.write_event("run_started", attempt="b", first=False)
    run.write_event("run_finished", status="stopped", attempt="b", first=False)
    assert (run.state().status, run.state().attempt) == ("done", 1)


def test_an_interrupted_step_does_not_delay_the_end_of_the_run(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(inputs: ToyInputs, given: ToyConfig, context: StepContext) -> None:
        raise KeyboardInterrupt

    builder = Builder(store.root)
    builder.add(replace(STAGE, run=interrupted), "a", ToyInputs(), ToyConfig("a"))
    monkeypatch.setattr(driver, "STOP_SECONDS", 2 * FAST_SECONDS)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        go(builder.plan(), store)
    assert time.monotonic() - began < FAST_SECONDS


def test_a_request_for_missing_resources_fails_at_once(store: Store) -> None:
    from stages.workers import Resources

    greedy = replace(config(store), cluster=Cluster(resources={"corpus": Resources(gpus=3)}))
    builder = Builder(store.root)
    builder.add(replace(STAGE, name="corpus"), "a", ToyInputs(), ToyConfig("a"))
    report = execute.run(greedy, builder.plan(), store, config_file="toy.yaml", in_process=True)
    assert "cluster.resources.corpus: asks for 1 x 1 CPU + 3 GPU" in str(report.failed["corpus:a"])
    assert CALLS == []


def test_a_step_that_no_machine_can_run_fails_before_any_step_starts(store: Store) -> None:
    builder = Builder(store.root)
    a = builder.add(STAGE, "a", ToyInputs(), ToyConfig("a"))
    b = builder.add(replace(STAGE, name="train"), "b", ToyInputs((a,)), ToyConfig("b"))
    builder.add(STAGE, "c", ToyInputs((b,)), ToyConfig("c"))
    builder.add(STAGE, "d", ToyInputs(), ToyConfig("d"))
    greedy = replace(config(store), cluster=Cluster(resources={"train": Resources(gpus=3)}))
    report = execute.run(greedy, builder.plan(), store, config_file="toy.yaml", in_process=True)
    assert (list(report.failed), CALLS) == (["train:b"], [])
    events = [(e["event"], e["step"]) for e in report.run.events() if "step" in e]
    assert events == [("step_failed", "train:b"), *(("step_skipped", f"toy:{name}") for name in "acd")]
    state = report.run.state()
    assert (state.status, state.steps["toy:a"].status) == ("failed", "skipped")
    assert state.steps["toy:a"].error == "not started: no machine can run train:b"
    assert go(builder.plan(), store).failed == {}


def test_a_step_that_may_be_kept_is_not_asked_for_its_machines(store: Store) -> None:
    """The step before it is rerun, with equal content, on a cluster without the GPUs that it once took."""
    builder = Builder(store.root)
    a = builder.add(STAGE, "a", ToyInputs(), ToyConfig("a"))
    builder.add(replace(STAGE, name="train"), "b", ToyInputs((a,)), ToyConfig("b"))
    plan = builder.plan()
    go(plan, store)
    greedy = replace(config(store), cluster=Cluster(resources={"train": Resources(gpus=3)}))
    report = execute.run(greedy, plan, store, config_file="toy.yaml", in_process=True, force=("toy:a",))
    assert (report.failed, report.executed) == ({}, ("toy:a",))


def _work(store: Store, directory: Path) -> StepContext:
    from stages.workers import LocalWorkers, Resources

    partial = partial_directory(directory, "x")
    partial.mkdir(parents=True)
    return StepContext(directory=partial, attempt="x", workers=LocalWorkers(), resources=Resources(), shard_cache=store.shard_cache)


def fading(monkeypatch: pytest.MonkeyPatch, there: list[bool]) -> None:
    """Make the nodes present or absent at each look, in the order of `there`. The last value repeats."""

    class Fading(InProcess):
        @property
        def nodes(self) -> dict[str, dict[str, float]]:
            return super().nodes if (there.pop(0) if len(there) > 1 else there[0]) else {}

    monkeypatch.setattr(execute, "InProcess", Fading)


def test_a_step_waits_for_lost_nodes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    fading(monkeypatch, [True, False, False, True])
    report = go(diamond(store).until("toy:a"), store)
    assert report.failed == {}
    (waited,) = [e for e in report.run.events() if e["event"] == "step_waiting"]
    assert waited["error"] == (
        "machines are gone, up to 300 s for others (cluster.node_wait_seconds): cluster.resources.toy: asks for 1 x 1 CPU, the "
        "machines have nothing: no machine is left; ask for less or add a node (docs/guide/cluster.md#steps-that-never-fit)"
    )


def test_a_step_fails_if_lost_nodes_do_not_return(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    fading(monkeypatch, [True, False])
    impatient = replace(config(store), cluster=Cluster(node_wait_seconds=0.3))
    report = execute.run(impatient, diamond(store).until("toy:a"), store, config_file="toy.yaml", in_process=True)
    assert list(report.failed) == ["toy:a"]
    assert CALLS == []


def shares_of(inputs: ToyInputs, config: ToyConfig, context: StepContext) -> None:
    context.write_text(context.directory / "text", f"{context.num_shares} on {context.resources.cpus:g} CPUs")


@pytest.mark.parametrize(("min_workers", "outcome"), [(1, "3 on 2 CPUs"), (2, None), (None, None)])
def test_a_training_goes_on_with_fewer_workers_if_it_may(
    store: Store, monkeypatch: pytest.MonkeyPatch, min_workers: int | None, outcome: str | None
) -> None:
    """Two of three nodes are lost and do not come back."""
    looks = iter([3])

    class Lossy(InProcess):
        @property
        def nodes(self) -> dict[str, dict[str, float]]:
            return {str(number): {"CPU": 2.0} for number in range(next(looks, 1))}

    monkeypatch.setattr(execute, "InProcess", Lossy)
    builder = Builder(store.root)
    builder.add(Stage("train", 1, shares_of, Toy, distributes=True, trains=True), "a", ToyInputs(), ToyConfig("a"))
    plan = builder.plan()
    asked = {"train": Resources(workers=3, cpus=2, min_workers=min_workers)}
    elastic = replace(config(store), cluster=Cluster(node_wait_seconds=0.3, resources=asked))  # type: ignore[arg-type]
    report = execute.run(elastic, plan, store, config_file="toy.yaml", in_process=True)
    assert list(report.failed) == ([] if outcome else ["train:a"])
    if outcome:
        assert text(plan, "train:a") == outcome
        waited = [e["error"] for e in report.run.events() if e["event"] == "step_waiting"]
        assert waited[-1] == "no other machines came within 0.3 s: it goes on with 1 of 3 workers"


def test_work_lost_with_a_killed_driver_is_recorded_by_the_next(store: Store) -> None:
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
