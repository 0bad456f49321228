"""The synchronisation of MLflow with the entries of a run: a child run for each system and search, and a model for each system."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from pipeline.run.run_directory import Run, RunState
from pipeline.store.files import read_json
from pipeline.tracking.entries import Entries, Entry
from pipeline.tracking.mlflow_server import MlflowRun, Server
from pipeline.tracking.models import Candidate, ModelKey
from pipeline.tracking.sync_state import SyncState
from pipeline.tracking.tags_and_params import Text, allowed_name, entry_note, texts_of, version_note
from stages.shared.tasks import TASKS

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
