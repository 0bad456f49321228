"""SQLite databases of MLflow, and the database of a store, whose artifacts stay in the store when it is copied or moved."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

ARTIFACTS = "mlflow-artifacts"
"""The folder of artifacts beside a database."""
MODEL_LOCATIONS = (("logged_models", "artifact_location"), ("model_versions", "source"), ("model_versions", "storage_location"))
"""Tables and columns with the locations of models."""
SQLITE = re.compile(r"sqlite(?:\+\w+)?:///([^?]+)")


def own_database(store: Path) -> Path:
    """Return the database of a store."""
    return store / "mlflow.db"


def database_uri(path: Path) -> str:
    """Return the URI of a SQLite file. `?` and `%` are escaped: SQLAlchemy decodes the path and reads options after `?`."""
    return "sqlite:///" + str(path).replace("%", "%25").replace("?", "%3F")


def database_file(uri: str) -> Path | None:
    """Return the file of a SQLite URI; None for other databases and for databases in memory."""
    found = SQLITE.match(uri)
    return Path(os.path.realpath(unquote(found[1]))) if found and found[1] != ":memory:" else None


def local_path(location: str) -> Path | None:
    """Return the path of an artifact location as MLflow reads it; None for a location that is not on a disk."""
    try:
        parts = urlsplit(location)
    except ValueError:
        return None
    if parts.scheme not in ("", "file"):
        return None
    return Path(unquote(parts.path if parts.scheme else location))


def adopt_experiments(database: Path, artifacts: Path) -> None:
    """Set the artifact location of the experiments in a store's database to `artifacts`, after the store was copied or moved.

    MLflow records absolute locations. Only experiments with a folder named `ARTIFACTS`, which fewstep created, are changed.
    """
    if not database.is_file():
        return
    wanted = artifacts.as_uri()
    with closing(sqlite3.connect(database, timeout=60)) as connection, connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'experiments'").fetchone():
            return
        for number, location in connection.execute("SELECT experiment_id, artifact_location FROM experiments").fetchall():
            path = local_path(location or "")
            if path is not None and path.name == ARTIFACTS and location != wanted:
                _adopt_models(connection, location, wanted)
                connection.execute("UPDATE experiments SET artifact_location = ? WHERE experiment_id = ?", (wanted, number))
                connection.execute(
                    "UPDATE runs SET artifact_uri = ? || '/' || run_uuid || '/artifacts' WHERE experiment_id = ?", (wanted, number)
                )


def _adopt_models(connection: sqlite3.Connection, former: str, wanted: str) -> None:
    """Move logged models and registered versions from the location `former` to `wanted`."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'logged_models'").fetchone():
        return
    for table, column in MODEL_LOCATIONS:
        connection.execute(
            f"UPDATE {table} SET {column} = ? || substr({column}, ?) WHERE substr({column}, 1, ?) = ?",
            (wanted, len(former) + 1, len(former) + 1, f"{former}/"),
        )


@contextmanager
def without_stray_folders(uri: str) -> Iterator[None]:
    """Remove the empty folders that MLflow creates for a SQLite file, because it does not decode escaped paths."""
    folder = Path(uri.removeprefix("sqlite:///")).parent
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        yield
    finally:
        for path in missing if "%" in uri else ():
            with suppress(OSError):  # the folder is in use
                path.rmdir()
