"""Steps that are rerun, and the steps that depend on them."""

import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import durable
from pipeline.plan.explain import explain
from pipeline.plan.step import Builder, Plan
from pipeline.run import execute
from pipeline.run.driver import Driver
from pipeline.run.execute import required
from pipeline.store import garbage
from pipeline.store.artifacts import Store
from pipeline.store.attempts import partial_directories
from pipeline.store.marker import open_store
from pipeline.store.mirror import Mirror
from stages.context import StepContext
from stages.errors import DataError, TransientError
from tests.pipeline.run.toys import CALLS, FAULTS, STAGE, Toy, ToyConfig, ToyInputs, config, text, toy
from tests.processes import FAST_SECONDS

WORLD = {"a": "a"}
"""The content that the step `a` reads from the world, which no fingerprint covers."""


def worldly(inputs: ToyInputs, given: ToyConfig, context: StepContext) -> None:
    toy(inputs, given, context)
    (context.directory / "text").write_text(WORLD.get(given.text, given.text))
    context.write_text(context.records("note"), f"made {CALLS.count(given.text)} times, cache {context.shard_cache.parts[-1]}")


def last(inputs: ToyInputs, given: ToyConfig, context: StepContext) -> None:
    toy(inputs, given, context)
    notes = [(artifact.records / "note").read_text() for artifact in inputs.before if (artifact.records / "note").is_file()]
    context.write_text(context.records("notes"), "; ".join(notes))


def plan_of(store: Store) -> Plan:
    """Return a plan of a -> b -> d, c -> d, and a, d -> report, which reads records."""
    builder = Builder(store.root)
    a = builder.add(replace(STAGE, name="corpus", run=worldly), "a", ToyInputs(), ToyConfig("a"))
    b = builder.add(STAGE, "b", ToyInputs((a,)), ToyConfig("b"))
    c = builder.add(STAGE, "c", ToyInputs(), ToyConfig("c"))
    d = builder.add(replace(STAGE, product=True), "d", ToyInputs((b, c)), ToyConfig("d"))
    builder.add(replace(STAGE, name="report", run=last, reads_records=True), "r", ToyInputs((a, d)), ToyConfig("r"))
    return builder.plan()


def go(store: Store, *force: str, until: str | None = None) -> execute.RunReport:
    plan = plan_of(store).until(until)
    return execute.run(config(store), plan, store, config_file="toy.yaml", in_process=True, force=force)


@pytest.fixture
def made(tmp_path: Path) -> Store:
    """Return a store with a finished run."""
    WORLD["a"] = "a"
    store = open_store(tmp_path / "store")
    assert go(store).failed == {}
    CALLS.clear()
    return store


def test_equal_content_is_made_again_for_the_step_and_for_readers_of_records_alone(made: Store) -> None:
    report = go(made, "corpus:a")
    assert (CALLS, report.executed) == (["a", "r"], ("corpus:a", "report:r"))
    states = report.run.state().steps
    assert {name: step.status for name, step in states.items()} == dict.fromkeys(states, "done")
    plan = plan_of(made)
    assert (plan.steps[-1].directory / "records/notes").read_text() == "made 1 times, cache shards"
    assert required(plan, made)[0] == []
    assert go(made).executed == ()


def test_several_steps_are_made_again(made: Store) -> None:
    assert go(made, "corpus:a", "toy:c").executed == ("corpus:a", "toy:c", "report:r")
    with pytest.raises(DataError, match="--force: expected a step or a stage of the plan"):
        go(made, "corpus:a", "toy:x")


def test_other_content_makes_all_that_depends_on_it_again(made: Store) -> None:
    WORLD["a"] = "A"
    report = go(made, "corpus:a")
    assert (CALLS, report.failed) == (["a", "b", "d", "r"], {})
    assert text(plan_of(made), "report:r") == "AAbcdr"
    assert go(made).executed == ()
    found = made.manifest(plan_of(made).steps[0].directory)
    assert found is not None
    assert (len(found.replaces), found.rebuilt) == (1, True)


