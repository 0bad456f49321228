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

from pipeline.run.history import Run
from pipeline.run.progress import LiveDisplay, Narrator, Row, duration, progress_line, rows, show_status
from pipeline.run.records import Progress, progress_of
from stages import context as step_context
from stages.context import StepContext
from stages.workers import LocalWorkers, Resources


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run(tmp_path / "runs" / "demo-1")
    plan = [
        {"step": f"{stage}:x", "stage": stage, "version": 1, "fingerprint": stage * 2, "inputs": []}
        for stage in ("corpus", "train", "score")
    ]
    run.create({"run_id": "demo-1", "name": "demo", "config": {}, "plan": plan})
    run.heartbeat.touch()
    return run


def report(run: Run, done: int, moment: float, attempt: str = "a-1", total: int = 700) -> None:
    """Write the progress that the step itself reports at a chosen moment."""
    directory = run.store / "train" / "traintrain.partial"
    context = StepContext(
        directory=directory,
        attempt=attempt,
        workers=LocalWorkers(),
        resources=Resources(workers=1, cpus=1),
        shard_cache=run.store / "shards",
    )
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
    """Return the row of a step in the display of a running driver at `now`."""
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


def test_a_resumed_attempt_does_not_boast_of_what_it_found_done(run: Run) -> None:
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
def test_a_first_report_does_not_depend_on_what_lies_there(run: Run, left: str) -> None:
    directory = run.store / "train" / "traintrain.partial"
    (directory / "records").mkdir(parents=True)
    (directory / "records" / "progress.json").write_text(left)
    report(run, 7, 100.0)
    assert progress_of(directory) == Progress(7, 700, "updates", 100.0, "a-1", first_done=7, first_time=100.0)


def test_a_step_that_stands_still_has_no_eta() -> None:
    still = Progress(5, 10, "rows", 2.0, "b", first_done=5, first_time=1.0)
    assert (still.rate, still.seconds_left) == (0.0, None)
    assert progress_line(Row("s", "running", still, still.rate, still.seconds_left)) == "5/10 rows (50 %), 0.0/s"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.44, "0.4s"), (9.96, "10s"), (59.4, "59s"), (59.6, "1m00s"), (83, "1m23s"), (3599.7, "1h00m"), (7500, "2h05m")],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_status_of_a_running_run(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_status_of_a_dead_run_says_what_to_do(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    now = time.time()
    training(run, now - 100)
    report(run, 350, now - 60)
    os.utime(run.heartbeat, (now - 31, now - 31))
    show_status(run.path, once=False)  # ends by itself, since no process is left to wait for
    out = capsys.readouterr().out
    assert re.search(r"train:x +interrupted +350/700 updates", out)
    assert "no driver is at work: repeat the run command to continue" in out


def test_status_of_a_failed_run_names_the_steps_and_the_logs(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    training(run, time.time())
    event(run, "step_failed", time.time(), step="train:x", error="no [red] space\nmore")
    event(run, "step_skipped", time.time(), step="score:x", error="needs train:x, which failed")
    event(run, "run_finished", time.time(), status="failed")
    show_status(run.path)
    out = capsys.readouterr().out
    assert "no [red] space" in out
    assert re.search(r"score:x +skipped .*needs train:x, which failed", out)
    assert f"failed: train:x (logs in {run.path / 'logs'})" in out.replace("\n", "")


def test_plain_lines(run: Run) -> None:
    now = time.time()
    event(run, "run_started", now - 900, attempt="z")
    event(run, "step_started", now - 900, step="corpus:x", step_attempt="z-1")  # an earlier start of the run is not reported again
    training(run, now)
    output = io.StringIO()
    with LiveDisplay(run.path, console=Console(file=output, width=40), poll_seconds=3600):
        event(run, "step_retried", now, step="train:x", error="a worker died")
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


def test_progress_lines_come_at_most_every_ten_seconds(run: Run) -> None:
    narrator, start = Narrator(run), time.time()
    training(run, start)
    said = []
    for second in range(1, 26):
        if second <= 21:
            report(run, second * 10, start + second)
        said += [(second, line) for line in narrator.progress([row_of(run, "train:x", start + second)], start + second)]
    assert [second for second, _ in said] == [10, 20]
    assert said[0][1].endswith("train:x 100/700 updates (14 %), 10.0/s, ETA 1m00s")


def test_live_display_shows_bars_of_running_steps_on_a_terminal(run: Run) -> None:
    training(run, time.time() - 5)
    report(run, 350, time.time())
    output = io.StringIO()
    console = Console(file=output, width=120, force_terminal=True, color_system=None)
    with LiveDisplay(run.path, console=console, poll_seconds=0.02):
        deadline = time.time() + 20
        while "350/700 updates" not in output.getvalue() and time.time() < deadline:
            time.sleep(0.02)
        event(run, "step_done", time.time(), step="train:x", directory="train/traintrain", seconds=6.0)
    text = output.getvalue()
    assert "350/700 updates" in text
    assert "train:x started" not in text
    assert "corpus:x hit" in text
    assert "train:x done in 6.0s" in text
