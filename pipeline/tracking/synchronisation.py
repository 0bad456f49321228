"""The synchronisation of MLflow with a run: events, artifacts and records become MLflow runs, metrics and artifacts. Its entries
become child runs, one for each system and search, and models, one for each system."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import yaml

from pipeline.run.run_directory import Run, RunState, StepState
from pipeline.store.files import read_json
from pipeline.store.manifest import isa_levels, manifest_values
from pipeline.store.records import figures_of, metric_files, points_after, scores_of, step_directory, timings_of
from pipeline.tracking.entries import Entries, Entry
from pipeline.tracking.mlflow_server import POINTS_BATCH, MlflowRun, Server
from pipeline.tracking.models import Candidate, ModelKey
from pipeline.tracking.sync_state import RUN, SyncState, run_of_artifact
from pipeline.tracking.tags_and_params import (
    Text,
    allowed_name,
    entry_note,
    run_note,
    source_tags,
    step_tags,
    texts_of,
    version_note,
)
from pipeline.urls import masked_values
from stages.artifacts import RECORDS
from stages.shared.tasks import TASKS
from stages.table import STAGES

NOT_LOGGED = ("cluster", "store", "tracking")
"""Sections of the config that may change when a run is continued. MLflow does not change parameters."""
STATUS = {
    "running": "RUNNING",
    "pending": "RUNNING",
    "done": "FINISHED",
    "hit": "FINISHED",
    "failed": "FAILED",
    "stopped": "KILLED",
}


class Synchronisation:
    """One pass that sends everything new of a run directory."""

    def __init__(self, run: Run, server: Server, sent: SyncState, final: bool, models: bool) -> None:
        """`final`: the driver is about to end, and MLflow runs that still run are killed. `models`: systems become models too."""
        self.run = run
        self.server = server
        self.sent = sent
        self.spec: dict[str, Any] = run.spec
        self.state: RunState = run.state()
        self.events = run.events()
        self.times = {event["step"]: event["time"] for event in self.events if "step" in event}
        """Time of the latest event of each step."""
        starts = [event for event in self.events if event["event"] == "run_started" and event.get("first", True)]
        start: dict[str, Any] = starts[-1] if starts else {}
        self.source = partial(source_tags, self.spec["config_file"], start.get("user"))
        """The tags of the run's source and user for a revision of the code."""
        self.revision: str | None = start.get("revision")
        self.models = models
        self.over = final or self.state.status in ("done", "failed", "stopped") or run.driver_gone(self.state)

    def run_all(self) -> None:
        """Send everything new. Files come last, because the artifact storage may be unreachable while the server answers."""
        parent = self._parent()
        for entry in self.spec["plan"]:
            self._step(entry, self.state.steps[entry["step"]], parent)
        entries = EntrySynchronisation(self.run, self.state, self.server, self.sent, self.source(self.revision))
        entries.send(parent, over=self.over)
        if self.over:
            self.server.set_status(parent, self._status(self.state.status), self.state.finished)
        self._files(parent)
        if self.models and not self._is_timing():
            entries.send_models(done=self.state.status == "done")

    def _is_timing(self) -> bool:
        """Return whether a running step measures time, which the logging of models would disturb."""
        exclusive = {stage.name for stage in STAGES if stage.exclusive}
        running = {entry["stage"] for entry in self.spec["plan"] if self.state.steps[entry["step"]].status == "running"}
        return not self.over and bool(exclusive & running)

    def _status(self, status: str) -> str:
        wanted = STATUS[status]
        return "KILLED" if self.over and wanted == "RUNNING" else wanted

    def _mlflow_run(self, key: str, name: str, started: float | None) -> MlflowRun:
        mlflow_run = self.server.run(key, name, started)
        self.sent.set_run(key, mlflow_run.run_id)
        return mlflow_run

    def _parent(self) -> MlflowRun:
        parent = self._mlflow_run(RUN, self.spec["run_id"], self.events[0]["time"] if self.events else None)
        errors = [f"{step.step}: {step.error}" for step in self.state.steps.values() if step.status == "failed"]
        tags = {
            "fewstep.run": self.spec["run_id"],
            "fewstep.attempt": str(sum(event["event"] == "run_started" for event in self.events)),
            "fewstep.kind": "run",
            "mlflow.note.content": run_note(self.spec),
            **self.source(self.revision),
            **({"fewstep.error": "; ".join(errors)} if errors else {}),
            **({"fewstep.isa": ", ".join(levels)} if (levels := self._isa_levels()) else {}),
        }
        self.server.set_tags(parent, tags)
        self.server.add_params(parent, {key: value for key, value in self.spec["config"].items() if key not in NOT_LOGGED})
        if not self.over:
            self.server.set_status(parent, "RUNNING", None)
        return parent

    def _isa_levels(self) -> list[str]:
        """Return the instruction-set levels of all steps, once the run is over."""
        if not self.over:
            return []
        manifests = (manifest_values(step_directory(self.run.store, entry)) for entry in self.spec["plan"])
        return sorted({level for manifest in manifests for level in isa_levels(manifest.get("environment", {}))})

    def _step(self, entry: dict[str, Any], step: StepState, parent: MlflowRun) -> None:
        if step.status in ("pending", "waiting", "skipped"):
            earlier = self.server.runs.get(step.step)
            if earlier is not None and self.over and earlier.status == "RUNNING":
                self.server.set_status(earlier, "KILLED", self.state.finished)
            return
        # An artifact that this run committed just before a crash is no hit.
        hit = step.status == "hit" and step.origin != self.spec["run_id"]
        source = self._source(entry, step) if hit else None
        status = self._status(step.status)
        finished = step.finished or self.times[step.step]
        mlflow_run = self._mlflow_run(step.step, step.step, step.started or finished)
        notes = self.sent.step(step.step)
        published = [mlflow_run.run_id, parent.run_id, status, hit, source, len(step.attempts), finished]
        if notes.get("published") == published:
            return
        directory = step_directory(self.run.store, entry)
        manifest = manifest_values(directory)
        tags = step_tags(entry, step, manifest, directory, hit=hit, source=source)
        tags |= self.source(manifest.get("git_revision") or self.revision)
        self.server.set_tags(mlflow_run, tags | {"fewstep.run": self.spec["run_id"], "mlflow.parentRunId": parent.run_id})
        self.server.add_params(mlflow_run, manifest.get("config") or entry.get("config") or {})
        # The points of an artifact of another run were sent with that run.
        if not hit:
            self._curves(mlflow_run, notes, directory)
        if status == "FINISHED":
            self._results(mlflow_run, parent, entry["step"], directory, manifest, hit=hit)
        self.server.set_status(mlflow_run, status, finished)
        # A running step has more to send at the next pass.
        if status != "RUNNING":
            notes.update(published=published, fingerprint=entry["fingerprint"])
            self.sent.save()

    def _source(self, entry: Mapping[str, Any], step: StepState) -> str | None:
        return (
            run_of_artifact(self.run.path.parent / step.origin, self.sent.current["uri"], entry["fingerprint"])
            if step.origin
            else None
        )

    def _curves(self, mlflow_run: MlflowRun, notes: dict[str, Any], directory: Path) -> None:
        """Send new points of the metrics files, except for updates that a later attempt repeats."""
        files: dict[str, Any] = notes.setdefault("files", {})
        for path in metric_files(directory):
            file = files.setdefault(path.name, {"position": 0, "last": {}})
            earlier = _last_steps(other for name, other in files.items() if name != path.name)
            batch: list[tuple[str, float, float, int]] = []
            for point in points_after(path, file["position"]):
                fresh = {allowed_name(n): v for n, v in point.values.items() if point.step > earlier.get(allowed_name(n), -1)}
                batch += [(name, value, point.time, point.step) for name, value in fresh.items()]
                file["last"].update({name: max(point.step, file["last"].get(name, 0)) for name in fresh})
                file["position"] = point.end
                if len(batch) >= POINTS_BATCH:
                    self._send(mlflow_run, batch)
                    batch = []
            self._send(mlflow_run, batch)

    def _send(self, mlflow_run: MlflowRun, points: Sequence[tuple[str, float, float, int]]) -> None:
        if points:
            self.server.add_points(mlflow_run, points)
            self.sent.save()

    def _results(
        self, mlflow_run: MlflowRun, parent: MlflowRun, step: str, directory: Path, manifest: Mapping[str, Any], *, hit: bool
    ) -> None:
        """Send the final numbers of a finished step. Scores are also sent to the parent, by which users compare runs."""
        moment = float(manifest.get("finished") or 0.0)
        scores = {name: score for name, (score, _) in scores_of(directory).items()}
        place = step.split(":", 1)[1].replace(":", "/")
        self.server.add_points(parent, [(allowed_name(f"{place}/{name}"), value, moment, 0) for name, value in scores.items()])
        if hit:
            return
        curves = _last_steps(self.sent.step(step)["files"].values())
        final = {"seconds": float(manifest.get("seconds") or 0.0), **scores, **timings_of(directory)}
        named = {allowed_name(name): value for name, value in final.items()}
        self.server.add_points(mlflow_run, [(name, value, moment, 0) for name, value in named.items() if name not in curves])

    def _files(self, parent: MlflowRun) -> None:
        """Send config, plan, ledger and report to the parent, and figures and tables to their steps; no text and no weights."""
        config = yaml.safe_dump(masked_values(self.spec["config"]), sort_keys=False, allow_unicode=True)
        self._send_text(parent, "config.yaml", config)
        self._send_text(parent, "plan.json", json.dumps(masked_values(self.spec["plan"]), indent=1, ensure_ascii=False) + "\n")
        for entry in self.spec["plan"]:
            step = self.state.steps[entry["step"]]
            directory = step_directory(self.run.store, entry)
            if step.status not in ("done", "hit"):
                continue
            if entry["step"] == "corpus:train":
                self._send_file(parent, directory / "ledger.json")
            if entry["stage"] == "report":
                self._send_file(parent, directory / RECORDS / "report.md")
                self._send_file(parent, directory / RECORDS / "report.html")
            if step.status == "done":
                for path in figures_of(directory):
                    self._send_file(self.server.runs[entry["step"]], path, path.parent.name)

    def _send_text(self, mlflow_run: MlflowRun, name: str, text: str) -> None:
        data = text.encode()
        stamp = hashlib.sha256(data).hexdigest()
        if not self._is_sent(mlflow_run, name, stamp, len(data)):
            self.server.artifacts.send_text(mlflow_run.run_id, name, text)
            self._record_sent(mlflow_run, name, stamp)

    def _send_file(self, mlflow_run: MlflowRun, path: Path, folder: str | None = None) -> None:
        if not path.is_file():
            return
        name = f"{folder}/{path.name}" if folder else path.name
        size = path.stat().st_size
        stamp = f"{size} {path.stat().st_mtime_ns}"
        if not self._is_sent(mlflow_run, name, stamp, size):
            self.server.artifacts.send(mlflow_run.run_id, path, folder)
            self._record_sent(mlflow_run, name, stamp)

    def _is_sent(self, mlflow_run: MlflowRun, name: str, stamp: str, size: int) -> bool:
        """Return whether an artifact was sent and still exists: users may remove artifacts."""
        recorded = self.sent.current["artifacts"].get(f"{mlflow_run.run_id}/{name}") == stamp
        return recorded and self.server.artifacts.holds(mlflow_run.run_id, name, size)

    def _record_sent(self, mlflow_run: MlflowRun, name: str, stamp: str) -> None:
        self.sent.current["artifacts"][f"{mlflow_run.run_id}/{name}"] = stamp
        self.sent.save()


