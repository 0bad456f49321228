"""SQLite databases of MLflow: their URIs, and the one in a store, whose artifacts follow the store when it is copied or moved."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

ARTIFACTS = "mlflow-artifacts"
"""Folder of artifacts beside a database."""
SQLITE = re.compile(r"sqlite(?:\+\w+)?:///([^?]+)")


def own_database(store: Path) -> Path:
    """The database of a store."""
    return store / "mlflow.db"


def database_uri(path: Path) -> str:
    """The URI of a SQLite file, in which `?` and `%` are escaped: SQLAlchemy decodes the path and takes `?` for its end."""
    return "sqlite:///" + str(path).replace("%", "%25").replace("?", "%3F")


def database_file(uri: str) -> Path | None:
    """The file of a SQLite URI; None for other databases and for one in memory."""
    found = SQLITE.match(uri)
    return Path(unquote(found[1])).resolve() if found and found[1] != ":memory:" else None


def local_path(location: str) -> Path | None:
    """The path of an artifact location as MLflow reads it; None where it is not on a disk."""
    parts = urlsplit(location)
    if parts.scheme not in ("", "file"):
        return None
    return Path(unquote(parts.path if parts.scheme else location))


def adopt_experiments(database: Path, artifacts: Path) -> None:
    """Let the experiments in a store's database keep their artifacts in `artifacts`, wherever the store was when they were made.

    MLflow records absolute locations. Only experiments whose folder is called `ARTIFACTS` are changed: others are not from us.
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
                connection.execute("UPDATE experiments SET artifact_location = ? WHERE experiment_id = ?", (wanted, number))
                connection.execute(
                    "UPDATE runs SET artifact_uri = ? || '/' || run_uuid || '/artifacts' WHERE experiment_id = ?", (wanted, number)
                )


@contextmanager
def without_stray_folders(uri: str) -> Iterator[None]:
    """Remove the empty folders that MLflow makes for a SQLite file when it takes an escaped path for the path itself."""
    folder = Path(uri.removeprefix("sqlite:///")).parent
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        yield
    finally:
        for path in missing if "%" in uri else ():
            with suppress(OSError):  # it is in use
                path.rmdir()
