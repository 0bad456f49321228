import os
import re
import time

import pytest

from pipeline.run.display import progress_line
from pipeline.run.progress import Row, duration, show_status
from pipeline.run.run_directory import Run
from pipeline.store.records import Progress, progress_of
from tests.pipeline.run.recorded_run import event, report, row_of, training


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
