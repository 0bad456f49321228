"""The timeline of a run: the times that it spent on its steps, from its events."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pipeline.run.run_directory import Run
from stages.context import StepSpan

ENDS: dict[str, Literal["done", "failed", "lost"]] = {"step_done": "done", "step_failed": "failed", "step_retried": "lost"}


def timeline(run: Run) -> tuple[StepSpan, ...]:
    """Return the spans of a run so far, in order of time. Steps that still run end now."""
    return spans(run.events(), time.time())


def spans(events: Iterable[Mapping[str, Any]], now: float) -> tuple[StepSpan, ...]:
    """Return the spans of events.

    A start of the run ends the steps that an earlier driver left unfinished, and a new attempt at a step ends the one before.
    """
    found: list[StepSpan] = []
    started: dict[str, float] = {}
    attempts: dict[str, str] = {}
    last = now
    for event in events:
        kind, step = event["event"], event.get("step", "")
        if kind == "run_started" and event.get("first", True):
            found += [StepSpan(name, begun, last, "lost") for name, begun in started.items()]
            started = {}
        elif kind == "step_started":
            if step in started:
                found.append(StepSpan(step, started[step], event["time"], "lost"))
            started[step], attempts[step] = event["time"], event["step_attempt"]
        elif kind == "step_hit":
            found.append(StepSpan(step, event["time"], event["time"], "hit"))
        elif kind == "step_retried" and event["step_attempt"] != attempts.get(step):
            pass  # another driver had taken the step over
        elif kind in ENDS and step in started:
            found.append(StepSpan(step, started.pop(step), event["time"], ENDS[kind]))
        last = event["time"]
    found += [StepSpan(name, begun, now, "running") for name, begun in started.items()]
    return tuple(sorted(found, key=lambda span: span.started))
