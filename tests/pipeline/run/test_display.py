"""Tests of the live display and of the lines that it prints."""

import io
import time

from rich.console import Console

from pipeline.run.display import EventLines, LiveDisplay
from pipeline.run.run_directory import Run
from tests.pipeline.run.recorded_run import event, report, row_of, training
from tests.waiting import FAST_SECONDS


def test_events_are_printed_as_lines(run: Run) -> None:
    now = time.time()
    event(run, "run_started", now - 900, attempt="z")
    event(run, "step_started", now - 900, step="corpus:x", step_attempt="z-1")  # an earlier start of the run is not reported again
    training(run, now)
    output = io.StringIO()
    with LiveDisplay(run.path, console=Console(file=output, width=40), poll_seconds=3600):
        event(run, "step_retried", now, step="train:x", step_attempt="a-1", error="a worker died")
        event(run, "step_started", now, step="train:x", step_attempt="a-2", directory="train/traintrain.partial")
        event(run, "step_done", now, step="train:x", step_attempt="a-2", directory="train/traintrain", seconds=62.0)
        event(run, "step_waiting", now, step="score:x", error="another driver works on it")
        event(run, "step_failed", now, step="score:x", error="boom")
        event(run, "run_finished", now, status="failed")
    clock = time.strftime("%H:%M:%S", time.localtime(now))
    assert output.getvalue().splitlines() == [
        f"{clock} corpus:x hit",
        f"{clock} train:x started",
        f"{clock} train:x retried (attempt 2): a worker died",
        f"{clock} train:x started (attempt 2)",
        f"{clock} train:x done in 1m02s",
        f"{clock} score:x waits: another driver works on it",
        f"{clock} score:x failed: boom",
    ]


def test_progress_lines_are_at_least_ten_seconds_apart(run: Run) -> None:
    lines, start = EventLines(run), time.time()
    training(run, start)
    said = []
    for second in range(1, 26):
        if second <= 21:
            report(run, second * 10, start + second)
        said += [(second, line) for line in lines.progress([row_of(run, "train:x", start + second)], start + second)]
    assert [second for second, _ in said] == [10, 20]
    assert said[0][1].endswith("train:x 100/700 updates (14 %), 10.0/s, ETA 1m00s")


def test_the_live_display_shows_bars_of_running_steps_on_a_terminal(run: Run) -> None:
    training(run, time.time() - 5)
    report(run, 350, time.time())
    output = io.StringIO()
    console = Console(file=output, width=120, force_terminal=True, color_system=None)
    with LiveDisplay(run.path, console=console, poll_seconds=0.02):
        deadline = time.time() + FAST_SECONDS
        while "350/700 updates" not in output.getvalue() and time.time() < deadline:
            time.sleep(0.02)
        event(run, "step_done", time.time(), step="train:x", directory="train/traintrain", seconds=6.0)
    text = output.getvalue()
    assert "350/700 updates" in text
    assert "train:x started" not in text
    assert "corpus:x hit" in text
    assert "train:x done in 6.0s" in text
