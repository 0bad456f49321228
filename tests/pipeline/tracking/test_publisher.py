"""The publisher of a run in MLflow: its tags, its parameters and its tracker."""

import json
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from pipeline.run.run_directory import Run
from pipeline.tracking.mlflow_server import MlflowRun, Server
from pipeline.tracking.publisher import Publisher, Tracker, publish, tracking_uri
from pipeline.tracking.tags_and_params import parameters, source_tags
from stages.errors import StageError
from tests.pipeline.tracking.recorded_run import (
    CORPUS,
    DEAD,
    REPORT,
    SCORE,
    TRAIN,
    Browser,
    Settings,
    finish,
    log,
    make_run,
    start,
    whole_run,
)
from tests.processes import until


def test_publishing_a_finished_run_again_changes_nothing(store: Path, settings: Settings) -> None:
    run = make_run(store, config={"name": "demo", "seed": 1, "cluster": {"cpus": 2}, "tracking": {"uri": DEAD}})
    whole_run(run)
    publish(run.path, settings)
    seen = Browser(settings.uri, run)

    parent = seen.runs["run"]
    assert {r.data.tags["mlflow.parentRunId"] for step, r in seen.runs.items() if step != "run"} == {parent.info.run_id}
    assert seen.statuses() == dict.fromkeys(["run", CORPUS, TRAIN, SCORE, REPORT], "FINISHED")
    assert parent.data.params == {"name": "demo", "seed": "1"}  # the place of a run is not a parameter
    assert parent.data.metrics == {"teacher/beam5/demo/bleu": 41.5, "teacher/beam5/demo/chrf": 60.0}
    assert parent.data.tags["fewstep.isa"] == "x86-64-v3"
    for seen_run in seen.runs.values():
        expected = {"user": "anna", "source.name": "c.yaml", "source.type": "LOCAL"}
        assert {f"mlflow.{name}": value for name, value in expected.items()}.items() <= seen_run.data.tags.items()
    assert parent.data.tags["mlflow.source.git.commit"] == "0123456789ab"
    assert seen.runs[TRAIN].data.tags["mlflow.source.git.commit"] == "abc", "the code that made the artifact"
    assert seen.files("run") == {"config.yaml", "plan.json", "ledger.json", "report.md", "report.html"}

    training = seen.runs[TRAIN]
    expected = {"stage": "train", "stage_version": "3", "fingerprint": "traintrain", "step": TRAIN, "attempt": "1", "cache": "miss"}
    expected |= {"git_revision": "abc", "code_digest": "c0de", "run": "demo-1", "isa": "x86-64-v3"}
    assert {f"fewstep.{name}": value for name, value in expected.items()}.items() <= training.data.tags.items()
    assert training.data.params == {"training.updates": "10", "training.betas": "[0.9, 0.98]", "network.layers": "4"}
    assert seen.points(TRAIN, "loss") == [(step, 1.0 / step) for step in range(1, 11)]
    assert training.data.metrics["seconds"] == 62.5
    assert seen.files(TRAIN) == set()  # no weights
    assert seen.files(TRAIN, "figures") == {"figures/loss.svg"}
    assert seen.runs[SCORE].data.metrics == {"bleu": 41.5, "chrf": 60.0, "seconds": 62.5}
    assert seen.runs[SCORE].data.tags["fewstep.signature.bleu"] == "nrefs:1"
    assert seen.runs[REPORT].data.metrics == {"teacher/beam5/latency/median_ms": 5.0, "seconds": 62.5}

    config = yaml.safe_load(Path(seen.client.download_artifacts(parent.info.run_id, "config.yaml")).read_text())
    assert config["tracking"]["uri"] == "http://***@127.0.0.1:9"

    before = seen.everything()
    publish(run.path, settings)
    assert Browser(settings.uri, run).everything() == before
    (run.path / "mlflow.json").write_text(_without_positions(run))  # as if killed after sending, before remembering
    publish(run.path, settings)
    again = Browser(settings.uri, run)
    assert again.everything() == before
    assert again.count == 5


@pytest.mark.parametrize("chosen", [None, "genai_development"])
def test_an_experiment_opens_as_model_development_unless_the_user_chose_otherwise(
    store: Path, settings: Settings, chosen: str | None
) -> None:
    from mlflow.tracking import MlflowClient

    client, name = MlflowClient(tracking_uri=settings.uri), f"kind-{chosen}"
    run = make_run(store)
    if chosen:
        client.create_experiment(name, (store / "mlflow-artifacts").as_uri(), tags={"mlflow.experimentKind": chosen})
    for _ in range(2):
        publish(run.path, replace(settings, experiment=name, uri=settings.uri))
        assert client.get_experiment_by_name(name).tags["mlflow.experimentKind"] == (chosen or "custom_model_development")
        if not chosen:  # an experiment that an earlier version made
            client.delete_experiment_tag(client.get_experiment_by_name(name).experiment_id, "mlflow.experimentKind")