def _last_steps(files: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return the last step that was sent of each metric, over all metrics files."""
    last: dict[str, int] = {}
    for file in files:
        for name, step in file["last"].items():
            last[name] = max(step, last.get(name, step))
    return last


Point = tuple[str, float, float, int]


class EntrySynchronisation:
    """One pass that sends what is new of the entries of a run."""

    def __init__(self, run: Run, state: RunState, server: Server, sent: SyncState, source: Mapping[str, str]) -> None:
        """`source`: the tags of the run's source and user."""
        self.run = run
        self.server = server
        self.sent = sent
        self.source = source
        self.spec: Mapping[str, Any] = run.spec
        self.entries = Entries(run, state)
        self.texts = texts_of(run.store, self.entries.plan, self.entries.finished, self.sent.current["experiment"])
        self.found = list(self.entries)

    def send(self, parent: MlflowRun, *, over: bool) -> None:
        """Send the texts of the run, and the entries whose metrics or status changed. `over`: the run is not continued now."""
        self._texts(parent)
        for entry in self.found:
            status = "KILLED" if over else "RUNNING"
            if entry.complete:
                status = "FINISHED"
            mlflow_run = self.server.run(_key(entry), entry.name, min(value.time for value in entry.values))
            self.sent.set_run(_key(entry), mlflow_run.run_id)
            notes = self.sent.step(_key(entry))
            published = [mlflow_run.run_id, parent.run_id, status, [list(value) for value in entry.values]]
            if notes.get("published") != published:
                self._entry(entry, mlflow_run, parent, status)
                notes["published"] = published
                self.sent.save()

    def _entry(self, entry: Entry, mlflow_run: MlflowRun, parent: MlflowRun, status: str) -> None:
        tags = {
            **entry.tags,
            **self.source,
            "fewstep.kind": "entry",
            "fewstep.run": self.spec["run_id"],
            "mlflow.parentRunId": parent.run_id,
            "mlflow.note.content": entry_note(entry),
        }
        self.server.set_tags(mlflow_run, tags)
        self.server.add_params(mlflow_run, entry.parameters)
        for test, points in self._points(entry).items():
            text = self.texts.get(test)
            self.server.add_texts(mlflow_run, [text] if text else [])
            self.server.add_points(mlflow_run, points, text=text)
        self.server.set_status(mlflow_run, status, max(value.time for value in entry.values))

    def _points(self, entry: Entry) -> dict[str, list[Point]]:
        """Return the metrics of an entry by test set, as points."""
        found: dict[str, list[Point]] = {}
        for test, metric, value, time in entry.values:
            name = allowed_name(self.entries.metric_name(test, metric))
            found.setdefault(test, []).append((name, value, time, 0))
        return found

    def _texts(self, parent: MlflowRun) -> None:
        notes = self.sent.step("texts")
        published = [parent.run_id, {name: text.digest for name, text in self.texts.items()}]
        if notes.get("published") != published:
            self.server.add_texts(parent, list(self.texts.values()))
            notes["published"] = published
            self.sent.save()

    def send_models(self, *, done: bool) -> None:
        """Log the systems with scores as models, and register the best one when the run is `done`."""
        by_system: dict[str, list[Entry]] = {}
        for entry in self.found:
            by_system.setdefault(entry.system, []).append(entry)
        logged = {system for system, entries in by_system.items() if self._default_model(system, entries)}
        if done and logged:
            self._register(logged)

    def _default_model(self, system: str, entries: list[Entry]) -> bool:
        """Log a system with its default search unless its model exists, link it with its entries, and return whether it has one."""
        directory = self.entries.directory(f"system:{system}")
        if directory is None or self._example is None:
            return False
        default = str(read_json(directory / "system.json")["search"])
        first = next((entry for entry in entries if entry.search == default), entries[0])
        model_id = self._model(directory, default, first)
        for entry in entries:
            self._link(entry, model_id, is_default=entry.search == default)
        return True

    def _model(self, directory: Path, search: str, entry: Entry) -> str:
        """Log a system that searches by `search` unless its model exists, as the output of an entry, and return its id."""
        key = ModelKey(directory.name, search)
        assert self._example is not None
        if not self.server.models.holds(key):
            self.server.models.log(directory, key, self.server.runs[_key(entry)].run_id, entry.tags, self._example)
        return str(self.server.models.logged[key].model_id)

    def _link(self, entry: Entry, model_id: str, *, is_default: bool) -> None:
        """Show the model among the outputs of an entry; the model gets the metrics of its default search."""
        mlflow_run = self.server.runs[_key(entry)]
        linked = self.sent.step(_key(entry)).setdefault("models", {})
        if linked.get(model_id) == len(entry.values):
            return
        self.server.models.link(mlflow_run.run_id, model_id)
        for test, points in self._points(entry).items() if is_default else ():
            self.server.add_points(mlflow_run, points, model_id, self.texts.get(test))
        linked[model_id] = len(entry.values)
        self.sent.save()

    @cached_property
    def _example(self) -> str | None:
        """Return a source of the main test set; None if the set is not finished or empty."""
        from stages.shared.decoding.sentences import read_sentences

        directory = self.entries.directory(f"corpus:{self.entries.tests[0]}") if self.entries.tests else None
        return next((sentence.source for sentence in read_sentences(directory)), None) if directory else None

    def _register(self, logged: Collection[str]) -> None:
        """Register the best entry of the `logged` systems: its system with its search."""
        metric = TASKS[self.spec["config"].get("task", "translation")].metric
        test = self.entries.tests[0]
        scores = [
            (value.value, entry)
            for entry in self.found
            for value in entry.values
            if (value.test, value.metric) == (test, metric) and entry.system in logged
        ]
        if not scores:
            return
        score, best = max(scores, key=lambda pair: pair[0])
        text: Text | None = self.texts.get(test)
        tags = {**best.tags, "fewstep.run": self.spec["run_id"], "fewstep.metric": metric}
        tags |= {"fewstep.test_digest": text.digest} if text else {}
        note = version_note(best, metric, score, test)
        directory = self.entries.directory(f"system:{best.system}")
        assert directory is not None
        model_id = self._model(directory, best.search, best)
        self._link(best, model_id, is_default=True)
        candidate = Candidate(model_id, self.server.runs[_key(best)].run_id, score, tags, note)
        notes = self.sent.step("registered")
        if notes.get("published") != (published := [candidate.model_id, round(score, 4)]):
            self.server.models.register(_registered_name(self.sent.current["experiment"]), candidate)
            notes["published"] = published
            self.sent.save()


def _key(entry: Entry) -> str:
    return f"entry:{entry.name}"


def _registered_name(experiment: str) -> str:
    """Return the name of the registered model of an experiment, without the characters that MLflow does not allow there."""
    return experiment.replace("/", "-").replace(":", "-")
