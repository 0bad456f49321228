"""Runs with records, and the view of a user on them in MLflow."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.run.run_directory import Run
from tests.pipeline.run_specs import plan_entry, run_spec

CORPUS, TRAIN, SCORE, REPORT = "corpus:train", "train:teacher", "score:teacher/beam5:demo", "report:run"
STORED = "stored"


DEAD = "http://user:hunter2@127.0.0.1:9"


@dataclass(frozen=True)
class Settings:
    uri: str
    enabled: bool = True
    experiment: str = "tests"
    models: bool = True


def make_run(store: Path, name: str = "demo-1", config: dict[str, Any] | None = None) -> Run:
    run = Run(store / "runs" / name)
    plan = [plan_entry(step, version=3) for step in (CORPUS, TRAIN, SCORE, REPORT)]
    run.create(run_spec(*plan, run_id=name, config=config or {"name": "demo"}, config_file="c.yaml", store=str(store)))
    run.heartbeat.touch()
    return run


def directory(run: Run, step: str, *, partial: bool = False) -> Path:
    stage = step.split(":")[0]
    path = run.store / stage / (stage * 2 + (".partial" if partial else ""))
    (path / "records").mkdir(parents=True, exist_ok=True)
    return path


def start(run: Run, step: str, attempt: str = "a-1") -> Path:
    path = directory(run, step, partial=True)
    run.write_event("step_started", step=step, step_attempt=attempt, directory=str(path.relative_to(run.store)))
    return path


def finish(run: Run, step: str, **config: Any) -> Path:
    """Commit a step as the store does, and record it."""
    partial = directory(run, step, partial=True)
    manifest = {
        "config": config,
        "git_revision": "abc",
        "code_digest": "c0de",
        "environment": {"isa": ["x86-64-v3"]},
        "seconds": 62.5,
        "finished": 1000.25,
        "run_id": run.path.name,
    }
    (partial / "manifest.json").write_text(json.dumps(manifest))
    path = partial.rename(partial.with_suffix(""))
    run.write_event("step_done", step=step, directory=str(path.relative_to(run.store)), seconds=62.5)
    return path


def log(path: Path, steps: range, attempt: str = "a-1", origin: float = 100.0) -> None:
    with (path / "records" / f"metrics.{attempt}.jsonl").open("a") as file:
        for step in steps:
            file.write(json.dumps({"step": step, "time": origin + step, "loss": 1.0 / step, "note": "text"}) + "\n")


def whole_run(run: Run) -> None:
    """Write a run with every kind of record."""
    run.write_event("run_started", attempt="a", user="anna", revision="0123456789ab+")
    (start(run, CORPUS) / "ledger.json").write_text('{"in": 3}')
    finish(run, CORPUS)
    training = start(run, TRAIN)
    log(training, range(1, 11))
    (training / "model.safetensors").write_bytes(b"weights")
    (training / "records" / "figures").mkdir()
    (training / "records" / "figures" / "loss.svg").write_text("<svg/>")
    finish(run, TRAIN, training={"updates": 10, "betas": [0.9, 0.98]}, network={"layers": 4})
    scores = {"bleu": {"score": 41.5, "signature": "nrefs:1"}, "chrf": {"score": 60.0, "signature": "c"}}
    (start(run, SCORE) / "scores.json").write_text(json.dumps(scores))
    finish(run, SCORE)
    page = start(run, REPORT)
    timings = {"environment": {"threads": 2}, "entries": {"teacher/beam5": {"latency": {"median_ms": 5.0}, "all": [4.0, 6.0]}}}
    (page / "records" / "report.md").write_text("# demo")
    (page / "records" / "report.html").write_text("<html/>")
    (page / "records" / "benchmark.json").write_text(json.dumps(timings))
    finish(run, REPORT)
    run.write_event("run_finished", status="done")


class Browser:
    """The view of a user on a run in MLflow."""

    def __init__(self, uri: str, run: Run) -> None:
        from mlflow.tracking import MlflowClient

        self.client = MlflowClient(tracking_uri=uri)
        ids = [e.experiment_id for e in self.client.search_experiments()]
        everything = self.client.search_runs(ids, f"tags.`fewstep.run` = '{run.path.name}'", order_by=["attributes.start_time"])
        publication = json.loads((run.path / "mlflow.json").read_text())["publication"]
        self.runs = {r.data.tags["fewstep.step"]: r for r in everything if r.data.tags["fewstep.publication"] == publication}
        self.count = len([r for r in everything if r.data.tags["fewstep.publication"] == publication])

    def points(self, step: str, metric: str) -> list[tuple[int, float]]:
        return [(m.step, m.value) for m in self.client.get_metric_history(self.runs[step].info.run_id, metric)]

    def files(self, step: str, folder: str | None = None) -> set[str]:
        return {f.path for f in self.client.list_artifacts(self.runs[step].info.run_id, folder) if not f.is_dir}

    def statuses(self) -> dict[str, str]:
        return {step: run.info.status for step, run in self.runs.items()}

    def everything(self) -> Any:
        """Return everything that is stored, for later comparison."""
        return [
            (step, r.to_dictionary(), sorted((name, *self.points(step, name)) for name in r.data.metrics))
            for step, r in sorted(self.runs.items())
        ]
