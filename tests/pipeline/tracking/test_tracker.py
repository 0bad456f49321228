"""Tests of publication during a run."""

import time
from pathlib import Path

import pytest

from pipeline.run.run_directory import Run
from pipeline.tracking.publisher import publish
from pipeline.tracking.tracker import Tracker
from stages.errors import StageError
from tests.pipeline.tracking.recorded_run import (
    DEAD,
    TRAIN,
    Browser,
    Settings,
    log,
    make_run,
    start,
    whole_run,
)
from tests.waiting import until


def test_an_unreachable_server_causes_one_warning_and_publishing_works_later(
    store: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(store)
    with Tracker(run.path, Settings(DEAD), seconds=0.05):
        whole_run(run)
        time.sleep(0.5)  # several attempts
    warning = capsys.readouterr().err
    assert warning.count("warning:") == 1
    assert f"fewstep publish {run.path}" in warning
    with pytest.raises(StageError, match=r"127\.0\.0\.1:9.*MLFLOW_TRACKING_URI"):
        publish(run.path, Settings(DEAD))
    assert "hunter2" not in warning + (run.path / "mlflow.json").read_text()
    assert "MLflow" in warning
    publish(run.path, settings)
    seen = Browser(settings.uri, run)
    assert seen.count == 5
    assert len(seen.points(TRAIN, "loss")) == 10


def test_the_tracker_publishes_during_the_run(store: Path, settings: Settings) -> None:
    run = make_run(store)
    run.write_event("run_started", attempt="a")
    with Tracker(run.path, settings, seconds=0.05):
        log(start(run, TRAIN), range(1, 4))
        until(lambda: _has_points(run, settings.uri))
        assert Browser(settings.uri, run).statuses() == {"run": "RUNNING", TRAIN: "RUNNING"}
        run.write_event("run_finished", status="stopped")
    assert Browser(settings.uri, run).statuses() == {"run": "KILLED", TRAIN: "KILLED"}


def _has_points(run: Run, uri: str) -> bool:
    if not (run.path / "mlflow.json").exists():
        return False
    seen = Browser(uri, run)
    return TRAIN in seen.runs and len(seen.points(TRAIN, "loss")) == 3


def test_a_disabled_tracker_does_nothing(store: Path) -> None:
    run = make_run(store)
    with Tracker(run.path, Settings(DEAD, enabled=False)):
        pass
    assert not (run.path / "mlflow.json").exists()