def test_what_was_not_made_again_in_time_is_stale(made: Store) -> None:
    """The run ends after the step: the next one, also that of another config, goes on from the new content."""
    WORLD["a"] = "A"
    go(made, "corpus", until="corpus")
    assert CALLS == ["a"]
    lines = {line.step.name: (line.verdict, line.reason) for line in explain(plan_of(made), made)}
    assert lines["corpus:a"] == ("HIT", "")
    assert lines["toy:b"] == ("MISS", "other content since it was made: input before.0")
    assert lines["toy:c"][0] == "HIT"
    assert lines["toy:d"] == ("MISS", "it is kept if the steps before it have the same content again")
    assert execute.run(replace(config(made), name="x"), plan_of(made), made, config_file="", in_process=True).failed == {}
    assert (CALLS, text(plan_of(made), "report:r")) == (["a", "b", "d", "r"], "AAbcdr")


def test_a_step_that_only_others_need_and_that_is_missing_is_made(made: Store) -> None:
    made.host.disk.remove_tree(plan_of(made).steps[0].directory)
    assert go(made, "corpus:a").failed == {}
    assert CALLS == ["a"]


def test_a_step_that_fails_leaves_the_artifact_as_it_was(made: Store) -> None:
    WORLD["a"] = "A"
    FAULTS["a"] = [DataError("no")]
    report = go(made, "corpus:a")
    assert list(report.failed) == ["corpus:a"]
    assert text(plan_of(made), "report:r") == "aabcdr"
    assert required(plan_of(made), made)[0] == []
    assert go(made).failed == {}


def test_an_unknown_step_is_refused(made: Store) -> None:
    with pytest.raises(
        DataError, match=r"--force: expected a step or a stage of the plan .*got 'corpus:x'; did you mean 'corpus:a'"
    ):
        go(made, "corpus:x")
    with pytest.raises(DataError, match="--force: expected a step or a stage"):
        go(made, "report", until="corpus")


def test_caches_of_earlier_content_are_not_read(made: Store) -> None:
    """They are known by fingerprints, which stay the same."""
    shared: dict[str, bool] = {}

    def look(inputs: ToyInputs, given: ToyConfig, context: StepContext) -> None:
        shared[given.text] = context.shard_cache == made.shard_cache
        toy(inputs, given, context)

    WORLD["a"] = "A"
    go(made, "corpus:a")
    builder = Builder(made.root)
    b = plan_of(made).steps[1]
    e = builder.add(replace(STAGE, run=look), "e", ToyInputs((Toy(b.directory, b.fingerprint),)), ToyConfig("e"))
    builder.add(replace(STAGE, run=look), "f", ToyInputs((e,)), ToyConfig("f"))
    builder.add(replace(STAGE, run=look), "g", ToyInputs(), ToyConfig("g"))
    assert execute.run(config(made), builder.plan(), made, config_file="", in_process=True).failed == {}
    assert shared == {"e": False, "f": False, "g": True}


