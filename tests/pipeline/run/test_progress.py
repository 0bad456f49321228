"""The display of a run, its progress and its timeline."""

from __future__ import annotations

import io
import json
import os
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from rich.console import Console

from pipeline.run.display import EventLines, LiveDisplay, progress_line
from pipeline.run.progress import Row, duration, rows, show_status
from pipeline.run.run_directory import Run
from pipeline.run.timeline import spans, timeline
from pipeline.store.records import Progress, progress_of
from stages import context as step_context
from stages.context import StepContext, StepSpan
from stages.workers import LocalWorkers, Resources
from tests.processes import FAST_SECONDS


def report(run: Run, done: int, moment: float, attempt: str = "a-1", total: int = 700) -> None:
    """Write the progress report of a step at a chosen time."""
    directory = run.store / "train" / "traintrain.partial"
    context = StepContext(
        directory=directory, attempt=attempt, workers=LocalWorkers(), resources=Resources(workers=1, cpus=1),
        shard_cache=run.store / "shards",
    )  # fmt: skip
    with patch.object(step_context, "time", SimpleNamespace(time=lambda: moment)):
        context.progress(done, total, "updates")


def event(run: Run, name: str, moment: float, **values: Any) -> None:
    """Write an event with a chosen time."""
    with (run.path / "events.jsonl").open("a") as file:
        file.write(json.dumps({"time": moment, "event": name, **values}) + "\n")


def training(run: Run, moment: float, attempt: str = "a-1") -> None:
    event(run, "run_started", moment, attempt=attempt.split("-")[0])
    event(run, "step_hit", moment, step="corpus:x", directory="corpus/corpuscorpus", origin="demo-0")
    event(run, "step_started", moment, step="train:x", step_attempt=attempt, directory="train/traintrain.partial")


def row_of(run: Run, step: str, now: float) -> Row:
    """Return the row of a step at `now`, while its driver is alive."""
    os.utime(run.heartbeat, (now, now))
    return next(row for row in rows(run, now)[0] if row.step == step)


def test_rate_and_eta_count_from_the_first_report(run: Run) -> None:
    start = time.time()
    training(run, start)
    report(run, 100, start + 10)
    first = row_of(run, "train:x", start + 10)
    assert (first.rate, first.eta) == (None, None)  # the 100 may have been found in a cache
    report(run, 200, start + 50)
    report(run, 350, start + 110)
    later = row_of(run, "train:x", start + 111)
    assert later.rate == pytest.approx(2.5)
    assert later.eta == pytest.approx(140.0)
    assert later.seconds == pytest.approx(111.0)


def test_the_rate_of_a_resumed_attempt_excludes_earlier_work(run: Run) -> None:
    start = time.time()
    training(run, start - 500)
    report(run, 300, start - 200)
    report(run, 400, start - 100)
    training(run, start, attempt="b-1")
    assert row_of(run, "train:x", start).progress is None  # the record is of the attempt before
    report(run, 390, start + 5, attempt="b-1")
    assert row_of(run, "train:x", start + 5).rate is None
    report(run, 410, start + 15, attempt="b-1")
    assert row_of(run, "train:x", start + 15).rate == pytest.approx(2.0)


@pytest.mark.parametrize("left", ["", "[]", "{", '{"attempt": "a-1"}', '{"attempt": "b-9", "first_done": 1, "first_time": 1.0}'])
def test_a_first_report_ignores_unreadable_earlier_reports(run: Run, left: str) -> None:
    directory = run.store / "train" / "traintrain.partial"
    (directory / "records").mkdir(parents=True)
    (directory / "records" / "progress.json").write_text(left)
    report(run, 7, 100.0)
    assert progress_of(directory) == Progress(7, 700, "updates", 100.0, "a-1", first_done=7, first_time=100.0)