def _without_positions(run: Run) -> str:
    memory = json.loads((run.path / "mlflow.json").read_text())
    memory["servers"] = []
    return json.dumps(memory)


def test_curves_grow_during_a_run_and_after_a_restart(store: Path, settings: Settings) -> None:
    run = make_run(store)
    run.write_event("run_started", attempt="a")
    partial = start(run, TRAIN)
    log(partial, range(1, 6))
    driver = Publisher(run.path, settings)
    driver.sync()
    assert Browser(settings.uri, run).statuses() == {"run": "RUNNING", TRAIN: "RUNNING"}
    log(partial, range(6, 9))
    with (partial / "records" / "metrics.a-1.jsonl").open("a") as file:
        file.write('{"step": 9, "time"')  # a line that is being written
    driver.sync()
    driver.sync()
    assert [step for step, _ in Browser(settings.uri, run).points(TRAIN, "loss")] == list(range(1, 9))

    # the driver is killed; the next attempt begins at its checkpoint at 5
    run.write_event("run_started", attempt="b")
    again = Publisher(run.path, settings)
    again.sync()
    start(run, TRAIN, "b-1")
    log(partial, range(6, 11), "b-1", origin=500.0)
    again.sync()
    finish(run, TRAIN)
    run.write_event("step_failed", step=SCORE, error="no model at http://me:secret@host/x")
    run.write_event("run_finished", status="failed")
    again.sync(final=True)
    seen = Browser(settings.uri, run)
    assert [step for step, _ in seen.points(TRAIN, "loss")] == list(range(1, 11))
    assert seen.statuses() == {"run": "FAILED", TRAIN: "FINISHED", SCORE: "FAILED"}
    assert seen.count == 3
    assert seen.runs["run"].data.tags["fewstep.attempt"] == "2"
    assert seen.runs[TRAIN].data.tags["fewstep.attempt"] == "2"
    assert seen.runs[SCORE].data.tags["fewstep.error"] == "no model at http://***@host/x"


def test_a_long_backlog_of_points_is_sent_completely(store: Path, settings: Settings) -> None:
    run = make_run(store)
    run.write_event("run_started", attempt="a")
    log(start(run, TRAIN), range(1, 2502))
    Publisher(run.path, settings).sync()
    assert [step for step, _ in Browser(settings.uri, run).points(TRAIN, "loss")] == list(range(1, 2502))


def test_a_hit_links_to_the_run_that_made_it(store: Path, settings: Settings) -> None:
    origin = make_run(store, "demo-1")
    whole_run(origin)
    publish(origin.path, settings)
    made = Browser(settings.uri, origin).runs
    run = make_run(store, "demo-2")
    run.write_event("run_started", attempt="a")
    for step in (CORPUS, TRAIN, SCORE):
        run.write_event("step_hit", step=step, directory="there", origin="demo-1")
    run.write_event("step_hit", step=REPORT, directory="there", origin="demo-2")  # our own, committed just before a crash
    run.write_event("run_finished", status="done")
    publish(run.path, settings)
    seen = Browser(settings.uri, run)
    tags = seen.runs[TRAIN].data.tags
    assert tags["fewstep.cache"] == "hit"
    assert tags["fewstep.source_run_id"] == made[TRAIN].info.run_id
    assert tags["fewstep.origin_run"] == "demo-1"
    assert tags["mlflow.parentRunId"] == seen.runs["run"].info.run_id
    assert seen.runs[TRAIN].data.metrics == {}
    assert seen.runs["run"].data.metrics["teacher/beam5/demo/bleu"] == 41.5
    assert seen.runs[REPORT].data.tags["fewstep.cache"] == "miss"
    assert set(seen.statuses().values()) == {"FINISHED"}


def test_parameters_of_a_continued_run_do_not_change(store: Path, settings: Settings) -> None:
    """MLflow refuses to change a parameter, which must not fail the publication of a continued run."""
    run = make_run(store, config={"name": "demo", "old": "1"})
    run.write_event("run_started", attempt="a")
    Publisher(run.path, settings).sync(final=True)
    assert Browser(settings.uri, run).statuses() == {"run": "KILLED"}
    make_run(store, config={"name": "demo", "old": "2", "new": "x" * 7000})
    run.write_event("run_started", attempt="b")
    Publisher(run.path, settings).sync()
    parent = Browser(settings.uri, run).runs["run"]
    assert parent.data.params == {"name": "demo", "old": "1", "new": "x" * 6000}
    assert parent.info.status == "RUNNING"


