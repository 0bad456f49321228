"""The spans of a run's events."""

from __future__ import annotations

from pathlib import Path

from pipeline.run.run_directory import Run
from pipeline.run.timeline import spans, timeline
from stages.context import StepSpan


def event(time: float, kind: str, step: str = "", **values: object) -> dict[str, object]:
    return {"time": time, "event": kind, **({"step": step} if step else {}), **values}


def test_spans_are_hits_computed_failed_lost_and_running_steps() -> None:
    found = spans(
        [
            event(1, "run_started", first=True),
            event(2, "step_hit", "corpus:train"),
            event(3, "step_started", "train:a", step_attempt="1-1"),
            event(4, "step_started", "train:b", step_attempt="1-2"),
            event(5, "step_retried", "train:b", step_attempt="1-2"),
            event(6, "step_started", "train:b", step_attempt="1-3"),
            event(9, "run_started", first=False),
            event(10, "step_failed", "train:b"),
            event(20, "run_started", first=True),
            event(21, "step_started", "train:a", step_attempt="3-1"),
            event(30, "step_done", "train:a"),
            event(31, "step_started", "report:run", step_attempt="3-2"),
        ],
        now=33,
    )
    assert found == (
        StepSpan("corpus:train", 2, 2, "hit"),
        StepSpan("train:a", 3, 10, "lost"),
        StepSpan("train:b", 4, 5, "lost"),
        StepSpan("train:b", 6, 10, "failed"),
        StepSpan("train:a", 21, 30, "done"),
        StepSpan("report:run", 31, 33, "running"),
    )


def test_an_attempt_ends_when_another_driver_takes_its_step_over() -> None:
    found = spans(
        [
            event(1, "run_started", first=True),
            event(2, "step_started", "train:a", step_attempt="1-1"),
            event(3, "run_started", first=False),
            event(5, "step_started", "train:a", step_attempt="2-1"),
            event(6, "step_retried", "train:a", step_attempt="1-1"),
            event(9, "step_done", "train:a", step_attempt="2-1"),
        ],
        now=10,
    )
    assert found == (StepSpan("train:a", 2, 5, "lost"), StepSpan("train:a", 5, 9, "done"))


def test_what_a_later_attempt_continues_is_kept_and_the_rest_lost() -> None:
    found = spans(
        [
            event(0, "run_started", first=True),
            event(10, "step_started", "train:a", step_attempt="1-1"),
            event(40, "step_retried", "train:a", step_attempt="1-1", lost_seconds=12.0),
            event(41, "step_started", "train:a", step_attempt="1-2"),
            event(41, "step_started", "train:b", step_attempt="1-3"),
            event(200, "run_started", first=True, lost={"train:a": 5.0, "train:b": 59.0}, ended=100),  # killed long after an event
            event(201, "step_started", "train:a", step_attempt="2-1"),
            event(210, "step_retried", "train:a", step_attempt="2-1", lost_seconds=0.0),
        ],
        now=300,
    )
    assert found == (
        StepSpan("train:a", 10, 28, "kept"),
        StepSpan("train:a", 28, 40, "lost"),
        StepSpan("train:a", 41, 95, "kept"),
        StepSpan("train:b", 41, 100, "lost"),
        StepSpan("train:a", 95, 100, "lost"),
        StepSpan("train:a", 201, 210, "kept"),
    )


def test_a_run_without_events_has_no_spans(tmp_path: Path) -> None:
    assert timeline(Run(tmp_path / "runs" / "none")) == ()
