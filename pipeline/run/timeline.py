"""The timeline of a run: the times that it spent on its steps, from its events."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from typing import Any

from pipeline.run.run_directory import Run
from stages.context import StepSpan


def timeline(run: Run) -> tuple[StepSpan, ...]:
    """Return the spans of a run so far, in order of time. Steps that still run end now."""
    return spans(run.events(), time.time())


def spans(events: Iterable[Mapping[str, Any]], now: float) -> tuple[StepSpan, ...]:
    """Return the spans of events.

    A start of the run ends the steps that an earlier driver left unfinished, and a new attempt at a step ends the one before. Of
    these, the events say how much was lost.
    """
    found: list[StepSpan] = []
    started: dict[str, float] = {}
    attempts: dict[str, str] = {}
    last = now
    for event in events:
        kind = event["event"]
        step = event.get("step", "")
        if kind == "run_started" and event.get("first", True):
            lost = event.get("lost") or {}
            ended = max(last, event.get("ended") or last)
            for name, begun in started.items():
                found += _ended(name, begun, ended, lost.get(name))
            started = {}
        elif kind == "step_started":
            if step in started:
                found += _ended(step, started[step], event["time"], None)
            started[step], attempts[step] = event["time"], event["step_attempt"]
        elif kind == "step_hit":
            found.append(StepSpan(step, event["time"], event["time"], "hit"))
        elif kind == "step_retried" and event["step_attempt"] != attempts.get(step):
            pass  # another driver had taken the step over
        elif kind == "step_retried" and step in started:
            found += _ended(step, started.pop(step), event["time"], event.get("lost_seconds"))
        elif kind in ("step_done", "step_failed") and step in started:
            found.append(StepSpan(step, started.pop(step), event["time"], "done" if kind == "step_done" else "failed"))
        last = event["time"]
    found += [StepSpan(name, begun, now, "running") for name, begun in started.items()]
    return tuple(sorted(found, key=lambda span: span.started))


def _ended(step: str, started: float, finished: float, lost: Any) -> list[StepSpan]:
    """Return the spans of an attempt that another one follows: its last `lost` seconds had to be repeated; None stands for all."""
    seconds = float(lost) if isinstance(lost, (int, float)) else math.inf
    saved = max(started, finished - seconds)
    kept = [StepSpan(step, started, saved, "kept")] if saved > started else []
    return [*kept, *([StepSpan(step, saved, finished, "lost")] if finished > saved or not kept else [])]
