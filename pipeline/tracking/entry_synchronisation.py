"""The synchronisation of MLflow with the entries of a run: a child run for each system and search, and a model for each system."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.run.run_directory import Run, RunState
from pipeline.store.files import read_json
from pipeline.tracking.datasets import Text, texts_of
from pipeline.tracking.descriptions import entry_note, version_note
from pipeline.tracking.entries import Entries, Entry
from pipeline.tracking.mlflow_server import MlflowRun, Server
from pipeline.tracking.models import Candidate
from pipeline.tracking.sync_state import SyncState
from pipeline.tracking.tags_and_params import allowed_name
from stages.shared.tasks import TASKS

Point = tuple[str, float, float, int]


class EntrySynchronisation:
    """One pass that sends what is new of the entries of a run."""

    def __init__(self, run: Run, state: RunState, server: Server, sent: SyncState) -> None:
        self.run, self.server, self.sent = run, server, sent
        self.spec: Mapping[str, Any] = run.spec
        self.entries = Entries(run, state)
        self.texts = texts_of(run.store, self.entries.plan, self.entries.finished, self.sent.current["experiment"])
        self.found = list(self.entries)

    def send(self, parent: MlflowRun, *, over: bool) -> None:
        """Send the texts of the run, and the entries whose metrics or status changed. `over`: the run is not continued now."""
        self._texts(parent)
        for entry in self.found:
            status = "FINISHED" if entry.complete else "KILLED" if over else "RUNNING"
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
            "fewstep.kind": "entry",
            "fewstep.run": self.spec["run_id"],
            "mlflow.parentRunId": parent.run_id,
            "mlflow.note.content": entry_note(entry),
        }
        self.server.set_tags(mlflow_run, tags)
        self.server.add_params(mlflow_run, {"search": entry.options})
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
        models = {system: found for system, entries in by_system.items() if (found := self._model(system, entries))}
        if done and models:
            self._register(models)

    def _model(self, system: str, entries: list[Entry]) -> str | None:
        """Log a system unless its model exists, link it with its entries, and return the id of the model."""
        directory, example = self.entries.directory(f"system:{system}"), self._example()
        if directory is None or example is None:
            return None
        fingerprint = directory.name
        if not self.server.models.holds(fingerprint):
            run_id = self.server.runs[_key(entries[0])].run_id
            self.server.models.log(directory, fingerprint, run_id, entries[0].tags, example)
        model_id = str(self.server.models.logged[fingerprint].model_id)
        default = read_json(directory / "system.json")["search"]
        for entry in entries:
            self._link(entry, model_id, is_default=entry.search == default)
        return model_id

    def _link(self, entry: Entry, model_id: str, *, is_default: bool) -> None:
        """Show the model among the outputs of an entry; the model gets the metrics of its default search."""
        mlflow_run = self.server.runs[_key(entry)]
        notes = self.sent.step(_key(entry))
        linked = [model_id, len(entry.values)]
        if notes.get("linked") == linked:
            return
        self.server.models.link(mlflow_run.run_id, model_id)
        for test, points in self._points(entry).items() if is_default else ():
            self.server.add_points(mlflow_run, points, model_id, self.texts.get(test))
        notes["linked"] = linked
        self.sent.save()

    def _example(self) -> str | None:
        """Return a source of the main test set; None if the set is not finished."""
        from stages.shared.decoding.sentences import read_sentences

        directory = self.entries.directory(f"corpus:{self.entries.tests[0]}") if self.entries.tests else None
        return next((sentence.source for sentence in read_sentences(directory)), None) if directory else None

    def _register(self, models: Mapping[str, str]) -> None:
        metric, test = TASKS[self.spec["config"].get("task", "translation")].metric, self.entries.tests[0]
        scores = [
            (value.value, entry)
            for entry in self.found
            for value in entry.values
            if (value.test, value.metric) == (test, metric) and entry.system in models
        ]
        if not scores:
            return
        score, best = max(scores, key=lambda pair: pair[0])
        text: Text | None = self.texts.get(test)
        tags = {**best.tags, "fewstep.run": self.spec["run_id"], "fewstep.metric": metric}
        tags |= {"fewstep.test_digest": text.digest} if text else {}
        note = version_note(best, metric, score, test)
        candidate = Candidate(models[best.system], self.server.runs[_key(best)].run_id, score, tags, note)
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
