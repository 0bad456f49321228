"""The publication of runs to MLflow. It is idempotent: a run can be published late and repeatedly."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Protocol

from fewstep.text.escape import escaped
from pipeline.run.run_directory import Run
from pipeline.store.host import HOST
from pipeline.store.locks import locked
from pipeline.tracking.database import (
    ARTIFACTS,
    adopt_experiments,
    database_file,
    database_uri,
    own_database,
    without_stray_folders,
)
from pipeline.tracking.mlflow_server import Server
from pipeline.tracking.sync_state import SyncState
from pipeline.tracking.synchronisation import Synchronisation
from pipeline.urls import masked
from stages.errors import FewstepError, StageError


class Settings(Protocol):
    """The section `tracking` of the config."""

    @property
    def enabled(self) -> bool: ...
    @property
    def uri(self) -> str: ...
    @property
    def experiment(self) -> str: ...
    @property
    def models(self) -> bool: ...


def tracking_uri(settings: Settings, store: Path) -> str:
    """Return the tracking URI: MLFLOW_TRACKING_URI, else the config's `tracking.uri`, else a SQLite file in the store."""
    return os.environ.get("MLFLOW_TRACKING_URI") or settings.uri or database_uri(own_database(store))


def publish(run_dir: Path, settings: Settings) -> str:
    """Publish a run, finished or not, and return a description of the place. A repetition changes nothing.

    Raises StageError if MLflow cannot be reached or refuses the run.
    """
    publisher = Publisher(run_dir, settings)
    try:
        publisher.sync()
    except FewstepError:
        raise
    except Exception as error:
        raise StageError(
            f"{masked(publisher.uri)}: expected an MLflow server or database that accepts runs, got: {short_reason(error)}; "
            "start it, or name another in MLFLOW_TRACKING_URI, and repeat the command"
        ) from error
    return f"{masked(publisher.uri)}, experiment {publisher.experiment}"


def short_reason(error: Exception) -> str:
    """Return the first line of an error without credentials."""
    return masked(f"{type(error).__name__}: {error}".splitlines()[0])[:300]


class Publisher:
    """The publisher of one run directory.

    An MLflow run that a crash kept out of `mlflow.json` is found again by the tag `fewstep.publication`. A point that is sent twice
    is stored once, because its time is that of the record.
    """

    def __init__(self, run_dir: Path, settings: Settings) -> None:
        self.run = Run(Path(run_dir).resolve())
        self.uri = tracking_uri(settings, self.run.store)
        self.experiment = settings.experiment or str(self.run.spec["name"])
        self.models = settings.models
        self._server: Server | None = None

    def sync(self, *, final: bool = False) -> None:
        """Publish everything that is new. `final` ends runs that still run as KILLED. Raises the errors of MLflow."""
        with locked(self.run.path / "mlflow.lock", HOST):
            state = SyncState.load(self.run.path, self._name_of_server(), self.experiment)
            server, self._server = self._server or self._connect(state), None
            with without_stray_folders(self.uri):  # the client opens the database once more for its registry of models
                Synchronisation(self.run, server, state, final, self.models).run_all()
            self._server = server  # not kept after a failure: what it caches about its runs may be wrong then

    def _name_of_server(self) -> str:
        """Return the server's name in `mlflow.json`. The store's own database has the same name wherever the store is."""
        own = own_database(self.run.store)
        return own.name if database_file(self.uri) == own else masked(self.uri)

    def _connect(self, state: SyncState) -> Server:
        if self.uri.startswith(("http:", "https:", "databricks")):
            return Server(self.uri, self.experiment, (), state.publication)
        database = database_file(self.uri)
        own = own_database(self.run.store)
        folders = [file.with_name(ARTIFACTS) for file in (database, own) if file]
        # Processes that create a database's tables at the same time corrupt it.
        with locked(self.run.store / "mlflow.lock", HOST):
            if database == own:
                adopt_experiments(own, own.with_name(ARTIFACTS))
            with without_stray_folders(self.uri):
                return Server(self.uri, self.experiment, folders, state.publication)


SYNC_SECONDS = 5.0
"""Interval between two synchronisations of a running run."""
BACKOFF_SECONDS = 60.0
"""Longest pause while the server cannot be reached."""
FINAL_SECONDS = 60.0
"""Time for which the end of a run waits for the last synchronisation."""


class Tracker:
    """A thread that publishes a run while it goes on. Its failures neither end nor delay the run."""

    def __init__(
        self, run_dir: Path, settings: Settings, *, seconds: float = SYNC_SECONDS, final_seconds: float = FINAL_SECONDS
    ) -> None:
        self._publisher = Publisher(run_dir, settings) if settings.enabled else None
        self._seconds = seconds
        self._final_seconds = final_seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="tracking", daemon=True)
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
            self._warn(self._publisher, f"the last records were not sent within {self._final_seconds:g} s")

    def _loop(self) -> None:
        assert self._publisher is not None
        pause = 0.0
        while not self._over.wait(pause):
            succeeded = self._sync(self._publisher, final=False)
            pause = self._seconds if succeeded else min(BACKOFF_SECONDS, max(self._seconds, 2 * pause))
        self._sync(self._publisher, final=True)

    def _sync(self, publisher: Publisher, *, final: bool) -> bool:
        try:
            publisher.sync(final=final)
        except Exception as error:
            self._warn(publisher, short_reason(error))
            return False
        self._warned = False
        return True

    def _warn(self, publisher: Publisher, reason: str) -> None:
        """Print one warning for each outage. `logging` is not used: a step in this process may have redirected it to its log."""
        if not self._warned:
            self._warned = True
            warning = (
                f"warning: the run continues, but MLflow at {masked(publisher.uri)} does not accept its records ({reason}); "
                f"publish them later: fewstep publish {publisher.run.path}"
            )
            print(escaped(warning), file=sys.stderr)