def test_a_run_deleted_in_mlflow_is_published_again(store: Path, settings: Settings) -> None:
    run = make_run(store)
    whole_run(run)
    publish(run.path, settings)
    seen = Browser(settings.uri, run)
    for step in ("run", TRAIN):
        seen.client.delete_run(seen.runs[step].info.run_id)
    publish(run.path, settings)
    again = Browser(settings.uri, run)
    assert again.runs[TRAIN].info.run_id != seen.runs[TRAIN].info.run_id
    assert {r.data.tags.get("mlflow.parentRunId") for r in again.runs.values()} == {None, again.runs["run"].info.run_id}
    assert len(again.points(TRAIN, "loss")) == 10
    assert again.runs["run"].data.metrics["teacher/beam5/demo/bleu"] == 41.5
    assert again.files("run") == seen.files("run")


def test_a_run_without_driver_is_killed_in_mlflow(store: Path, settings: Settings) -> None:
    run = make_run(store)
    run.write_event("run_started", attempt="a")
    start(run, TRAIN)
    publish(run.path, settings)
    assert Browser(settings.uri, run).statuses() == {"run": "RUNNING", TRAIN: "RUNNING"}
    run.heartbeat.unlink()
    publish(run.path, settings)
    assert Browser(settings.uri, run).statuses() == {"run": "KILLED", TRAIN: "KILLED"}


def test_the_tracking_uri_follows_environment_config_and_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert tracking_uri(Settings(""), Path("/data/store")) == "sqlite:////data/store/mlflow.db"
    assert tracking_uri(Settings(""), Path("/a b/c?d#e%f")) == "sqlite:////a b/c%3Fd#e%25f/mlflow.db"
    assert tracking_uri(Settings("http://a"), Path("/s")) == "http://a"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://b")
    assert tracking_uri(Settings("http://a"), Path("/s")) == "http://b"


def test_artifacts_are_beside_a_shared_database(tmp_path: Path, settings: Settings) -> None:
    runs = [make_run(tmp_path / name) for name in ("one", "two")]
    for run in runs:
        whole_run(run)
        publish(run.path, settings)
        places = {r.info.artifact_uri.rpartition("/mlflow-artifacts/")[0] for r in Browser(settings.uri, run).runs.values()}
        assert places == {Path(settings.uri.removeprefix("sqlite:///")).parent.as_uri()}
        assert not (run.store / "mlflow-artifacts").exists()


def test_artifacts_are_never_written_into_another_store(tmp_path: Path, settings: Settings) -> None:
    from mlflow.tracking import MlflowClient

    run, other = make_run(tmp_path / "store"), tmp_path / "other/mlflow-artifacts"
    whole_run(run)
    there = replace(settings, experiment="of another store")
    MlflowClient(settings.uri).create_experiment(there.experiment, str(other))
    with pytest.raises(StageError, match=rf"got {other}, which belongs to another store; name another experiment in tracking"):
        publish(run.path, there)
    assert not other.exists()


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


def test_parameters_are_flat_and_masked() -> None:
    config = {"a": {"b": 1, "c": None, "d": {}}, "e": ["http://u:p@h", 2], "n+": True}
    assert parameters(config) == {"a.b": "1", "a.c": "null", "a.d": "{}", "e": '["http://***@h", 2]', "n_": "true"}


@pytest.mark.parametrize(("revision", "commit"), [("0123456789ab+", "0123456789ab"), ("unknown", None), (None, None)])
def test_the_commit_of_a_source_is_stated_where_there_is_one(revision: str | None, commit: str | None) -> None:
    tags = source_tags("configs/demo.yaml", None, revision)
    assert tags.get("mlflow.source.git.commit") == commit
    assert tags["mlflow.source.name"] == "configs/demo.yaml"
    assert "mlflow.user" not in tags


HOSTILE = "\x1b]0;title\x07 \u202egnp.exe\x9b \x00"


def test_foreign_text_is_escaped() -> None:
    shown = r"\x1b]0;title\x07 \u202egnp.exe\x9b \x00"
    assert parameters({"a": HOSTILE, "b": [HOSTILE]}) == {"a": shown, "b": parameters({"b": [HOSTILE]})["b"]}
    assert not set("\x1b\x07\x9b\u202e\x00") & set(parameters({"b": [HOSTILE]})["b"])
    sent: list[Any] = []
    server = object.__new__(Server)
    server.client = SimpleNamespace(log_batch=lambda run, tags: sent.extend(tags))  # type: ignore[assignment]
    server.set_tags(MlflowRun("1", "RUNNING", {}), {"fewstep.error": HOSTILE, "mlflow.note.content": f"`{HOSTILE}`"})
    assert {tag.key: tag.value for tag in sent} == {"fewstep.error": shown, "mlflow.note.content": f"`{shown}`"}
