"""Publishes runs to MLflow. One writer; whatever it does it can do again, so that a run can be published late or twice."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from pipeline.run.history import Run
from pipeline.tracking.artifacts import RunArtifacts
from pipeline.tracking.database import (
    ARTIFACTS,
    adopt_experiments,
    database_file,
    database_uri,
    local_path,
    own_database,
    without_stray_folders,
)
from pipeline.tracking.publication import TAG_CHARACTERS, Memory, locked, masked, parameters
from pipeline.tracking.synchronisation import POINTS_BATCH, Remote, Synchronisation
from stages.errors import FewstepError, StageError

SYNC_SECONDS = 5.0
"""Between two publications of a run that is going on."""
BACKOFF_SECONDS = 60.0
"""Longest pause while the server cannot be reached."""
FINAL_SECONDS = 20.0
"""How long the end of a run waits for the last publication."""
PARAMS_BATCH = 100
"""What MLflow takes at once."""
QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "GIT_PYTHON_REFRESH": "quiet",
}
"""Defaults of MLflow's own settings: no noise, and no long wait for a server that is not there. The user's environment wins."""


class Settings(Protocol):
    """The `tracking` section of the config."""

    @property
    def enabled(self) -> bool: ...
    @property
    def uri(self) -> str: ...
    @property
    def experiment(self) -> str: ...


def tracking_uri(settings: Settings, store: Path) -> str:
    """Where runs are published: MLFLOW_TRACKING_URI, else the config's `tracking.uri`, else a SQLite file in the store."""
    return os.environ.get("MLFLOW_TRACKING_URI") or settings.uri or database_uri(own_database(store))


def publish(run_dir: Path, settings: Settings) -> str:
    """Bring MLflow up to date with a run, finished or not; done again, it changes nothing. Returns the place, for people.

    Raises StageError when MLflow cannot be reached or refuses.
    """
    publisher = Publisher(run_dir, settings)
    try:
        publisher.sync()
    except FewstepError:
        raise
    except Exception as error:
        raise StageError(
            f"{masked(publisher.uri)}: expected an MLflow server or database that takes runs, got: {_reason(error)}; "
            "start it, or name another in MLFLOW_TRACKING_URI, and repeat the command"
        ) from error
    return f"{masked(publisher.uri)}, experiment {publisher.experiment}"


class Tracker:
    """Publishes a run while it is going on, from a thread that never holds the run up."""

    def __init__(
        self, run_dir: Path, settings: Settings, *, seconds: float = SYNC_SECONDS, final_seconds: float = FINAL_SECONDS
    ) -> None:
        self._publisher = Publisher(run_dir, settings) if settings.enabled else None
        self._seconds = seconds
        self._final_seconds = final_seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="tracking", daemon=True)
        self._warned = False

    def __enter__(self) -> Tracker:
        if self._publisher is not None:
            self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        if self._publisher is None:
            return
        self._thread.join(self._final_seconds)
        if self._thread.is_alive():
            self._warn(self._publisher, f"not all was sent within {self._final_seconds:g} s")

    def _work(self) -> None:
        assert self._publisher is not None
        pause = 0.0
        while not self._over.wait(pause):
            reached = self._sync(self._publisher, final=False)
            pause = self._seconds if reached else min(BACKOFF_SECONDS, max(self._seconds, 2 * pause))
        self._sync(self._publisher, final=True)

    def _sync(self, publisher: Publisher, *, final: bool) -> bool:
        try:
            publisher.sync(final=final)
        except Exception as error:
            self._warn(publisher, _reason(error))
            return False
        self._warned = False
        return True

    def _warn(self, publisher: Publisher, reason: str) -> None:
        """Once an outage. Not through `logging`: a step in this process may have taken that over for its log file."""
        if not self._warned:
            self._warned = True
            print(
                f"warning: the run goes on, but MLflow at {masked(publisher.uri)} does not take its records ({reason}); "
                f"publish them later: fewstep publish {publisher.run.path}",
                file=sys.stderr,
            )


def _reason(error: Exception) -> str:
    return masked(f"{type(error).__name__}: {error}".splitlines()[0])[:300]


class Publisher:
    """Brings MLflow up to date with a run directory and its artifacts.

    What a crash keeps from being remembered in `mlflow.json` is found again by the tag `fewstep.publication`; a point that is sent
    twice is the same point (its time is the record's), which MLflow's databases keep once.
    """

    def __init__(self, run_dir: Path, settings: Settings) -> None:
        self.run = Run(Path(run_dir).resolve())
        self.uri = tracking_uri(settings, self.run.store)
        self.experiment = settings.experiment or str(self.run.spec["name"])
        self._server: Server | None = None

    def sync(self, *, final: bool = False) -> None:
        """Publish all there is. `final`: the driver ends, and what still runs is ended as KILLED. Raises what MLflow raises."""
        with locked(self.run.path / "mlflow.lock"):
            memory = Memory.load(self.run.path, self._remembered_as(), self.experiment)
            server, self._server = self._server or self._connect(memory), None
            Synchronisation(self.run, server, memory, final).all()
            self._server = server  # after a failure what it knows of our runs is not trusted again

    def _remembered_as(self) -> str:
        """The server's name in `mlflow.json`: the store's own database is the same one wherever the store lies."""
        own = own_database(self.run.store)
        return own.name if database_file(self.uri) == own else masked(self.uri)

    def _connect(self, memory: Memory) -> Server:
        if self.uri.startswith(("http:", "https:", "databricks")):
            return Server(self.uri, self.experiment, (), memory.publication)
        database, own = database_file(self.uri), own_database(self.run.store)
        folders = [file.with_name(ARTIFACTS) for file in (database, own) if file]
        with locked(self.run.store / "mlflow.lock"):  # two processes that make the tables of a database at once spoil it
            if database == own:
                adopt_experiments(own, own.with_name(ARTIFACTS))
            with without_stray_folders(self.uri):
                return Server(self.uri, self.experiment, folders, memory.publication)


