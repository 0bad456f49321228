"""The executor over toy stages, in one process."""

import os
import shutil
import signal
from dataclasses import replace

import pytest

from pipeline.plan.step import Builder
from pipeline.run import execute
from pipeline.run.execute import required
from pipeline.store.artifacts import Store
from tests.pipeline.run.toys import CALLS, FAULTS, STAGE, ToyConfig, ToyInputs, diamond, go, text


def test_steps_read_earlier_artifacts_and_are_executed_once(store: Store) -> None:
    plan = diamond(store)
    assert go(plan, store).failed == {}
    assert text(plan, "toy:d") == "abacd"
    report = go(plan, store)
    assert report.executed == ()
    assert CALLS == ["a", "b", "c", "d"]


def test_a_changed_parameter_executes_exactly_its_descendants(store: Store) -> None:
    go(diamond(store), store)
    CALLS.clear()
    report = go(diamond(store, left="B"), store)
    assert CALLS == ["B", "d"]
    assert set(report.executed) == {"toy:b", "toy:d"}


def test_a_missing_step_with_finished_descendants_is_not_executed(store: Store) -> None:
    plan = diamond(store)
    go(plan, store)
    first = plan.steps[0]
    shutil.rmtree(first.directory)
    todo, found = required(plan, store)
    assert ([s.name for s in todo], [s.name for s in found]) == ([], ["toy:b", "toy:c", "toy:d"])


def test_a_missing_product_is_executed_although_no_step_needs_it(store: Store) -> None:
    builder = Builder(store.root)
    a = builder.add(replace(STAGE, product=True), "a", ToyInputs(), ToyConfig("a"))
    builder.add(STAGE, "b", ToyInputs((a,)), ToyConfig("b"))
    plan = builder.plan()
    go(plan, store)
    shutil.rmtree(a.path)
    assert go(plan, store).executed == ("toy:a",)


def test_a_failed_step_skips_only_its_descendants(store: Store) -> None:
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


def test_an_altered_input_fails_the_step_that_reads_it(store: Store) -> None:
    plan = diamond(store)
    go(plan.until("toy:b"), store)
    (plan.steps[0].directory / "text").write_text("x")
    os.utime(plan.steps[0].directory / "text", ns=(1, 1))
    report = go(plan, store)
    assert list(report.failed) == ["toy:c"]
    assert "expected sha256" in str(report.failed["toy:c"])
    assert "was altered: remove" in str(report.failed["toy:c"])


def test_a_complete_run_is_recorded_once(store: Store) -> None:
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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_that_end_a_process_interrupt_a_run(number: int) -> None:
    """A closed terminal sends SIGHUP."""
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), execute._interrupted_by_signals():
        signal.raise_signal(number)
    assert signal.getsignal(number) is before


def test_a_run_under_nohup_goes_on_without_its_terminal() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with execute._interrupted_by_signals():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