@pytest.mark.parametrize("exchange", [True, False])
def test_an_artifact_is_replaced_at_once(made: Store, exchange: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks sees the old one or the new one, where the file system can exchange names; and a whole one in the end."""
    directory = plan_of(made).steps[0].directory
    seen: list[bool] = []
    rename = os.rename

    def watched(source: Any, target: Any) -> None:
        rename(source, target)
        seen.append((directory / "manifest.json").is_file())

    if not exchange:
        monkeypatch.setattr(durable.RealDisk, "exchange", lambda disk, first, second: (_ for _ in ()).throw(OSError(22, "no")))
    WORLD["a"] = "A"
    monkeypatch.setattr(os, "rename", watched)
    assert go(made, "corpus:a", until="corpus:a").failed == {}
    assert all(seen) == exchange
    assert (directory / "text").read_text() == "A"
    assert sorted(path.name for path in directory.parent.iterdir()) == [directory.name]


def test_a_reader_of_an_artifact_that_is_replaced_meanwhile_begins_again(made: Store) -> None:
    """Another driver makes `a` again while `b`, which has read it, runs."""
    plan = plan_of(made)
    made.host.disk.remove_tree(plan.steps[1].directory)

    def slow(inputs: ToyInputs, given: ToyConfig, context: StepContext) -> None:
        toy(inputs, given, context)
        if CALLS.count("b") == 1:
            WORLD["a"] = "A"
            part = plan.until("corpus:a")
            assert execute.run(config(made), part, made, config_file="", in_process=True, force=("corpus",)).failed == {}

    stage = replace(STAGE, run=slow, product=True)
    steps = [replace(step, stage=stage) if step.name == "toy:b" else step for step in plan.steps]
    report = execute.run(config(made), Plan(tuple(steps)).until("toy:b"), made, config_file="", in_process=True)
    assert (report.failed, CALLS) == ({}, ["b", "a", "b"])
    assert text(plan, "toy:b") == "Ab"
    (retried,) = [event["error"] for event in report.run.events() if event["event"] == "step_retried"]
    assert retried == "toy:b: an input was recomputed (run --force) while it was read"


def test_two_drivers_that_force_a_step_make_it_once_more(made: Store) -> None:
    """The second one has begun to wait before the first one has finished, and takes its artifact."""
    plan, barrier = plan_of(made), threading.Barrier(2)
    original = Driver._lease

    def together(driver: Driver, step: Any) -> bool:
        if not driver.__dict__.setdefault("met", False):
            driver.__dict__["met"] = True
            barrier.wait(FAST_SECONDS)
        return original(driver, step)

    reports: list[execute.RunReport] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Driver, "_lease", together)
        patch.setattr(execute, "_interrupted_by_signals", lambda: threading.Lock())
        patch.setattr(execute, "LiveDisplay", lambda path: threading.Lock())
        part = plan.until("corpus")
        threads = [
            threading.Thread(
                target=lambda: reports.append(
                    execute.run(config(made), part, made, config_file="", in_process=True, force=("corpus",))
                )
            )
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert CALLS == ["a"]
    assert sorted(report.executed for report in reports) == [(), ("corpus:a",)]


def test_gc_leaves_a_step_that_is_being_made_again_and_removes_what_it_replaced(made: Store) -> None:
    plan = plan_of(made)
    kept: list[list[str]] = []

    def collecting(inputs: ToyInputs, given: ToyConfig, context: StepContext) -> None:
        toy(inputs, given, context)
        kept.append([str(item.path.relative_to(made.root)) for item in garbage.remove(made)])
        assert context.directory.is_dir()

    first = replace(plan.steps[0], stage=replace(plan.steps[0].stage, run=collecting))
    part = Plan((first, *plan.steps[1:])).until("corpus")
    report = execute.run(config(made), part, made, config_file="", in_process=True, force=("corpus",))
    assert (report.failed, kept) == ({}, [[]])
    FAULTS["a"] = [TransientError("killed")] * 9
    assert list(go(made, "corpus", until="corpus").failed) == ["corpus:a"]  # the artifact of before is finished
    assert [item.reason for item in garbage.remove(made) if ".partial" in item.path.name] == ["its artifact is finished"]
    assert list(partial_directories(plan.steps[0].directory)) == []
    assert [step.name for step in required(plan, made)[0]] == ["report:r"]  # of the first time


def test_the_mirror_takes_what_replaces_its_copy(made: Store, tmp_path: Path) -> None:
    mirror = Mirror(f"file://{tmp_path / 'mirror'}", made)
    step = plan_of(made).steps[0]
    assert [mirror.push(step.directory), mirror.push(step.directory)] == [True, False]
    WORLD["a"] = "A"
    go(made, "corpus:a")
    assert [mirror.push(step.directory), mirror.push(step.directory)] == [True, False]
    other = open_store(tmp_path / "other")
    there = other.directory("corpus", step.fingerprint)
    assert Mirror(mirror.url, other).pull(there)
    assert (there / "text").read_text() == "A"