class Server:
    """An experiment of a tracking server or database. Always explicit run ids: MLflow's active run is a matter of threads."""

    def __init__(self, uri: str, experiment: str, folders: Sequence[Path], publication: str) -> None:
        """`folders`: where the artifacts of an experiment of ours may lie; a new one gets the first, or the server's choice.

        Raises StageError when the experiment has its artifacts in another store.
        """
        for name, value in QUIET.items():
            os.environ.setdefault(name, value)
        from mlflow.tracking import MlflowClient

        for noisy in ("mlflow", "alembic"):
            logging.getLogger(noisy).setLevel(logging.ERROR)
        self.client = MlflowClient(tracking_uri=uri)
        self.publication = publication
        self.experiment_id = self._experiment(experiment, folders)
        self.runs = self._find()
        """By step; `run` is the run itself."""
        self.artifacts = RunArtifacts(self.client, uri)

    def _experiment(self, name: str, folders: Sequence[Path]) -> str:
        found = self.client.get_experiment_by_name(name)
        if found is None:
            return str(self.client.create_experiment(name, artifact_location=folders[0].as_uri() if folders else None))
        path = local_path(found.artifact_location)
        if folders and path is not None and path.name == ARTIFACTS and path not in folders:
            raise StageError(
                f"experiment {name}: expected its artifacts in {folders[0]}, got {path}, which belongs to another store; "
                "name another experiment in tracking.experiment, or publish to an MLflow server"
            )
        return str(found.experiment_id)

    def _find(self) -> dict[str, Remote]:
        """Our runs on the server that are not deleted, the earliest if a step has several."""
        found: dict[str, Remote] = {}
        token = None
        while True:
            page = self.client.search_runs(
                [self.experiment_id],
                f"tags.`fewstep.publication` = '{self.publication}'",
                order_by=["attributes.start_time DESC"],
                page_token=token,
            )
            for run in page:
                tags = dict(run.data.tags)
                found[tags["fewstep.step"]] = Remote(run.info.run_id, run.info.status, tags, set(run.data.params))
            token = page.token
            if not token:
                return found

    def run(self, key: str, name: str, started: float | None) -> Remote:
        """The MLflow run of a step, made if there is none."""
        if key not in self.runs:
            self.runs = self._find()  # another process may have made it
        if key not in self.runs:
            tags = {"fewstep.publication": self.publication, "fewstep.step": key}
            start = _milliseconds(started) if started else None
            made = self.client.create_run(self.experiment_id, start_time=start, tags=tags, run_name=name)
            self.runs[key] = Remote(made.info.run_id, made.info.status, dict(made.data.tags))
        return self.runs[key]

    def set_tags(self, remote: Remote, wanted: Mapping[str, str]) -> None:
        """Give a run these tags; tags of ours that it should no longer have are taken away."""
        from mlflow.entities import RunTag

        wanted = {name: masked(value)[:TAG_CHARACTERS] for name, value in wanted.items()}
        changed = {name: value for name, value in wanted.items() if remote.tags.get(name) != value}
        if changed:
            self.client.log_batch(remote.run_id, tags=[RunTag(name, value) for name, value in changed.items()])
            remote.tags.update(changed)
        kept = {"fewstep.publication", "fewstep.step", *wanted}
        for name in [name for name in remote.tags if name.startswith("fewstep.") and name not in kept]:
            self.client.delete_tag(remote.run_id, name)
            del remote.tags[name]

    def add_params(self, remote: Remote, config: Mapping[str, Any]) -> None:
        """Log the parameters that a run has not: MLflow never changes one."""
        from mlflow.entities import Param

        missing = [(name, value) for name, value in parameters(config).items() if name not in remote.params]
        for start in range(0, len(missing), PARAMS_BATCH):
            batch = dict(missing[start : start + PARAMS_BATCH])
            self.client.log_batch(remote.run_id, params=[Param(name, value) for name, value in batch.items()])
            remote.params.update(batch)

    def add_points(self, remote: Remote, points: Sequence[tuple[str, float, float, int]]) -> None:
        """Log points: (metric, value, Unix time, step)."""
        from mlflow.entities import Metric

        for start in range(0, len(points), POINTS_BATCH):
            batch = points[start : start + POINTS_BATCH]
            self.client.log_batch(remote.run_id, metrics=[Metric(n, v, _milliseconds(t), step) for n, v, t, step in batch])

    def set_status(self, remote: Remote, status: str, finished: float | None) -> None:
        if remote.status == status:
            return
        if status == "RUNNING":
            self.client.update_run(remote.run_id, status=status)
        else:
            self.client.set_terminated(remote.run_id, status, _milliseconds(finished) if finished else None)
        remote.status = status


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