def test_a_step_without_progress_has_no_eta() -> None:
    still = Progress(5, 10, "rows", 2.0, "b", first_done=5, first_time=1.0)
    assert (still.rate, still.seconds_left) == (0.0, None)
    assert progress_line(Row("s", "running", still, still.rate, still.seconds_left)) == "5/10 rows (50 %), 0.0/s"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.44, "0.4s"), (9.96, "10s"), (59.4, "59s"), (59.6, "1m00s"), (83, "1m23s"), (3599.7, "1h00m"), (7500, "2h05m")],
)
def test_durations_in_words(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_the_status_of_a_running_run_shows_rates(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    now = time.time()
    training(run, now - 20)
    report(run, 100, now - 20)
    report(run, 450, now - 10)
    show_status(run.path)
    out = capsys.readouterr().out
    assert re.search(r"train:x +running +450/700 updates +35\.0/s +7\.1s +20s", out)
    assert re.search(r"corpus:x +hit", out)
    assert re.search(r"score:x +pending", out)
    assert "1 of 3 steps are done; the run is running" in out


def test_the_status_of_a_run_without_driver_names_the_remedy(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    now = time.time()
    training(run, now - 100)
    report(run, 350, now - 60)
    os.utime(run.heartbeat, (now - 31, now - 31))
    show_status(run.path, once=False)  # ends by itself, since no process is left to wait for
    out = capsys.readouterr().out
    assert re.search(r"train:x +interrupted +350/700 updates", out)
    assert "its driver has ended: repeat the run command to continue" in out


def test_the_status_of_a_failed_run_names_the_steps_and_the_logs(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    training(run, time.time())
    event(run, "step_failed", time.time(), step="train:x", error="no [red] space\nmore")
    event(run, "step_skipped", time.time(), step="score:x", error="needs train:x, which failed")
    event(run, "run_finished", time.time(), status="failed")
    show_status(run.path)
    out = capsys.readouterr().out
    assert "no [red] space" in out
    assert re.search(r"score:x +skipped .*needs train:x, which failed", out)
    assert f"failed: train:x (logs in {run.path / 'logs'})" in out.replace("\n", "")


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
        f"{clock} corpus:x hit", f"{clock} train:x started", f"{clock} train:x retried (attempt 2): a worker died",
        f"{clock} train:x started (attempt 2)", f"{clock} train:x done in 1m02s",
        f"{clock} score:x waits: another driver works on it", f"{clock} score:x failed: boom",
    ]  # fmt: skip


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


def recorded(time: float, kind: str, step: str = "", **values: object) -> dict[str, object]:
    return {"time": time, "event": kind, **({"step": step} if step else {}), **values}


def test_spans_are_hits_computed_failed_lost_and_running_steps() -> None:
    found = spans(
        [
            recorded(1, "run_started", first=True), recorded(2, "step_hit", "corpus:train"),
            recorded(3, "step_started", "train:a", step_attempt="1-1"),
            recorded(4, "step_started", "train:b", step_attempt="1-2"),
            recorded(5, "step_retried", "train:b", step_attempt="1-2"),
            recorded(6, "step_started", "train:b", step_attempt="1-3"), recorded(9, "run_started", first=False),
            recorded(10, "step_failed", "train:b"), recorded(20, "run_started", first=True),
            recorded(21, "step_started", "train:a", step_attempt="3-1"), recorded(30, "step_done", "train:a"),
            recorded(31, "step_started", "report:run", step_attempt="3-2"),
        ],
        now=33,
    )  # fmt: skip
    assert found == (
        StepSpan("corpus:train", 2, 2, "hit"), StepSpan("train:a", 3, 10, "lost"), StepSpan("train:b", 4, 5, "lost"),
        StepSpan("train:b", 6, 10, "failed"), StepSpan("train:a", 21, 30, "done"), StepSpan("report:run", 31, 33, "running"),
    )  # fmt: skip


def test_an_attempt_ends_when_another_driver_takes_its_step_over() -> None:
    found = spans(
        [
            recorded(1, "run_started", first=True), recorded(2, "step_started", "train:a", step_attempt="1-1"),
            recorded(3, "run_started", first=False), recorded(5, "step_started", "train:a", step_attempt="2-1"),
            recorded(6, "step_retried", "train:a", step_attempt="1-1"), recorded(9, "step_done", "train:a", step_attempt="2-1"),
        ],
        now=10,
    )  # fmt: skip
    assert found == (StepSpan("train:a", 2, 5, "lost"), StepSpan("train:a", 5, 9, "done"))


def test_what_a_later_attempt_continues_is_kept_and_the_rest_lost() -> None:
    found = spans(
        [
            recorded(0, "run_started", first=True),
            recorded(10, "step_started", "train:a", step_attempt="1-1"),
            recorded(40, "step_retried", "train:a", step_attempt="1-1", lost_seconds=12.0),
            recorded(41, "step_started", "train:a", step_attempt="1-2"),
            recorded(41, "step_started", "train:b", step_attempt="1-3"),
            recorded(
                200, "run_started", first=True, lost={"train:a": 5.0, "train:b": 59.0}, ended=100
            ),  # killed long after an event
            recorded(201, "step_started", "train:a", step_attempt="2-1"),
            recorded(210, "step_retried", "train:a", step_attempt="2-1", lost_seconds=0.0),
        ],
        now=300,
    )
    assert found == (
        StepSpan("train:a", 10, 28, "kept"), StepSpan("train:a", 28, 40, "lost"), StepSpan("train:a", 41, 95, "kept"),
        StepSpan("train:b", 41, 100, "lost"), StepSpan("train:a", 95, 100, "lost"), StepSpan("train:a", 201, 210, "kept"),
    )  # fmt: skip


def test_a_run_without_events_has_no_spans(tmp_path: Path) -> None:
    assert timeline(Run(tmp_path / "runs" / "none")) == ()
