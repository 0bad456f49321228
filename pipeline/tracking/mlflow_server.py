"""MLflow servers and databases, through MLflow's client."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fewstep.text.escape import escaped
from pipeline.tracking.artifacts import RunArtifacts
from pipeline.tracking.bounded_answers import all_pages, bound_answers
from pipeline.tracking.database import ARTIFACTS, local_path
from pipeline.tracking.models import Models
from pipeline.tracking.tags_and_params import EXPERIMENT, TAG_CHARACTERS, Text, parameters
from pipeline.urls import masked
from stages.errors import StageError

POINTS_BATCH = 1000
"""Largest number of points in a request."""
PARAMS_BATCH = 100
"""Largest number of parameters in a request."""
MAX_CHARACTERS = 32 << 20
"""Characters of the tags and of the names of parameters of all runs that are found again."""
KIND = {"mlflow.experimentKind": "custom_model_development"}
"""The tag by which MLflow's pages open an experiment with its runs and models, in place of a question about its kind. A kind that a
user has chosen stays."""
QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "GIT_PYTHON_REFRESH": "quiet",
}
"""Defaults of MLflow's environment variables: no messages, and no long wait for a server that does not answer. The user's
environment takes precedence."""


@dataclass
class MlflowRun:
    """The state of an MLflow run on the server."""

    run_id: str
    status: str
    tags: dict[str, str] = field(default_factory=dict)
    params: set[str] = field(default_factory=set)


class Server:
    """An experiment of a tracking server or database. Run ids are explicit, because MLflow keeps an active run per thread."""

    def __init__(self, uri: str, experiment: str, folders: Sequence[Path], publication: str) -> None:
        """Connect to an experiment, which is created if necessary.

        `folders` lists where the artifacts of a fewstep experiment may be; a new experiment gets the first one, or the server's
        choice. Raises StageError if the artifacts of the experiment are in another store.
        """
        for name, value in QUIET.items():
            os.environ.setdefault(name, value)
        # Imported after the variables are set.
        from mlflow.tracking import MlflowClient

        bound_answers()
        for noisy in ("mlflow", "alembic"):
            logging.getLogger(noisy).setLevel(logging.ERROR)
        self.client = MlflowClient(tracking_uri=uri, registry_uri=uri)
        self.publication = publication
        self.experiment_id = self._experiment(experiment, folders)
        self.runs = self._find()
        """The MLflow runs of the steps, and of the run under `sync_state.RUN`."""
        self.artifacts = RunArtifacts(self.client, uri)
        self.models = Models(self.client, uri, self.experiment_id)

    def _experiment(self, name: str, folders: Sequence[Path]) -> str:
        found = self.client.get_experiment_by_name(name)
        if found is None:
            location = folders[0].as_uri() if folders else None
            return str(self.client.create_experiment(name, location, tags={"mlflow.note.content": EXPERIMENT, **KIND}))
        path = local_path(found.artifact_location)
        if folders and path is not None and path.name == ARTIFACTS and path not in folders:
            raise StageError(
                f"experiment {name}: expected its artifacts in {folders[0]}, got {path}, which belongs to another store; "
                "name another experiment in tracking.experiment, or publish to an MLflow server"
            )
        for tag in KIND.keys() - found.tags.keys():
            self.client.set_experiment_tag(found.experiment_id, tag, KIND[tag])
        return str(found.experiment_id)

    def _find(self) -> dict[str, MlflowRun]:
        """Return the MLflow runs of this run directory by step, the earliest if a step has several. Deleted ones are left out."""
        own = f"tags.`fewstep.publication` = '{self.publication}'"
        order = ["attributes.start_time DESC"]
        found: dict[str, MlflowRun] = {}
        characters = 0
        # In descending order of time, so that the earliest run of a step is the one that stays.
        for run in all_pages(lambda token: self.client.search_runs([self.experiment_id], own, order_by=order, page_token=token)):
            tags = dict(run.data.tags)
            characters += sum(map(len, (*tags, *tags.values(), *run.data.params)))
            if characters > MAX_CHARACTERS:
                raise StageError(f"expected tags of at most {MAX_CHARACTERS:,} characters for the runs of MLflow, got more")
            found[tags["fewstep.step"]] = MlflowRun(run.info.run_id, run.info.status, tags, set(run.data.params))
        return found

    def run(self, key: str, name: str, started: float | None) -> MlflowRun:
        """Return the MLflow run of a step, which is created if necessary."""
        if key not in self.runs:
            self.runs = self._find()  # another process may have created it
        if key not in self.runs:
            tags = {"fewstep.publication": self.publication, "fewstep.step": key}
            start = _milliseconds(started) if started else None
            created = self.client.create_run(self.experiment_id, start_time=start, tags=tags, run_name=name)
            self.runs[key] = MlflowRun(created.info.run_id, created.info.status, dict(created.data.tags))
        return self.runs[key]

    def set_tags(self, run: MlflowRun, wanted: Mapping[str, str]) -> None:
        """Set the tags of a run, escaped and without credentials, and delete other tags that begin with `fewstep.`."""
        from mlflow.entities import RunTag

        wanted = {name: escaped(masked(value))[:TAG_CHARACTERS] for name, value in wanted.items()}
        changed = {name: value for name, value in wanted.items() if run.tags.get(name) != value}
        if changed:
            self.client.log_batch(run.run_id, tags=[RunTag(name, value) for name, value in changed.items()])
            run.tags.update(changed)
        kept = {"fewstep.publication", "fewstep.step", *wanted}
        for name in [name for name in run.tags if name.startswith("fewstep.") and name not in kept]:
            self.client.delete_tag(run.run_id, name)
            del run.tags[name]

    def add_params(self, run: MlflowRun, config: Mapping[str, Any]) -> None:
        """Log the parameters that a run does not have yet. MLflow does not change parameters."""
        from mlflow.entities import Param

        missing = [(name, value) for name, value in parameters(config).items() if name not in run.params]
        for start in range(0, len(missing), PARAMS_BATCH):
            batch = dict(missing[start : start + PARAMS_BATCH])
            self.client.log_batch(run.run_id, params=[Param(name, value) for name, value in batch.items()])
            run.params.update(batch)

    def add_points(
        self,
        run: MlflowRun,
        points: Sequence[tuple[str, float, float, int]],
        model_id: str | None = None,
        text: Text | None = None,
    ) -> None:
        """Log points of metrics, each (metric, value, Unix time, step), optionally as those of a model on a text."""
        from mlflow.entities import Metric

        place = {"dataset_name": text.name, "dataset_digest": text.digest} if text else {}
        for start in range(0, len(points), POINTS_BATCH):
            batch = points[start : start + POINTS_BATCH]
            found = [Metric(n, v, _milliseconds(t), step, model_id=model_id, **place) for n, v, t, step in batch]
            self.client.log_batch(run.run_id, metrics=found)

    def add_texts(self, run: MlflowRun, texts: Sequence[Text]) -> None:
        """Show texts among the datasets of a run. MLflow stores each once."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        found = [
            DatasetInput(
                Dataset(text.name, text.digest, "local", text.source, profile=text.profile),
                [InputTag("mlflow.data.context", text.context)],
            )
            for text in texts
        ]
        if found:
            self.client.log_inputs(run.run_id, datasets=found)

    def set_status(self, run: MlflowRun, status: str, finished: float | None) -> None:
        """Set the status of a run. `finished` is the Unix time at which it ended."""
        if run.status == status:
            return
        if status == "RUNNING":
            self.client.update_run(run.run_id, status=status)
        else:
            self.client.set_terminated(run.run_id, status, _milliseconds(finished) if finished else None)
        run.status = status


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
